"""``bkctl topic`` on a cluster in memory."""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
import math
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet
import pytest

from bkclient.topic.schema_decoding import Decoder
from bkctl.commands.export.spark.source_options import SourceOptionError, parse_options
from bkctl.exit_status import ExitStatus
from tests.bkclient.topic.broker import TOPIC, Broker
from tests.bkclient.topic.entries import batch, entry, in_txn, managed_ledger, pairs
from tests.bkctl.support.runner import Result
from tests.bkctl.support.world import run_in
from wire.pb import pulsar_pb2 as pb

NAME = "shop/eu/orders"


@pytest.fixture
def broker() -> Broker:
    made = Broker()
    made.topic(
        [entry(b"first", partitionKey="k", properties=pairs(a="b"), eventTime=5)],
        [batch(b"second", b"third"), entry(b"", nullValue=True)],
    )
    cursor = pb.ManagedCursorInfo(
        cursorsLedgerId=-1, markDeleteLedgerId=made.ledgers[0], markDeleteEntryId=0
    )
    made.put(f"{TOPIC.managed_ledger_path}/billing", cursor.SerializeToString())
    return made


def run(broker: Broker, *words: object, **how: Any) -> Result:
    return run_in(broker.world, "topic", *words, **how)


@pytest.mark.parametrize("command", ["peek", "export"])
def test_the_kinds_of_values_are_those_that_the_library_decodes(
    broker: Broker, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = run(broker, command, NAME, "FILE", "--decode", "xml", ok=False)
    assert refused.status == ExitStatus.USAGE
    kinds = ", ".join(map(repr, Decoder.KINDS))
    assert f"'xml' is not one of {kinds};" in capsys.readouterr().err
    with pytest.raises(SourceOptionError, match=f"is not one of {', '.join(Decoder.KINDS)}"):
        parse_options({"uri": "sqlite:x", "topic": NAME, "decode": "xml"})


def test_topics_are_listed_with_those_that_are_damaged(broker: Broker) -> None:
    broker.put("/managed-ledgers/shop/eu/persistent/broken", b"\xff")
    rows = run(broker, "list", "-o", "json").json["topics"]
    assert [(row["topic"], row["ledgers"]) for row in rows] == [
        ("persistent://shop/eu/broken", None), (str(TOPIC), 2),
    ]  # fmt: skip
    assert "ManagedLedgerInfo" in rows[0]["problem"]
    assert run(broker, "list", "--pattern", ".*/nothing", "-o", "id").out == ""
    assert run(broker, "list", "--pattern", "(", ok=False).status == ExitStatus.USAGE


def test_a_topic_is_shown_with_its_subscriptions(broker: Broker) -> None:
    (row,) = run(broker, "show", NAME, "-o", "json").json["topics"]
    assert row["ledgers"] == 2
    assert row["subscriptions"] == [{"name": "billing", "acknowledged": f"{broker.ledgers[0]}:0"}]
    assert "billing" in run(broker, "show", NAME).out


def test_its_ledgers_are_listed(broker: Broker) -> None:
    rows = run(broker, "ledgers", NAME, "-o", "json").json["ledgers"]
    assert [row["ledger_id"] for row in rows] == [str(one) for one in broker.ledgers]
    assert [row["state"] for row in rows] == ["closed", "current"]
    driver = pb.OffloadDriverMetadata(name="aws-s3")
    copied = pb.OffloadContext(complete=True, driverMetadata=driver)
    gone = pb.OffloadContext(complete=True, bookkeeperDeleted=True)
    broker.put(
        TOPIC.managed_ledger_path,
        managed_ledger(
            {"ledgerId": 1, "offloadContext": gone}, {"ledgerId": 2, "offloadContext": copied},
            {"ledgerId": 3},
        ),
    )  # fmt: skip
    rows = run(broker, "ledgers", NAME, "-o", "json").json["ledgers"]
    assert [(row["state"], row["offloaded_to"]) for row in rows] == [
        ("offloaded", None), ("closed", "aws-s3"), ("current", None),
    ]  # fmt: skip


def test_messages_are_printed_from_an_id_on(broker: Broker) -> None:
    rows = run(broker, "peek", NAME, "-o", "json").json["messages"]
    assert [base64.b64decode(row.get("payload_b64", "")) for row in rows] == [
        b"first", b"second", b"third", b"",
    ]  # fmt: skip
    assert rows[0]["key"] == "k"
    assert rows[0]["properties"] == {"a": "b"}
    assert [row["null"] for row in rows] == [False, False, False, True]
    start = f"{broker.ledgers[1]}:0:1"
    some = run(broker, "peek", NAME, "--from", start, "-n", "1", "--decode", "string", "-o", "json")
    (row,) = some.json["messages"]
    assert (row["message_id"], row["payload"]) == (start, "third")
    assert "second" in run(broker, "peek", NAME).out


def test_all_kinds_of_avro_are_printed(broker: Broker) -> None:
    """Bytes and times ended in an error, and NaN in what is no JSON."""
    date = {"type": "int", "logicalType": "date"}
    kinds = {"f": "double", "b": "bytes", "d": date, "i": "int", "n": ["null", "int"]}
    fields = [{"name": name, "type": kind} for name, kind in kinds.items()]
    schema = {"type": "record", "name": "R", "fields": fields}
    info = pb.SchemaInfo(
        schemaId="s", user="", type=5, schema=json.dumps(schema).encode(), timestamp=5,
        deleted=False,
    )  # fmt: skip
    stored = pb.SchemaEntry(schemaData=info.SerializeToString())
    place = pb.NestedPositionInfo(ledgerId=broker.ledger(stored.SerializeToString()), entryId=0)
    current = pb.SchemaIndexEntry(version=0, position=place, hash=b"")
    locator = pb.SchemaLocator(info=current, index=[current])
    broker.put(TOPIC.schema_path, locator.SerializeToString())
    out = io.BytesIO()
    sent = {"f": math.nan, "b": b"\1", "d": dt.date(2026, 1, 2), "i": 7, "n": None}
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), sent)
    broker.topic([entry(out.getvalue(), schemaVersion=bytes(8))])
    found = run(broker, "peek", NAME, "--decode", "avro", "-o", "jsonl")
    value = {"f": "NaN", "b": "AQ==", "d": "2026-01-02", "i": 7, "n": None}
    assert json.loads(found.out, parse_constant=pytest.fail)["payload"] == value
    assert "2026-01-02" in run(broker, "peek", NAME, "--decode", "avro").out


