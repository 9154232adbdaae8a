"""Export to Parquet, with a real cluster and a real Spark."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from bkclient.admin import one_shot_adds
from bkclient.blocking import BlockingClient
from bkclient.errors import NoSuchLedgerError
from bkclient.ledger.creation import NewLedger
from bkctl.commands.export.errors import (
    ExportBusyError,
    ExportError,
    ExportReadError,
    ExportVerifyError,
    ForeignFilesError,
)
from bkctl.commands.export.outcome import ExportReport
from bkctl.commands.export.run import export_ledgers
from bkctl.commands.export.spark.session import PREFIX, own_address, temporary_files
from bkctl.commands.export.target.export_commit import STAGING_PREFIX, load_tree
from bkctl.commands.export.target.file_systems import open_files
from bkctl.commands.export.target.manifest import ManifestError
from bkctl.commands.export.target.verify_files import damaged_files
from bkctl.commands.export.task.ledger_selection import LedgerChoice
from bkctl.output.views import view_of
from tests.bkctl.support.cluster import BKCTL, Cluster, local_cluster
from tests.bkctl.support.runner import Run, runner
from tests.support.waiting import until
from wire.codes import DigestType, LedgerState
from wire.digest import digester, master_key
from wire.frames import v2
from wire.ids import LedgerId
from wire.messages import AddRequest

pytestmark = [pytest.mark.spark, pytest.mark.processes]

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'bkctl[spark]'")

PAYLOADS = [b"", b"one", bytes(range(256)), *(b"entry %d" % i for i in range(2000))]


def write(client: BlockingClient, payloads=PAYLOADS, **options) -> int:
    return client.write_ledger(payloads, **options)[0]


def read_back(spark, target: Path) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    for row in spark.read.parquet(str(target)).orderBy("ledger_id", "entry_id").collect():
        ledger = found.setdefault(row["ledger_id"], [])
        assert row["entry_id"] == len(ledger)
        ledger.append(bytes(row["payload"]))
    return found


def test_every_byte_of_every_ledger_arrives(cluster, client, spark, tmp_path) -> None:
    ledgers = {
        write(client): PAYLOADS,
        write(client, PAYLOADS[:10], digest_type=DigestType.MAC, password=b"secret"): PAYLOADS[:10],
    }
    empty = write(client, [])
    report = export_ledgers(cluster.uri, [*ledgers, empty], str(tmp_path), spark=spark)
    assert read_back(spark, tmp_path) == ledgers
    assert report.entries == sum(map(len, ledgers.values()))
    assert report.payload_bytes == sum(len(p) for ps in ledgers.values() for p in ps)
    assert [e.digest for e in report.ledgers] == ["crc32c", "mac", "crc32c"]
    assert (report.ledgers[2].entries, report.ledgers[2].files) == (0, 0)
    files = list(tmp_path.glob("ledger=*/*.parquet"))
    assert (report.files, report.file_bytes) == (len(files), sum(f.stat().st_size for f in files))
    assert report.read_back == f"spark.read.parquet({str(tmp_path)!r})"
    assert not list(tmp_path.glob("_bkctl-tmp-*"))


@pytest.mark.parametrize(
    ("master", "address"), [("local[2]", "127.0.0.1"), ("spark://master:7077", "10.0.0.7")]
)
def test_the_user_says_where_a_cluster_of_spark_reaches_us(master: str, address: str) -> None:
    assert own_address(master, {"SPARK_LOCAL_IP": "10.0.0.7"}) == address
    assert own_address("yarn", {}) is None


def test_spark_keeps_its_temporary_files_in_a_directory_of_the_session(spark) -> None:
    jvm = spark.sparkContext._jvm
    temporary = Path(jvm.System.getProperty("java.io.tmpdir"))
    assert temporary.name.startswith(PREFIX)
    local = Path(jvm.org.apache.spark.util.Utils.getLocalDir(spark.sparkContext._jsc.sc().conf()))
    assert temporary in local.parents


def test_a_user_says_where_spark_keeps_its_temporary_files(tmp_path) -> None:
    """Spark's local directories follow ``java.io.tmpdir``, unless a variable says otherwise."""
    found = temporary_files(tmp_path, {"SPARK_SUBMIT_OPTS": "-Djava.io.tmpdir=/mine"})
    assert found == {"SPARK_SUBMIT_OPTS": f'"-Djava.io.tmpdir={tmp_path}" -Djava.io.tmpdir=/mine'}


def test_any_path_may_be_the_one_of_temporary_files() -> None:
    found = temporary_files(Path('/a "b"/c\\d e'), {})
    assert found == {"SPARK_SUBMIT_OPTS": r'"-Djava.io.tmpdir=/a \"b\"/c\\d e"'}


def test_columns_and_footers_say_what_an_entry_is(cluster, client, spark, tmp_path) -> None:
    from pyarrow import parquet

    ledger_id = write(client, [b"a", b"bc"], digest_type=DigestType.CRC32)
    export_ledgers(cluster.uri, [ledger_id], str(tmp_path), spark=spark)
    (path,) = tmp_path.glob("ledger=*/*.parquet")
    table = parquet.ParquetFile(path).read().to_pydict()
    assert table["ledger_id"] == [ledger_id] * 2
    assert (table["entry_id"], table["lac"][0], table["length"]) == ([0, 1], -1, [1, 3])
    assert table["payload"] == [b"a", b"bc"]
    created_ms = metadata_of(client, ledger_id).ctime_ms
    # Spark writes moments in UTC, and pyarrow reads them without saying so.
    made = [t.replace(tzinfo=dt.timezone.utc).timestamp() * 1000 for t in table["ctime"]]
    assert [round(ms) for ms in made] == [created_ms] * 2
    footer = b"".join(parquet.ParquetFile(path).metadata.metadata.values())
    assert b'"CRC32"' in footer.replace(b"\\", b"")


