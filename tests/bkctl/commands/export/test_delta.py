"""Export to a Delta table, with a real cluster; others change the table in between."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="deltalake is not installed: pip install 'bkctl[delta]'")

from deltalake import DeltaTable

from bkclient.admin import one_shot_adds
from bkclient.blocking import BlockingClient
from bkclient.ledger.creation import NewLedger
from bkctl.commands.export.errors import (
    ExportVerifyError,
    ForeignFilesError,
    TableChangedError,
)
from bkctl.commands.export.run import export_ledgers
from tests.bkctl.support.runner import runner

pytestmark = pytest.mark.processes

ALONE = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}


def write(client: BlockingClient, count: int, **options) -> int:
    return client.write_ledger([b"%d" % n for n in range(count)], **ALONE, **options)[0]


def rows(target: Path) -> list[tuple[int, int, bytes]]:
    """Return ledger, entry and payload of all rows, in order."""
    table = DeltaTable(str(target)).to_pyarrow_table(columns=["ledger_id", "entry_id", "payload"])
    return sorted(tuple(row.values()) for row in table.to_pylist())


def entries(ledger_id: int, count: int) -> list[tuple[int, int, bytes]]:
    return [(ledger_id, n, b"%d" % n) for n in range(count)]


@pytest.mark.parametrize("layout", ["ledger", "none", "day", "log"])
def test_each_export_is_one_version_of_the_table(cluster, client, tmp_path, layout) -> None:
    how = {"table_format": "delta", "layout": layout}
    first, empty = write(client, 20), write(client, 0)
    report = export_ledgers(cluster.uri, [first, empty], str(tmp_path), **how)
    assert report.read_back == f'spark.read.format("delta").load({str(tmp_path)!r})'
    assert rows(tmp_path) == entries(first, 20)
    second = write(client, 3)
    export_ledgers(cluster.uri, [first, empty, second], str(tmp_path), **how)
    assert rows(tmp_path) == entries(first, 20) + entries(second, 3)
    assert DeltaTable(str(tmp_path)).version() == 1
    assert DeltaTable(str(tmp_path), version=0).to_pyarrow_table().num_rows == 20
    export_ledgers(cluster.uri, [first, empty, second], str(tmp_path), **how)
    assert DeltaTable(str(tmp_path)).version() == 1


def test_of_a_ledger_that_grows_the_rest_is_added(cluster, client, tmp_path) -> None:
    ledger_id, _ = client.call(one_shot_adds.create_handed_over, NewLedger())
    for first, last in ((0, 3), (3, 7)):
        client.call(add, ledger_id, [b"%d" % n for n in range(first, last)])
        export_ledgers(cluster.uri, [ledger_id], str(tmp_path), table_format="delta", layout="none")
        assert rows(tmp_path) == entries(ledger_id, last)
    assert len(DeltaTable(str(tmp_path)).file_uris()) == 2


async def add(client, ledger_id: int, payloads: list[bytes]) -> None:
    writer = await one_shot_adds.claim_ledger(client, ledger_id)
    await writer.add_many(payloads)
    await one_shot_adds.release_ledger(writer)


def test_a_table_that_others_compact_and_vacuum_goes_on(cluster, client, tmp_path) -> None:
    ledgers = [write(client, 5) for _ in range(3)]
    for ledger_id in ledgers:
        export_ledgers(cluster.uri, [ledger_id], str(tmp_path), table_format="delta")
    table = DeltaTable(str(tmp_path))
    table.optimize.compact()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert not list(tmp_path.glob("ledger=*/*.parquet"))
    last = write(client, 2)
    how = {"table_format": "delta", "verify": True}
    report = export_ledgers(cluster.uri, [*ledgers, last], str(tmp_path), **how)
    assert [one.unchanged for one in report.ledgers] == [True, True, True, False]
    assert rows(tmp_path) == sorted(
        row for ledger_id in ledgers for row in entries(ledger_id, 5)
    ) + entries(last, 2)
    with pytest.raises(TableChangedError, match="no longer lists it"):
        export_ledgers(cluster.uri, ledgers, str(tmp_path), table_format="delta", again=True)
    assert len(rows(tmp_path)) == 17


def test_verify_reads_the_files_that_the_table_lists(cluster, client, tmp_path) -> None:
    first, second = write(client, 5), write(client, 5)
    for ledger_id in (first, second):
        export_ledgers(cluster.uri, [ledger_id], str(tmp_path), table_format="delta")
    how = {"table_format": "delta", "verify": True}
    sound = export_ledgers(cluster.uri, [first, second], str(tmp_path), **how)
    assert sound.verified_files == 2
    next((tmp_path / f"ledger={first}").iterdir()).unlink()
    with pytest.raises(ExportVerifyError, match=f"1 file .*ledger={first}/.* is missing") as caught:
        export_ledgers(cluster.uri, [first, second], str(tmp_path), **how)
    assert f"export {first} --to {tmp_path} --again" in caught.value.hint
    export_ledgers(cluster.uri, [first], str(tmp_path), again=True)
    assert export_ledgers(cluster.uri, [first, second], str(tmp_path), **how).verified_files == 2


def test_a_ledger_that_is_exported_again_is_in_the_table_once(cluster, client, tmp_path) -> None:
    ledger_id = write(client, 5)
    export_ledgers(cluster.uri, [ledger_id], str(tmp_path), table_format="delta")
    export_ledgers(cluster.uri, [ledger_id], str(tmp_path), table_format="delta", again=True)
    assert rows(tmp_path) == entries(ledger_id, 5)
    older = DeltaTable(str(tmp_path), version=0)
    assert older.to_pyarrow_table().num_rows == 5, "an older version of the table lost its file"


def test_formats_do_not_mix(cluster, client, tmp_path) -> None:
    ledger_id = write(client, 5)
    export_ledgers(cluster.uri, [ledger_id], str(tmp_path))
    with pytest.raises(ForeignFilesError, match="--format parquet; this is delta"):
        export_ledgers(cluster.uri, [ledger_id], str(tmp_path), table_format="delta")


def test_the_command_line_follows_into_a_table(cluster, client, tmp_path) -> None:
    ledger_id = write(client, 5, custom={"application": b"a table"})
    chosen = ("--since-last", "--meta", "application=a table", "--to", tmp_path / "table")
    with runner(cluster) as run:
        told = run("export", *chosen, "--format", "delta", "--verify", "-o", "json").json
    assert told["read_back"].startswith("spark.read.format")
    assert rows(tmp_path / "table") == entries(ledger_id, 5)