def test_what_cannot_be_is_refused(broker: Broker) -> None:
    assert run(broker, "peek", NAME, "--from", "x", ok=False).status == ExitStatus.USAGE
    assert run(broker, "show", "a/b", ok=False).status == ExitStatus.USAGE
    missing = run(broker, "ledgers", "shop/eu/nothing", ok=False)
    assert missing.status == ExitStatus.NOT_FOUND
    assert "bkctl topic list" in missing.err


def test_a_topic_is_exported_once_and_completely(broker: Broker, tmp_path: Path) -> None:
    path = tmp_path / "orders.parquet"
    assert "4 messages" in run(broker, "export", NAME, path).out
    table = pyarrow.parquet.read_table(path)
    assert table.column("value").to_pylist() == [b"first", b"second", b"third", None]
    assert table.column("properties").to_pylist()[0] == [("a", "b")]
    assert run(broker, "export", NAME, path, ok=False).status == ExitStatus.CONFLICT
    assert [one.name for one in tmp_path.iterdir()] == ["orders.parquet"]


def test_an_export_has_decoded_values_as_text(broker: Broker, tmp_path: Path) -> None:
    broker.topic([entry(b'{"a": 1.10}'), entry(b"", nullValue=True)])
    for kind in ("json", "string"):
        run(broker, "export", NAME, tmp_path / kind, "--decode", kind)
        table = pyarrow.parquet.read_table(tmp_path / kind)
        assert table.column("decoded").to_pylist() == ['{"a": 1.10}', None]
    broken = run(broker, "export", NAME, tmp_path / "x", "--decode", "avro", ok=False)
    assert "has no schema" in broken.err
    assert not (tmp_path / "x").exists()


def test_a_damaged_topic_leaves_no_file(broker: Broker, tmp_path: Path) -> None:
    broker.topic([entry(b"a")], [b"nonsense"])
    assert run(broker, "export", NAME, tmp_path / "x.parquet", ok=False).status != 0
    assert list(tmp_path.iterdir()) == []


def test_an_export_is_all_that_was_asked_for_or_none(broker: Broker, tmp_path: Path) -> None:
    """It had fewer messages, with status 0."""
    path, (first, second) = tmp_path / "x.parquet", broker.ledgers
    for behind in (f"{second}:3", f"{second}:2:1", f"{second + 1}:0"):
        found = run(broker, "export", NAME, path, "--to", behind, ok=False)
        assert found.status == ExitStatus.NOT_FOUND
        assert f"message {behind} is past the end {second}:2" in found.err
    assert "4 messages" in run(broker, "export", NAME, path, "--to", f"{second}:2").out
    path.unlink()
    broker.list_ledgers(second)
    found = run(broker, "export", NAME, path, "--from", f"{first}:0", ok=False)
    assert found.status == ExitStatus.NOT_FOUND
    assert f"ledger {first} of {TOPIC} was deleted" in found.err
    assert list(tmp_path.iterdir()) == []
    assert "3 messages" in run(broker, "export", NAME, path).out


def test_an_export_that_a_transaction_ends_says_so(broker: Broker, tmp_path: Path) -> None:
    broker.topic([entry(b"a"), in_txn(b"open", (1, 7)), entry(b"b")])
    found = run(broker, "export", NAME, tmp_path / "x.parquet")
    assert "1 message" in found.out
    assert f"read up to message {broker.ledgers[0]}:1, the first of a transaction" in found.err


def test_a_ledger_names_the_topic_that_it_belongs_to(broker: Broker) -> None:
    async def make() -> int:
        custom = {
            "application": b"pulsar",
            "component": b"managed-ledger",
            "pulsar/managed-ledger": b"shop/eu/persistent/or+ders",
        }
        writer = await broker.client.create_ledger(custom=custom)
        await writer.close()
        return writer.ledger_id

    made = broker.world.run(make())
    shown = run_in(broker.world, "ledger", "show", made, "-o", "json").json
    assert shown["topic"] == "persistent://shop/eu/or ders"
    other = run_in(broker.world, "ledger", "show", broker.ledgers[0], "-o", "json")
    assert "topic" not in other.json