def test_an_open_ledger_is_exported_up_to_what_is_confirmed(
    cluster, client, spark, tmp_path
) -> None:
    ledger_id, _ = client.call(one_shot_adds.create_handed_over, NewLedger())
    report = export_ledgers(cluster.uri, [ledger_id], str(tmp_path), spark=spark)
    assert (report.entries, report.files) == (0, 0)
    add(client, ledger_id, [b"a", b"b"])
    export_ledgers(cluster.uri, [ledger_id], str(tmp_path), spark=spark)
    assert read_back(spark, tmp_path) == {ledger_id: [b"a", b"b"]}
    add(client, ledger_id, [b"c"])
    export_ledgers(cluster.uri, [ledger_id], str(tmp_path), spark=spark)
    assert read_back(spark, tmp_path) == {ledger_id: [b"a", b"b", b"c"]}
    add(client, ledger_id, [b"nobody was fenced"])


def add(client: BlockingClient, ledger_id: int, payloads: list[bytes]) -> None:
    async def one_shot(connected) -> None:
        writer = await one_shot_adds.claim_ledger(connected, ledger_id)
        await writer.add_many(payloads)
        await one_shot_adds.release_ledger(writer)

    client.call(one_shot)


def test_a_ledger_that_is_deleted_before_an_export_found_it_closed_is_named_once(
    cluster, client, tmp_path
) -> None:
    ledger_id, _ = client.call(one_shot_adds.create_handed_over, NewLedger())
    add(client, ledger_id, PAYLOADS[:3])
    how = {"since_last": True, "skip_unreadable": True, "engine": "local"}
    choice = LedgerChoice(ranges=((ledger_id, ledger_id + 1),))
    assert export_ledgers(cluster.uri, choice, str(tmp_path), **how).copied_entries == 3
    client.call(lambda client: client.delete_ledger(LedgerId(ledger_id)))
    (gone,) = export_ledgers(cluster.uri, choice, str(tmp_path), **how).unreadable
    assert gone.ledger_id == ledger_id
    assert "later entries, if any, are lost" in gone.why
    again = export_ledgers(cluster.uri, choice, str(tmp_path), **how)
    assert not again.unreadable, "it was named once"
    assert again.entries == 3, "and its entries stay"


def test_a_target_without_a_file_has_no_line_to_read_it(cluster, client, tmp_path) -> None:
    report = export_ledgers(cluster.uri, [write(client, [])], str(tmp_path))
    assert (report.files, report.read_back) == (0, None)


def test_recover_closes_first(cluster, client, spark, tmp_path) -> None:
    ledger_id, _ = client.call(one_shot_adds.create_handed_over, NewLedger())
    add(client, ledger_id, [b"a", b"b"])
    report = export_ledgers(cluster.uri, [ledger_id], str(tmp_path), spark=spark, recover=True)
    assert (report.ledgers[0].state, report.ledgers[0].last_entry) == ("closed", 1)


def test_exporting_again_changes_nothing(cluster, client, spark, tmp_path) -> None:
    ledger_id = write(client, PAYLOADS[:20])
    first = export_ledgers(cluster.uri, [ledger_id], str(tmp_path), spark=spark)
    stamps = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.parquet")}
    second = export_ledgers(cluster.uri, [ledger_id], str(tmp_path), spark=spark)
    assert second.ledgers[0] == attrs.evolve(first.ledgers[0], unchanged=True)
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.parquet")} == stamps
    export_ledgers(cluster.uri, [ledger_id], str(tmp_path), spark=spark, again=True)
    assert read_back(spark, tmp_path) == {ledger_id: PAYLOADS[:20]}
    next(tmp_path.rglob("*.parquet")).unlink()
    export_ledgers(cluster.uri, [ledger_id], str(tmp_path), spark=spark)
    assert read_back(spark, tmp_path) == {ledger_id: PAYLOADS[:20]}


def two_exported(cluster: Cluster, client: BlockingClient, target: Path) -> tuple[int, int]:
    lost, kept = write(client, PAYLOADS[:20]), write(client, PAYLOADS[:5])
    export_ledgers(cluster.uri, [lost, kept], str(target), engine="local")
    return lost, kept


def sentence(report: ExportReport) -> str:
    said = view_of(ExportReport).sentence
    assert said is not None
    return said(report)


def test_a_missing_file_is_copied_again_and_counted_once(cluster, client, tmp_path) -> None:
    lost, kept = two_exported(cluster, client, tmp_path)
    next((tmp_path / f"ledger={lost}").iterdir()).unlink()
    again = export_ledgers(cluster.uri, [lost, kept], str(tmp_path), engine="local")
    assert (again.files, again.entries, again.copied_ledgers) == (2, 25, 1)
    assert again.damaged_ledgers == (lost,)
    assert f"; with missing or changed files before: {lost}" in sentence(again)
    export_ledgers(cluster.uri, [lost, kept], str(tmp_path), engine="local", again=True)
    assert len(list(tmp_path.rglob("*.parquet"))) == 2


def test_lost_files_of_ledgers_that_are_not_looked_at_are_named_and_not_counted(
    cluster, client, tmp_path
) -> None:
    lost, kept = two_exported(cluster, client, tmp_path)
    path = next((tmp_path / f"ledger={lost}").iterdir())
    path.unlink()
    report = export_ledgers(cluster.uri, [kept], str(tmp_path), engine="local", verify=True)
    assert (report.files, report.entries, report.verified_files) == (1, 5, 1)
    assert report.lost_files == (f"ledger={lost}/{path.name}",)
    assert f"missing or changed, and not counted: ledger={lost}/" in sentence(report)


SHARED = [("none", "parquet"), ("day", "parquet"), ("none", "delta")]


