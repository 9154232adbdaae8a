"""The records of runs: what is read is what was written."""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path

import pytest

from bkctl.commands.export.target.export_commit import COMMIT_PATH, load_tree
from bkctl.commands.export.target.file_systems import LocalFiles
from bkctl.commands.export.target.manifest import ManifestError, TargetTree, decode_run
from bkctl.commands.export.target.verify_files import check_ranges
from bkctl.commands.export.task.ledger_selection import LedgerChoice
from bkctl.commands.export.task.parquet_file import WrittenFile, WrittenRange
from bkctl.commands.export.task.partitions import CLOSED, LedgerExtent
from wire.codes import LedgerState
from wire.ids import EntryId, LedgerId

CHOICES = [
    LedgerChoice(),
    LedgerChoice(log="events"),
    LedgerChoice(topic="persistent://a/b/c"),
    LedgerChoice(
        ranges=((1, 100), (205, 205)),
        state=LedgerState.CLOSED,
        created_after_ms=1,
        created_before_ms=1_700_000_000_123,
        meta=(("application", b"not \xff text"), ("owner", b"me")),
    ),
]


def of_run(tree: TargetTree, choice: LedgerChoice | None):
    return tree.next_record(
        cluster="c", layout="none", now_ms=1, ledgers=[], files=[], removed=[], choice=choice
    )


@pytest.mark.parametrize("choice", [None, *CHOICES])
def test_the_choice_of_a_run_is_read_back(choice: LedgerChoice | None) -> None:
    record = of_run(TargetTree(), choice)
    assert decode_run(record.path, record.encode()) == record


def test_a_record_without_a_choice_is_read() -> None:
    stored = json.loads(of_run(TargetTree(), CHOICES[0]).encode())
    del stored["choice"]
    assert decode_run("run", json.dumps(stored).encode()).choice is None


def record_with(**edited: object) -> dict[str, object]:
    return {**json.loads(of_run(TargetTree(), None).encode()), **edited}


@pytest.mark.parametrize("path", ["../theirs", "{outside}/theirs", "ledger=1/../../theirs", ""])
def test_records_that_lead_out_of_the_target_are_refused(tmp_path: Path, path: str) -> None:
    """An interrupted commit is finished, whatever moves and removals its record asks for."""
    outside, files = tmp_path / "outside", LocalFiles(tmp_path / "outside" / "target")
    path = path.format(outside=outside)
    files.make_root()
    files.put("here", b"")
    (outside / "theirs").mkdir()
    file = [path, 1, 0, 0, "", [], None]
    good = {"staging": "_bkctl-tmp-1", "moves": [], "record": record_with()}
    records: list[dict[str, object]] = [
        {**good, "staging": path},
        {**good, "moves": [[path, "ours"]]},
        {**good, "moves": [["here", path]]},
        {**good, "added": [path]},
        {**good, "record": record_with(removed=[path])},
        {**good, "record": record_with(files=[file])},
    ]
    for record in records:
        files.put(COMMIT_PATH, json.dumps(record).encode())
        with pytest.raises(ManifestError, match="leads out of the target"):
            load_tree(files)
    with pytest.raises(ManifestError, match="leads out of the target"):
        decode_run("run", json.dumps(record_with(files=[file])).encode())
    assert (outside / "theirs").is_dir()
    assert files.exists("here")


def test_a_choice_is_told_in_the_words_of_the_command() -> None:
    told = [choice.words() for choice in CHOICES]
    assert told[:3] == [[], ["--log", "events"], ["--topic", "persistent://a/b/c"]]
    assert told[3] == [
        *("1-100", "205", "--state", "closed"),
        *("--created-after", "1970-01-01T00:00:00.001000+00:00"),
        *("--created-before", "2023-11-14T22:13:20.123000+00:00"),
        *("--meta", "application=not \udcff text", "--meta", "owner=me"),
    ]


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "run-000001.json")
    assert LocalFiles(tmp_path).read("run-000001.json") == b""


def test_reading_the_records_takes_little_more_memory_than_their_tree_keeps() -> None:
    """A cron line reads them each time, for a million ledgers. The checks took as much again."""
    ledgers, a_file = 10_000, 1000
    extents = [
        LedgerExtent(LedgerId(n), EntryId(999), 1_000_000, CLOSED, "CRC32C", 1_700_000_000_000)
        for n in range(ledgers)
    ]
    files = [
        WrittenFile(
            f"run=1/{first}", 10, a_file * 1000, 0, "",
            tuple(
                WrittenRange(LedgerId(n), EntryId(0), EntryId(999))
                for n in range(first, first + a_file)
            ),
        )
        for first in range(0, ledgers, a_file)
    ]  # fmt: skip
    record = TargetTree().next_record(
        cluster="c", layout="none", now_ms=1, ledgers=extents, files=files, removed=[]
    )
    stored = record.encode()
    tracemalloc.start()
    try:
        tree = TargetTree()
        tree.apply(decode_run("run", stored))
        check_ranges(tree.ledgers.values(), tree.files.values())
        kept, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(tree.ledgers) == ledgers
    assert most < 1.5 * kept
