"""The options of the data source."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkctl.commands.export.spark.source_options import (
    LATEST,
    OPTIONS,
    PositionOption,
    SourceOptionError,
    check_use,
    cursor_of,
    parse_options,
)
from bkctl.commands.export.task.ledger_selection import parse_ledgers
from wire.codes import LedgerState


def test_case_does_not_matter() -> None:
    for name in ("maxPartitionBytes", "maxpartitionbytes", "MAXPARTITIONBYTES"):
        assert parse_options({name: "64m"}).partition_bytes_max == 64 * 1024**2


def test_every_value_is_read() -> None:
    found = parse_options(
        {
            "ledgers": "1-100,205, 7",
            "state": "Closed",
            "createdAfter": "2026-01-02T03:04:05Z",
            "createdBefore": "1767323046000",
            "meta.Application": "pulsar",
            "includeOpen": "FALSE",
            "columns": "entry_id, payload",
            "failOnDataLoss": "false",
            "checkpointLocation": "/ignored",
        }
    )
    assert found.ledgers == ((1, 100), (205, 205), (7, 7))
    assert found.state is LedgerState.CLOSED
    assert (found.created_after_ms, found.created_before_ms) == (1767323045000, 1767323046000)
    assert found.meta == (("Application", b"pulsar"),)
    assert (found.include_open, found.fail_on_data_loss) == (False, False)
    assert found.columns == ("entry_id", "payload")
    log = parse_options({"log": "a", "startingPosition": "3:17", "endingPosition": "latest"})
    assert (log.starting, log.ending) == (PositionOption(None, 3, 17), LATEST)
    assert log.columns_there[:2] == ("log", "log_index")
    topic = parse_options({"topic": "a", "decode": "JSON", "endingTimestamp": "1767323046000"})
    assert topic.topic == "persistent://public/default/a"
    assert (topic.decode, topic.ending_ms) == ("json", 1767323046000)
    assert topic.columns_there[-1] == "decoded"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ledger": "1"}, r"unknown option 'ledger'; did you mean ledgers\?"),
        ({"maxPartitionByte": "1m"}, r"did you mean maxPartitionBytes\?"),
        ({"startTime": "0"}, r"did you mean startingTimestamp\?"),
        ({"startOffset": "0"}, r"did you mean startingPosition\?"),
        ({"metadataServiceUri": "zk://z/l"}, r"did you mean uri\?"),
        ({"subscribe": "a"}, r"did you mean topic\?"),
        ({"configFile": "a.conf"}, r"did you mean conf\?"),
        ({"meta.": "x"}, "unknown option"),
        (
            {"path": "events"},
            "'path': load, start and save take no path; .* log, ledgers or topic; ",
        ),
        ({"paths": '["a","b"]'}, "'paths': load, start and save take no path"),
        ({"log": "a", "endingPosition": "7"}, "='7': is not latest or a position such as 3:17"),
        (
            {"option.ledgers": "1", "owner": "me", "PROVIDER": "bookkeeper", "ledgers": "1"},
            r"of a catalog's table .* use load\(\), or create temporary view",
        ),
        ({"ledgers": "1-"}, r"ledgers='1-': '1-' is not a ledger id or a range"),
        ({"ledgers": "9-1"}, "is not a range of ledger ids"),
        ({"ledgers": str(2**63)}, "is not a range of ledger ids"),
        ({"ledgers": ""}, "is not a ledger id"),
        ({"state": "closing"}, r"did you mean closed\?"),
        ({"createdAfter": "yesterday"}, "createdAfter"),
        ({"startingPosition": "x", "log": "a"}, "a position such as 3:17"),
        ({"endingPosition": "earliest", "log": "a"}, "give latest or a position"),
        ({"startingPosition": "0:0"}, "needs the option log"),
        ({"log": "a", "ledgers": "1"}, "exclude each other"),
        ({"log": "a", "meta.k": "v"}, "exclude each other"),
        ({"log": "a", "recover": "true"}, "exclude each other"),
        ({"log": "a", "decode": "json"}, "needs the option topic"),
        ({"topic": "a", "topicsPattern": "b"}, "exclude each other"),
        ({"topic": "a", "state": "open"}, "exclude each other"),
        ({"topic": "a", "pushFilters": "true"}, "exclude each other"),
        ({"topic": "a/b"}, "is not a topic"),
        ({"topic": "a", "startingPosition": "1:0", "startingTimestamp": "5"}, "exclude each other"),
        (
            {"log": "a", "startingPosition": "3:1", "endingPosition": "3:0"},
            "startingPosition is after endingPosition",
        ),
        (
            {"topic": "a", "startingTimestamp": "6", "endingTimestamp": "5"},
            "startingTimestamp is after endingTimestamp",
        ),
        ({"createdAfter": "6", "createdBefore": "5"}, "createdAfter is after createdBefore"),
        ({"createdAfter": "5", "createdBefore": "5"}, "createdAfter is createdBefore: nothing"),
        ({"recover": "yes"}, "is not a boolean"),
        ({"recover": "true", "includeOpen": "false"}, "recover has no effect with includeOpen"),
        ({"minPartitions": "0"}, "above 0"),
        ({"maxPartitionBytes": "10"}, "below 1024"),
        ({"columns": "payload,payload"}, "each named once"),
        ({"columns": "payloads"}, r"did you mean payload\?; there are ledger_id"),
        ({"columns": "log_index"}, "no column 'log_index'"),
        ({"uri": " "}, "is empty"),
        ({"cursor": "../etl"}, "cannot be the name of a cursor"),
    ],
)
def test_what_cannot_be_is_refused(options, words) -> None:
    with pytest.raises(SourceOptionError, match=words):
        parse_options(options)


@pytest.mark.parametrize(
    ("options", "use", "words"),
    [
        ({"maxEntriesPerTrigger": "5"}, {}, "option maxEntriesPerTrigger .* give it to readStream"),
        ({"cursor": "etl"}, {}, "option cursor has no effect here"),
        ({"startingPosition": "latest", "log": "a"}, {}, "latest is for readStream"),
        ({"valueColumn": "v"}, {"is_stream": True}, "give it to write or writeStream"),
        ({"log": "a", "pushFilters": "true"}, {"is_stream": True}, "pushFilters .* it to read$"),
        ({"maxBytesPerTrigger": "1m"}, {"is_sink": True}, "give it to read or readStream"),
        ({"includeOpen": "false"}, {"is_sink": True}, "option includeOpen"),
        ({"meta.k": "v"}, {"is_sink": True}, r"option meta\.KEY"),
    ],
)
def test_an_option_without_effect_is_refused(options, use, words) -> None:
    with pytest.raises(SourceOptionError, match=words):
        check_use(parse_options(options), **use)


def test_options_with_an_effect_are_not_refused() -> None:
    where = {"uri": "zk://z/l", "log": "a", "failOnDataLoss": "false"}
    check_use(parse_options(where | {"startingPosition": "earliest", "includeOpen": "true"}))
    check_use(parse_options(where | {"cursor": "etl", "maxBytesPerTrigger": "1m"}), is_stream=True)
    check_use(parse_options(where | {"startingPosition": "3:1", "endingPosition": "3:1"}))
    check_use(parse_options(where | {"valueColumn": "v", "queryName": "q"}), is_sink=True)


@pytest.mark.parametrize(
    ("options", "cursor"),
    [
        ({"cursor": "etl", "queryName": "q"}, "etl"),
        ({"queryName": "daily", "checkpointLocation": "/c"}, "daily"),
        ({"QUERYNAME": "daily load"}, "spark-"),
        ({"checkpointLocation": "s3a://bucket/c"}, "spark-"),
        ({}, None),
    ],
)
def test_a_cursor_has_the_name_of_its_query(options, cursor) -> None:
    found = cursor_of(options, parse_options(options))
    assert found == cursor or (cursor and found.startswith(cursor) and len(found) == 22)


def test_names_are_each_once_and_in_the_manner_of_spark() -> None:
    names = [option.name for option in OPTIONS]
    assert len({name.lower() for name in names}) == len(names)
    assert all(name.isidentifier() and name[0].islower() and "_" not in name for name in names)


def test_a_long_range_is_no_list() -> None:
    assert parse_ledgers("0-9223372036854775807") == ((0, 2**63 - 1),)


def test_variables_name_the_cluster_if_no_option_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    profiles = tmp_path / "config.toml"
    profiles.write_text(
        'profile = "other"\n'
        '[profiles.named]\nservice-uri = "sqlite:///named.db"\n'
        '[profiles.other]\nservice-uri = "sqlite:///other.db"\n'
    )
    profiles.chmod(0o600)
    conf = tmp_path / "client.conf"
    conf.write_text("metadataServiceUri=sqlite:///conf.db\n")
    for name in ("BKCTL_SERVICE_URI", "BKCTL_CONF", "BOOKIE_CONF", "CLI_CONF", "BKCTL_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("BKCTL_CONFIG", str(profiles))

    def uri(**options: str) -> str:
        return parse_options(options).where()[0]

    assert uri() == "sqlite:///other.db"
    monkeypatch.setenv("CLI_CONF", str(conf))
    assert uri() == "sqlite:///conf.db"
    monkeypatch.setenv("BKCTL_PROFILE", "named")
    assert uri() == "sqlite:///named.db"
    monkeypatch.setenv("BKCTL_SERVICE_URI", "sqlite:///variable.db")
    assert uri() == "sqlite:///variable.db"
    assert uri(profile="other") == "sqlite:///other.db"
    assert uri(conf=str(conf)) == "sqlite:///conf.db"
    assert uri(uri="sqlite:///option.db") == "sqlite:///option.db"