@pytest.mark.parametrize(("layout", "table_format"), SHARED)
@pytest.mark.parametrize("is_missing", [True, False])
def test_a_shared_file_that_is_damaged_is_copied_again_with_all_that_it_holds(
    cluster, client, tmp_path, layout, table_format, is_missing
) -> None:
    """The command is the one that the report names, without layout and format."""
    if table_format == "delta":
        pytest.importorskip("deltalake", reason="deltalake is not installed")
    grown, _ = client.call(one_shot_adds.create_handed_over, NewLedger())
    add(client, grown, [b"one"])
    others = [write(client, PAYLOADS[:n]) for n in (5, 7)]
    words = ("export", grown, *others, "--to", tmp_path)
    with runner(cluster) as run:
        run(*words, "--partition-by", layout, "--format", table_format)
        add(client, grown, [b"two"])
        kept = write(client, PAYLOADS[:3])
        run("export", grown, kept, "--to", tmp_path)
        (path,) = tmp_path.glob("run=1/**/*.parquet")
        (sound,) = tmp_path.glob("run=2/**/*.parquet")
        if is_missing:
            path.unlink()
        else:
            os.truncate(path, 100)
        add(client, grown, [b"three"])
        found = run("export", kept, "--to", tmp_path, "--verify", "-o", "json", ok=False)
        if table_format == "parquet":
            assert (found.status, len(found.json["lost_files"])) == (1, 1)
        found = run(*words, "--verify", "-o", "json", ok=False)
        assert (found.status, found.error["name"]) == (1, "BK-EARLIER-FILES")
        copying = f"export {grown} --to {tmp_path} --again"
        assert f"`bkctl {copying}`" in found.error["hint"]
        planned = run(*copying.split(), "--dry-run").out
        assert "copy what shared files hold again: 18 entries" in planned
        assert "replace 3 Parquet files" in planned
        told = run(*copying.split(), "-o", "json").json
        assert (told["copied_entries"], told["copied_ledgers"]) == (3 + 5 + 7 + 3, 4)
        whole = run("export", *others, grown, kept, "--to", tmp_path, "--verify", "-o", "json").json
        assert (whole["verified_files"], whole["entries"]) == (1, 18)
    if table_format == "parquet":
        assert [path.exists(), sound.exists()] == [False, False]
        found = sorted((row["ledger_id"], row["payload"]) for row in rows_in(tmp_path))
        assert [payload for number, payload in found if number == others[1]] == sorted(PAYLOADS[:7])
        assert len(found) == 18


def rows_in(target: Path) -> list[dict]:
    from pyarrow import parquet

    return parquet.ParquetDataset(target, partitioning=None).read().to_pylist()


def test_of_shared_files_only_the_damaged_ones_are_copied_again(cluster, client, tmp_path) -> None:
    for _ in range(2):
        ids = [write(client, PAYLOADS[:5]) for _ in range(2)]
        report = export_ledgers(cluster.uri, ids, str(tmp_path), layout="none", engine="local")
    (kept,) = tmp_path.glob("run=1/*.parquet")
    next(tmp_path.glob("run=2/*.parquet")).unlink()
    lost = export_ledgers(cluster.uri, LedgerChoice(meta=(("a", b"b"),)), str(tmp_path))
    assert len(lost.lost_files) == 1
    assert f"copy again with `bkctl export {ids[0]} --to {tmp_path} --again`" in sentence(lost)
    report = export_ledgers(cluster.uri, ids[1:], str(tmp_path), engine="local")
    assert (report.files, report.entries, report.copied_ledgers) == (2, 20, 2)
    assert report.damaged_ledgers == (ids[1],)
    assert kept.exists()


def test_a_shared_file_stays_where_one_of_its_ledgers_is_gone(cluster, client, tmp_path) -> None:
    ids = [write(client, PAYLOADS[:5]) for _ in range(2)]
    export_ledgers(cluster.uri, ids, str(tmp_path), layout="none", engine="local")
    (path,) = tmp_path.glob("run=1/*.parquet")
    os.truncate(path, 100)
    client.call(lambda connected: connected.delete_ledger(ids[1]))
    with pytest.raises(ExportReadError, match=f"without all their ledgers: .*ledger {ids[1]}"):
        export_ledgers(cluster.uri, ids[:1], str(tmp_path), engine="local")
    assert [one.name for one in tmp_path.rglob("*.parquet")] == [path.name]


def test_verify_reads_the_earlier_files_of_its_ledgers_too(cluster, client, tmp_path) -> None:
    changed, kept = two_exported(cluster, client, tmp_path)
    sound = export_ledgers(cluster.uri, [changed], str(tmp_path), engine="local", verify=True)
    assert "verified 1 file; 1 file of earlier exports has none of these ledgers" in sentence(sound)
    path = next((tmp_path / f"ledger={changed}").iterdir())
    content = bytearray(path.read_bytes())
    content[40:44] = b"\xff\xff\xff\xff"
    path.write_bytes(content)
    with pytest.raises(ExportVerifyError, match=f"ledger={changed}/"):
        export_ledgers(cluster.uri, [changed, kept], str(tmp_path), engine="local", verify=True)


def test_damage_to_any_byte_of_a_file_is_found(cluster, client, tmp_path) -> None:
    """Also in the columns that have no digest of their own, and in the footer."""
    ledger_id, _ = two_exported(cluster, client, tmp_path)
    files = open_files(str(tmp_path))
    recorded = load_tree(files).files_of([ledger_id])[ledger_id]
    path = tmp_path / recorded[0].path
    sound = path.read_bytes()
    for at in range(0, len(sound), 7):
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 0x55]) + sound[at + 1 :])
        assert damaged_files(files, recorded, files.sizes()), at
    path.write_bytes(sound)
    assert not damaged_files(files, recorded, files.sizes())
    of_older_version = [attrs.evolve(file, file_crc32c=None) for file in recorded]
    assert not damaged_files(files, of_older_version, files.sizes())
    assert [type(one).from_json(one.to_json()) for one in of_older_version] == of_older_version
    assert type(recorded[0]).from_json(of_older_version[0].to_json()[:6]) == of_older_version[0]


@pytest.mark.parametrize("edit", ["forgets a ledger", "has a later end", "has a file twice"])
def test_records_that_were_edited_stop_the_export(cluster, client, tmp_path, edit) -> None:
    """Rows would be missing, or come twice."""
    ledger_id, _ = two_exported(cluster, client, tmp_path)
    (path,) = (tmp_path / "_bkctl").glob("run-*.json")
    record = json.loads(path.read_text())
    (ledger,) = (one for one in record["ledgers"] if one[0] == ledger_id)
    if edit == "forgets a ledger":
        record["ledgers"].remove(ledger)
    elif edit == "has a later end":
        ledger[1] += 5
    else:
        file = record["files"][0]
        record["files"].append([f"{file[0]}.copy", *file[1:]])
    path.write_text(json.dumps(record))
    before = {one: one.stat().st_size for one in tmp_path.rglob("*")}
    with pytest.raises(ManifestError, match="contradict each other: ledger"):
        export_ledgers(cluster.uri, [ledger_id], str(tmp_path), engine="local")
    assert {one: one.stat().st_size for one in tmp_path.rglob("*")} == before


SELECTIONS = ["ids", "--log", "--meta", "--since-last"]


@pytest.mark.parametrize("selection", SELECTIONS)
def test_verify_names_all_damaged_files_of_the_selected_ledgers(
    cluster, client, tmp_path, selection
) -> None:
    """Also where nothing is new; the line that the error gives copies these files again."""
    tag = f"damaged{selection}"
    by_meta = ["--meta", f"application={tag}"]
    with runner(cluster) as run:
        if selection == "--log":
            run("log", "create", tag)
            for _ in range(4):
                run("log", "append", tag, "one")
        custom = {"application": tag.encode()}
        ids = [write(client, PAYLOADS[:5], custom=custom) for _ in range(4)]
        chosen = {
            "ids": ids,
            "--log": ["--log", tag],
            "--meta": by_meta,
            "--since-last": ["--since-last", *by_meta],
        }[selection]
        verified = ("export", *chosen, "--to", tmp_path, "--verify")
        first = run(*verified, "-o", "json").json
        assert first["verified_files"] == 4
        ids = [one["ledger_id"] for one in first["ledgers"]]
        sound = run(*verified, "-o", "json").json
        assert (sound["verified_files"], sound["copied_ledgers"]) == (4, 0)
        changed, cut, missing, _ = (next((tmp_path / f"ledger={i}").iterdir()) for i in ids)
        content = bytearray(changed.read_bytes())
        content[40:44] = b"\xff\xff\xff\xff"
        changed.write_bytes(content)
        os.truncate(cut, 100)
        missing.unlink()
        found = run(*verified, "-o", "json", ok=False)
        assert (found.status, found.error["name"]) == (1, "BK-EARLIER-FILES")
        assert (found.json["verified_files"], len(found.json["lost_files"])) == (1, 3)
        assert "3 files of earlier exports" in found.error["error"]
        for path in (changed, cut, missing):
            assert path.relative_to(tmp_path).as_posix() in found.error["error"]
        copying = f"export {ids[0]} {ids[1]} {ids[2]} --to {tmp_path} --again"
        assert copying in found.error["hint"]
        run(*copying.split())
        assert run(*verified, "-o", "json").json["verified_files"] == 4


def test_without_verify_lost_files_are_named_too_and_the_status_is_1(
    cluster, client, tmp_path
) -> None:
    tag = b"lost files"
    ids = [write(client, PAYLOADS[:5], custom={"application": tag}) for _ in range(12)]
    words = ("export", "--meta", f"application={tag.decode()}", "--to", tmp_path)
    with runner(cluster) as run:
        run(*words)
        for ledger_id in ids[:2]:
            next((tmp_path / f"ledger={ledger_id}").iterdir()).unlink()
        lost = run(*words, ok=False)
        assert lost.status == 1
        assert "2 files of earlier exports missing or changed" in lost.err
        two = lost.out
        assert [f"ledger={ledger_id}/" in two for ledger_id in ids[:3]] == [True, True, False]
        for ledger_id in ids[2:]:
            next((tmp_path / f"ledger={ledger_id}").iterdir()).unlink()
        twelve = run(*words, ok=False).out
        assert sum(f"ledger={ledger_id}/" in twelve for ledger_id in ids) == 10
        assert "and 2 more" in twelve


def test_shared_files_that_are_damaged_fail_verify_alike(cluster, client, tmp_path) -> None:
    ids = [write(client, PAYLOADS[:5]) for _ in range(2)]
    words = ("export", *ids, "--to", tmp_path, "--partition-by", "none")
    with runner(cluster) as run:
        run(*words)
        (path,) = tmp_path.glob("run=1/*.parquet")
        path.unlink()
        found = run(*words, "--verify", "-o", "json", ok=False)
    assert (found.status, found.error["name"]) == (1, "BK-EARLIER-FILES")
    assert f"run=1/{path.name} is missing" in found.error["error"]
    assert f"`bkctl export {ids[0]} --to {tmp_path} --again`" in found.error["hint"]


@pytest.mark.parametrize("layout", ["ledger", "none"])
@pytest.mark.parametrize("verify", [["--verify"], []])
def test_damaged_files_of_earlier_exports_do_not_stop_new_entries(
    tmp_path, layout: str, verify: list[str]
) -> None:
    """A line of cron goes on, whether a ledger is new or has grown."""
    from pyarrow import parquet

    target = tmp_path / "out"
    alone = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}
    words = ("export", "--since-last", "--to", target, "--partition-by", layout, *verify)
    with (
        local_cluster(tmp_path / "bk", 1) as own,
        BlockingClient(own.uri) as client,
        runner(own) as run,
    ):
        closed = write(client, PAYLOADS[:5], **alone)
        grown, _ = client.call(one_shot_adds.create_handed_over, NewLedger(**alone))
        add(client, grown, [b"lost"])
        run(*words)
        for path in target.rglob("*.parquet"):
            path.unlink()
        add(client, grown, [b"new"])
        new = write(client, PAYLOADS[:3], **alone)
        for copied in (2, 0):
            done = run(*words, "-o", "json", ok=False)
            assert (done.status, done.error["name"]) == (1, "BK-EARLIER-FILES")
            told = done.json
            assert (told["copied_ledgers"], told["verified_files"] is None) == (copied, not verify)
        found = parquet.ParquetDataset(target, partitioning=None).read().to_pylist()
    rows = sorted((row["ledger_id"], row["payload"]) for row in found)
    is_copied_again = layout == "ledger" and not verify
    open_rows = [(grown, b"lost"), (grown, b"new")][0 if is_copied_again else 1 :]
    assert rows == sorted([*open_rows, *((new, payload) for payload in PAYLOADS[:3])])
    assert any(f"ledger={closed}/" in path or layout == "none" for path in told["lost_files"])


ENGINES = ["local", "spark"]


@pytest.mark.parametrize("engine", ENGINES)
def test_many_small_ledgers_share_files(cluster, client, spark, tmp_path, engine) -> None:
    from pyarrow import parquet

    async def write_all(connected) -> list[int]:
        found = []
        for n in range(300):
            writer = await connected.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
            await writer.add_many([b"%d of %d" % (i, n) for i in range(5)])
            await writer.close()
            found.append(writer.ledger_id)
        return found

    ids = client.call(write_all)
    session = spark if engine == "spark" else None
    report = export_ledgers(
        cluster.uri, ids, str(tmp_path), layout="none", verify=True, spark=session, engine=engine
    )
    assert (report.entries, report.files) == (1500, 1)
    (path,) = tmp_path.glob("run=1/*.parquet")
    file = parquet.ParquetFile(path)
    assert file.metadata.row_group(0).column(0).statistics.min == ids[0]
    assert file.read(columns=["ledger_id"]).column(0).to_pylist() == sorted(ids * 5)
    assert file.metadata.serialized_size < 8000, "the footer does not grow with the ledgers"
    more = write(client, PAYLOADS[:3])
    both = export_ledgers(cluster.uri, [*ids, more], str(tmp_path), layout="none", spark=session)
    assert (both.entries, both.files) == (1503, 2)
    assert [ledger.unchanged for ledger in both.ledgers].count(False) == 1
    found = {
        row["run"]: row["count"]
        for row in spark.read.parquet(str(tmp_path)).groupBy("run").count().collect()
    }
    assert found == {1: 1500, 2: 3}
    everything = LedgerChoice()
    with pytest.raises(ForeignFilesError, match="--since-last writes no shared file again"):
        export_ledgers(cluster.uri, everything, str(tmp_path), again=True, skip_unreadable=True)
    with pytest.raises(ForeignFilesError, match=r"arranged by none.*leave out --partition-by"):
        export_ledgers(cluster.uri, [more], str(tmp_path), layout="ledger")


def test_the_local_engine_needs_no_spark_and_spreads_over_processes(
    cluster, client, spark, tmp_path
) -> None:
    ledger_id = write(client, [bytes([n % 256]) * 1000 for n in range(30_000)])
    seen = []
    report = export_ledgers(
        cluster.uri,
        [ledger_id],
        str(tmp_path),
        engine="local",
        progress=lambda done, *total: seen.append((done, *total)),
    )
    assert (report.entries, report.payload_bytes) == (30_000, 30_000_000)
    assert report.files > 1
    assert seen[-1][1:] == (30_000, 30_000_000)
    rows = spark.read.parquet(str(tmp_path)).selectExpr("sum(entry_id)", "sum(length(payload))")
    assert tuple(rows.first()) == (30_000 * 29_999 // 2, 30_000_000)


def test_what_the_export_did_not_make_is_never_touched(cluster, client, spark, tmp_path) -> None:
    ledger_id = write(client, PAYLOADS[:5])
    mine = tmp_path / f"ledger={ledger_id}" / "_notes.txt"
    mine.parent.mkdir()
    mine.write_text("mine")
    export_ledgers(cluster.uri, [ledger_id], str(tmp_path), spark=spark)
    export_ledgers(cluster.uri, [ledger_id], str(tmp_path), spark=spark, again=True)
    assert read_back(spark, tmp_path) == {ledger_id: PAYLOADS[:5]}
    assert mine.read_text() == "mine"
    stranger = tmp_path / "ledger=987" / "part-0.parquet"
    stranger.parent.mkdir()
    stranger.write_bytes(b"PAR1")
    with pytest.raises(ForeignFilesError, match=r"ledger=987/part-0.parquet"):
        export_ledgers(cluster.uri, [ledger_id], str(tmp_path), spark=spark, again=True)
    assert stranger.read_bytes() == b"PAR1"


def test_two_exports_to_one_place_do_not_meet(cluster, client, spark, tmp_path) -> None:
    ledger_id = write(client, PAYLOADS[:5])
    with (
        open_files(str(tmp_path)).locked(),
        pytest.raises(ExportBusyError, match=r"another export writes to /[^:]*$"),
    ):
        export_ledgers(cluster.uri, [ledger_id], str(tmp_path), spark=spark)
    export_ledgers(cluster.uri, [ledger_id], str(tmp_path), spark=spark)


def test_staging_of_a_killed_export_is_swept(cluster, client, spark, tmp_path) -> None:
    left = tmp_path / f"{STAGING_PREFIX}left" / "ledger=1" / "part.parquet"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half")
    export_ledgers(cluster.uri, [write(client, [b"x"])], str(tmp_path), spark=spark)
    assert not list(tmp_path.glob(f"{STAGING_PREFIX}*"))


def test_only_what_is_new_is_copied(cluster, client, spark, tmp_path) -> None:
    growing, _ = client.call(one_shot_adds.create_handed_over, NewLedger())
    add(client, growing, [b"a", b"b"])
    target = str(tmp_path)
    first = export_ledgers(cluster.uri, [growing], target, spark=spark)
    files = set(tmp_path.rglob("*.parquet"))
    add(client, growing, [b"c"])
    second = export_ledgers(cluster.uri, [growing], target, spark=spark)
    assert files < set(tmp_path.rglob("*.parquet"))
    assert (first.entries, second.entries, second.payload_bytes) == (2, 3, 3)
    assert read_back(spark, tmp_path) == {growing: [b"a", b"b", b"c"]}


def damage(client: BlockingClient, ledger_id: int, entry_id: int) -> str:
    """Have the ledger's only bookie hold an entry whose digest is wrong; return the bookie."""
    (bookie_id,) = metadata_of(client, ledger_id).fragments[-1].ensemble
    packet = bytearray(digester(DigestType.CRC32C, b"").package(ledger_id, entry_id, 0, 9, b"bad"))
    packet[-1] ^= 1
    request = AddRequest(ledger_id, entry_id, master_key(b""), bytes(packet))
    host, _, port = bookie_id.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(v2.encode_request(request))
        assert len(connection.recv(100)) == 28
    return bookie_id


def metadata_of(client: BlockingClient, ledger_id: int):
    async def read(connected):
        return (await connected.read_metadata(ledger_id)).value

    return client.call(read)


def write_open(client: BlockingClient, payloads: list[bytes]) -> int:
    """Write a ledger of one copy and leave it open, without a writer."""

    async def leave(connected) -> int:
        writer = await connected.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
        await writer.add_many(payloads)
        writer.abandon()
        return writer.ledger_id

    return client.call(leave)


def close_at(client: BlockingClient, ledger_id: int, last: int) -> None:
    async def close(connected) -> None:
        stored = await connected.read_metadata(ledger_id)
        closed = attrs.evolve(
            stored.value, state=LedgerState.CLOSED, last_entry_id=last, length=100
        )
        await connected.store.write_ledger(ledger_id, closed, stored.version)

    client.call(close)


@pytest.mark.parametrize("how", ["damaged", "missing"])
def test_an_unreadable_entry_fails_the_export_and_leaves_nothing(
    cluster, client, spark, tmp_path, how
) -> None:
    good = write(client, PAYLOADS[:5])
    bad = write_open(client, PAYLOADS[:5])
    bookie_id = damage(client, bad, 3) if how == "damaged" else None
    close_at(client, bad, 4 if how == "damaged" else 5)
    export_ledgers(cluster.uri, [good], str(tmp_path), spark=spark)
    entry = 3 if how == "damaged" else 5
    with pytest.raises(ExportReadError, match=rf"entry {entry} of ledger {bad}\b") as caught:
        export_ledgers(cluster.uri, [good, bad], str(tmp_path), spark=spark, again=True)
    if bookie_id is not None:
        assert bookie_id in str(caught.value)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["_bkctl", f"ledger={good}"]
    assert read_back(spark, tmp_path) == {good: PAYLOADS[:5]}


def test_a_ledger_that_is_not_there_stops_it_before_anything(cluster, spark, tmp_path) -> None:
    with pytest.raises(NoSuchLedgerError):
        export_ledgers(cluster.uri, [987654], str(tmp_path / "new"), spark=spark)
    assert not (tmp_path / "new").exists()


def test_a_target_that_cannot_be_written_is_a_clear_error(cluster, client, spark, tmp_path) -> None:
    ledger_id = write(client, [b"x"])
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ExportError, match="file"):
        export_ledgers(cluster.uri, [ledger_id], str(tmp_path / "file"), spark=spark)
    with pytest.raises(ExportError, match="/proc/new cannot be written"):
        export_ledgers(cluster.uri, [ledger_id], "/proc/new", spark=spark)


def test_ledgers_are_a_data_source(cluster, client, spark) -> None:
    from bkctl.commands.export.spark.datasource import LedgerSource

    ledger_id = write(client, PAYLOADS)
    session = spark.newSession()  # The others' finds the source without this.
    session.dataSource.register(LedgerSource)
    frame = (
        session.read.format("bookkeeper")
        .option("uri", cluster.uri)
        .option("ledgers", str(ledger_id))
        .load()
    )
    rows = frame.orderBy("entry_id").select("payload").collect()
    assert [bytes(row["payload"]) for row in rows] == PAYLOADS


@pytest.fixture(scope="module")
def run(cluster: Cluster) -> Iterator[Run]:
    with runner(cluster) as running:
        yield running


class TestCommand:
    """``bkctl export`` as it is typed."""

    def test_it_tells_counts_and_how_to_read_back(self, cluster, client, tmp_path) -> None:
        ledger_id = write(client, PAYLOADS)
        words = ["-u", cluster.uri, "export", str(ledger_id), "--to", str(tmp_path), "-o", "json"]
        done = subprocess.run([*BKCTL, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert (told["entries"], told["files"]) == (len(PAYLOADS), 1)
        assert told["payload_bytes"] == sum(map(len, PAYLOADS))
        assert told["ledgers"][0]["ledger_id"] == str(ledger_id)
        assert "\r" not in done.stderr

    def test_stdout_is_no_target(self, run: Run, tmp_path, monkeypatch) -> None:
        monkeypatch.chdir(tmp_path)
        done = run("export", "--since-last", "--to", "-", ok=False)
        assert (done.status, list(tmp_path.iterdir())) == (2, [])
        assert "`bkctl ledger read LEDGER_ID -o jsonl` prints entries" in done.err

    def test_quiet_exports_print_only_problems(self, run: Run, client, tmp_path) -> None:
        """A line in cron sends no mail, whether or not entries are new."""
        ledger_id = write(client, PAYLOADS)
        words = ("-q", "export", str(ledger_id), "--to", str(tmp_path / "out"))
        for _ in range(2):
            done = run(*words, "-o", "table")
            assert (done.out, done.err) == ("", "")
        assert run(*words, "-o", "json").json["entries"] == len(PAYLOADS)
        (path,) = tmp_path.glob("out/ledger=*/*.parquet")
        path.write_bytes(b"")
        done = run(*words, "--verify", "-o", "table", ok=False)
        assert done.status == 1
        assert done.out.startswith("1 file of earlier exports missing or changed")

    def test_an_unknown_ledger_is_3(self, run: Run, tmp_path) -> None:
        done = run("export", "987654", "--to", tmp_path / "out", ok=False)
        assert done.status == 3
        assert "987654" in done.err
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize("option", ["--log", "--topic"])
    def test_no_directory_is_made_for_what_does_not_exist(
        self, run: Run, tmp_path, option: str
    ) -> None:
        done = run("export", "--since-last", option, "nowhere", "--to", tmp_path / "out", ok=False)
        assert done.status == 3
        assert not (tmp_path / "out").exists()

    def test_ranges_without_a_ledger_are_3(self, run: Run, tmp_path) -> None:
        done = run("export", "987654-987660", "--to", tmp_path / "out", ok=False)
        assert (done.status, done.out) == (3, "")
        assert "no ledger in 987654-987660" in done.err
        assert not (tmp_path / "out").exists()

    def test_the_totals_are_those_of_the_target(self, run: Run, client, tmp_path) -> None:
        from pyarrow import parquet

        tag = {"application": b"test_the_totals"}
        write(client, PAYLOADS[:7], custom=tag)
        chosen = ("--since-last", "--meta", "application=test_the_totals", "--to", str(tmp_path))
        run("export", *chosen)
        write(client, PAYLOADS[:5], custom=tag)
        told = run("export", *chosen, "-o", "json").json
        files = [parquet.ParquetFile(path) for path in tmp_path.glob("ledger=*/*.parquet")]
        assert told["entries"] == sum(file.metadata.num_rows for file in files) == 12
        assert told["files"] == len(files) == 2
        assert (told["copied_entries"], told["copied_ledgers"]) == (5, 1)
        again = run("export", *chosen, "-o", "table")
        assert f"nothing is new; the directory {tmp_path} now holds 12 entries" in again.out

    def test_a_dry_run_plans_what_the_export_does(self, run: Run, client, tmp_path) -> None:
        ids = [str(write(client, [b"abc"] * n)) for n in (5, 7)]
        target = tmp_path / "out"
        words = (*ids, "--to", str(target), "-o", "json")
        planned = run("export", *words, "--dry-run").json
        assert planned["would"] == [
            f"export ledger {ids[0]} to {target}: 5 entries, 15 B",
            f"export ledger {ids[1]} to {target}: 7 entries, 21 B",
        ]
        assert not target.exists()
        run("export", *words)
        kept = sorted(target.rglob("*"))
        assert run("export", *words, "--dry-run").json["would"] == []
        assert sorted(target.rglob("*")) == kept

    def test_a_dry_run_fences_nobody(self, run: Run, client, tmp_path) -> None:
        ledger_id, _ = client.call(one_shot_adds.create_handed_over, NewLedger())
        add(client, ledger_id, [b"a", b"b"])
        words = (str(ledger_id), "--recover", "--to", str(tmp_path), "--dry-run", "-o", "json")
        assert run("export", *words).json["would"] == [
            f"close ledger {ledger_id}, which fences its writer",
            f"export ledger {ledger_id} to {tmp_path}: 2 entries, 2 B",
        ]
        add(client, ledger_id, [b"c"])

    @pytest.mark.parametrize(
        ("gone", "install"),
        [("pyspark", "pip install '.[spark]' in the checkout"), ("pyarrow", "pip install pyarrow")],
    )
    def test_without_its_parts_it_says_how_to_get_them(
        self, cluster, client, tmp_path, gone, install
    ) -> None:
        code = f"import sys; sys.modules[{gone!r}] = None; from bkctl.__main__ import main; main()"
        words = [
            "export",
            str(write(client, [b"x"])),
            "--to",
            str(tmp_path),
            "--master",
            "local[1]",
        ]
        arguments = ["-u", cluster.uri, *words]
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
        )
        assert done.returncode == 4
        assert install in done.stderr

    def test_ctrl_c_leaves_nothing_behind(self, cluster, client, tmp_path) -> None:
        ledger_id = write(client, [bytes(1000)] * 20000)
        target = tmp_path / "out"
        process = subprocess.Popen(
            [*BKCTL, "-u", cluster.uri, "export", str(ledger_id), "--to", str(target)],
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        until(lambda: list(target.glob("_bkctl-tmp-*")), "nothing is staged", timeout_s=90)
        os.killpg(process.pid, signal.SIGINT)
        _, told = process.communicate(timeout=60)
        assert process.returncode == 130, told
        assert list(target.iterdir()) == []

    def test_since_last_is_a_line_for_cron(self, run: Run, client, tmp_path) -> None:
        target = tmp_path / "out"
        words = ["--since-last", "--to", str(target), "--partition-by", "day"]
        with (
            local_cluster(tmp_path / "other", 1) as other,
            BlockingClient(other.uri) as writer,
            runner(other) as run_other,
        ):
            alone = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}
            ids = [write(writer, PAYLOADS[:5], **alone) for _ in range(2)]
            for more, expected in (["--verify"], ids), ([], []), (["--verify"], ids):
                told = run_other("export", *words, *more, "-o", "json").json
                assert [int(one["ledger_id"]) for one in told["ledgers"]] == expected
        assert list(target.glob("run=1/day=2*/*.parquet"))
        done = run("export", write(client, [b"x"]), *words[1:], ok=False)
        assert done.status == 4
        assert "holds an export of cluster" in done.err

    def test_stdout_is_not_a_target(self, run: Run) -> None:
        done = run("export", "0", "--to", "-", ok=False)
        assert (done.status, "`bkctl ledger read LEDGER_ID -o jsonl`" in done.err) == (2, True)

    def test_without_a_pause_no_export_begins(self, run: Run, tmp_path) -> None:
        done = run("export", "--follow", "0", "--to", tmp_path / "out", ok=False)
        assert done.status == 2
        assert "give a time above 0" in done.err
        assert not (tmp_path / "out").exists()

    def test_since_last_without_a_choice_takes_the_one_of_earlier_exports(
        self, run: Run, client, tmp_path
    ) -> None:
        to = ("--to", str(tmp_path / "out"), "-o", "json")

        def add(tag: bytes) -> int:
            return write(client, PAYLOADS[:2], custom={"application": tag})

        def exported(*words: str) -> list[int]:
            told = run("export", *words, *to).json
            return [int(one["ledger_id"]) for one in told["ledgers"]]

        first, other = add(b"chosen"), add(b"another one")
        assert exported("--meta", "application=chosen") == [first]
        second = add(b"chosen")
        assert exported("--since-last") == [second]
        assert exported(str(other)) == [other], "by hand, which later runs do not follow"
        third = add(b"chosen")
        words = ("export", "--since-last", *to[:2])
        planned = run(*words, "--dry-run").out
        assert f"export ledger {third} to" in planned
        assert planned.count("export ledger") == 1
        told = run(*words, "-o", "table").out
        assert "of 1 ledger" in told
        assert "chosen as before: --meta application=chosen" in told
        fourth = add(b"another one")
        assert exported("--since-last", "--meta", "application=another one") == [fourth]
        fifth = add(b"another one")
        told = run(*words, "-o", "table").out
        assert "chosen as before: --meta 'application=another one'" in told
        assert (tmp_path / "out" / f"ledger={fifth}").is_dir()
        chosen = "--meta", "application=chosen", "--created-before", "2099-01-01"
        made = run(*words, *chosen, "-o", "table").out
        again = run(*words, "-o", "table").out
        assert ["newer ledgers are not exported" in one for one in (made, again)] == [False, True]

    @pytest.mark.parametrize("table_format", ["parquet", "delta"])
    def test_a_choice_without_new_entries_is_noted_too(
        self, run: Run, client, tmp_path, table_format: str
    ) -> None:
        """The next run without a choice exported all ledgers of the cluster."""
        write(client, PAYLOADS[:2])
        tag = f"first {table_format}"
        words = ("export", "--since-last", "--to", str(tmp_path / "out"), "-o", "json")

        def exported(*choice: str) -> list[int]:
            return [int(one["ledger_id"]) for one in run(*words, *choice).json["ledgers"]]

        assert exported("--meta", f"application={tag}", "--format", table_format) == []
        assert exported() == []
        first = write(client, PAYLOADS[:2], custom={"application": tag.encode()})
        assert exported() == [first]
        assert exported("--meta", f"application=no {tag}") == []
        write(client, PAYLOADS[:2], custom={"application": tag.encode()})
        assert exported() == []

    @pytest.mark.parametrize("layout", ["ledger", "none"])
    def test_since_last_goes_on_past_a_ledger_that_cannot_be_read(
        self, tmp_path, layout: str
    ) -> None:
        from pyarrow import parquet

        target = tmp_path / "out"
        words = ["--since-last", "--to", str(target), "--partition-by", layout, "--verify"]
        alone = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}
        with (
            local_cluster(tmp_path / "bk", 1) as own,
            BlockingClient(own.uri) as client,
            runner(own) as run,
        ):
            good = [write(client, PAYLOADS[:5], **alone)]
            bad = write_open(client, PAYLOADS[:5])
            close_at(client, bad, 5)
            good.append(write(client, PAYLOADS[:3], **alone))
            for copied in (2, 0):
                done = run("export", *words, "-o", "json", ok=False)
                assert done.status == 8, done.err
                told = done.json
                assert [int(one["ledger_id"]) for one in told["ledgers"]] == good
                assert told["copied_ledgers"] == copied
                (left,) = told["unreadable"]
                assert (int(left["ledger_id"]), "entry 5" in left["why"]) == (bad, True)
            close_at(client, bad, 4)
            run("export", *words, "-o", "json")
            found = parquet.ParquetDataset(target, partitioning=None).read().to_pylist()
        rows = sorted((row["ledger_id"], row["entry_id"], row["payload"]) for row in found)
        whole = {good[0]: PAYLOADS[:5], bad: PAYLOADS[:5], good[1]: PAYLOADS[:3]}
        assert rows == sorted((i, n, p) for i, some in whole.items() for n, p in enumerate(some))

    @pytest.mark.parametrize("layout", ["ledger", "none"])
    def test_since_last_goes_on_past_a_ledger_that_ends_before_what_was_exported(
        self, tmp_path, layout: str
    ) -> None:
        alone = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}
        words = ["--since-last", "--to", str(tmp_path / "out"), "--partition-by", layout]
        with (
            local_cluster(tmp_path / "bk", 1) as own,
            BlockingClient(own.uri) as client,
            runner(own) as run,
        ):
            shorter, _ = client.call(one_shot_adds.create_handed_over, NewLedger(**alone))
            add(client, shorter, [b"a", b"b", b"c"])
            run("export", *words)
            close_at(client, shorter, 0)
            write(client, PAYLOADS[:5], **alone)
            planned = run("export", *words, "--dry-run").out
            assert f"leave out ledger {shorter}: " in planned
            for copied in (1, 0):
                done = run("export", *words, "-o", "json", ok=False)
                assert done.status == 8, done.err
                assert done.json["copied_ledgers"] == copied
                (left,) = done.json["unreadable"]
                assert "closed at entry 0, and was exported up to 2" in left["why"]
            again = run("export", shorter, *words[1:], ok=False)
        assert again.status == 1
        assert "was exported up to 2" in again.err

    @pytest.mark.parametrize("layout", ["ledger", "none"])
    def test_since_last_names_a_ledger_that_was_deleted_and_made_again(
        self, cluster, client, run: Run, tmp_path, layout: str
    ) -> None:
        """Its earlier rows may be the last copy: they stay until its id is given."""
        from pyarrow import parquet

        target = tmp_path / "out"
        ledger_id = 10**12 + int(layout == "none")
        chosen = f"{ledger_id}-{ledger_id + 8}"
        words = ("export", "--since-last", chosen, "--to", target, "--partition-by", layout)

        def make(payload: bytes) -> None:
            write(client, [payload], ledger_id=LedgerId(ledger_id))

        def payloads() -> list[bytes]:
            return parquet.ParquetDataset(target, partitioning=None).read()["payload"].to_pylist()

        make(b"first")
        run(*words)
        client.call(lambda one: one.delete_ledger(LedgerId(ledger_id)))
        assert run(*words, "-o", "json").json["ledgers"] == []
        make(b"second")
        for verify in ([], ["--verify"]):
            done = run(*words, *verify, "-o", "json", ok=False)
            assert done.status == 8, done.err
            (left,) = done.json["unreadable"]
            assert f"another ledger with the id {ledger_id} was exported" in left["why"]
            assert payloads() == [b"first"]
        again = run("export", ledger_id, *words[3:], ok=layout == "ledger")
        assert payloads() == [b"second" if again.status == 0 else b"first"]

    def test_ledgers_are_chosen_as_in_the_source(self, run: Run, client, tmp_path, capfd) -> None:
        marked = write(client, PAYLOADS[:2], custom={"job": b"daily"})
        other = write(client, PAYLOADS[:2])
        for words, expected in (
            ([f"{marked}-{other}"], [marked, other]),
            ([f"{marked}-{other}", "--meta", "job=daily"], [marked]),
            (["--meta", "job=daily", "--created-after", "2020-01-01"], [marked]),
            (["--meta", "job=daily", "--created-before", "2020-01-01"], []),
            ([str(other), "--state", "closed"], [other]),
        ):
            place = tmp_path / str(len(list(tmp_path.iterdir())))
            told = run("export", *words, "--to", place, "-o", "json")
            assert [int(one["ledger_id"]) for one in told.json["ledgers"]] == expected, words
            assert ("no ledger matches the selection" in told.err) == (not expected), words
        for words, why in (
            (["--log", "a", "--topic", "b"], "exclude each other"),
            (["1-5", "--recover"], "give the ids"),
            (["9-1"], "ends before it begins"),
            (["--created-after", "yesterday"], "yesterday"),
            (["--created-after", "2", "--created-before", "1"], "no time lies between"),
            (["--created-after", "2", "--created-before", "2"], "no time lies between"),
        ):
            done = run("export", *words, "--to", tmp_path / "no", ok=False)
            assert (done.status, why in done.err + capfd.readouterr().err) == (2, True), words
