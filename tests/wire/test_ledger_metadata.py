"""Ledger metadata in its three forms."""

from __future__ import annotations

import time

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import strategies
from tests.wire.vectors import by_name, load
from wire.codes import DigestType, LedgerState
from wire.errors import MetadataFormatError
from wire.ledger_metadata import (
    Fragment,
    LedgerMetadata,
    decode_metadata,
    encode_for_write,
    encode_metadata,
)

MAGIC = b"BookieMetadataFormatVersion\t"


def as_java_tells(m: LedgerMetadata) -> dict:
    return {
        "format_version": m.format_version,
        "ensemble_size": m.ensemble_size,
        "write_quorum": m.write_quorum,
        "ack_quorum": m.ack_quorum,
        "state": m.state.name,
        "ctime": -1 if m.ctime_ms is None else m.ctime_ms,
        "ctoken": m.creator_token,
        "length": m.length,
        "last_entry_id": -1 if m.last_entry_id is None else m.last_entry_id,
        "digest_type": m.digest_type and m.digest_type.name,
        "password_hex": None if m.password is None else m.password.hex(),
        "segments": [
            {"first_entry_id": f.first_entry_id, "ensemble": list(f.ensemble)} for f in m.fragments
        ],
        "custom_metadata": {key: value.hex() for key, value in m.custom.items()},
    }


def serialised() -> list[dict]:
    return [v for v in load("metadata.json")["ledger_metadata_serialised"] if "hex" in v]


@pytest.mark.parametrize("vector", serialised(), ids=by_name)
def test_we_write_the_bytes_java_writes(vector) -> None:
    data = bytes.fromhex(vector["hex"])
    assert encode_metadata(decode_metadata(data)) == data


@pytest.mark.parametrize("vector", serialised(), ids=by_name)
def test_we_read_what_java_wrote(vector) -> None:
    told = as_java_tells(decode_metadata(bytes.fromhex(vector["hex"])))
    expected = dict(vector["decoded"])
    if "custom_metadata" in expected:
        pairs = expected["custom_metadata"]
        expected["custom_metadata"] = {pair["key"]: pair["value_hex"] for pair in pairs}
    if expected.get("digest_type") == "HMAC":
        expected["digest_type"] = "MAC"  # The name it has in Java's interface.
    assert {key: told[key] for key in expected} == expected


@pytest.mark.parametrize("vector", load("metadata.json")["ledger_metadata_parsed"], ids=by_name)
def test_we_accept_and_refuse_as_java_does(vector) -> None:
    data = bytes.fromhex(vector["hex"])
    if not vector["accepted"]:
        with pytest.raises(MetadataFormatError):
            decode_metadata(data, ctime_ms=1111)
        return
    found = decode_metadata(data, ctime_ms=1111)
    assert as_java_tells(found) == vector["java_decoded"]


@pytest.mark.parametrize(
    "vector",
    [v for v in load("metadata.json")["ledger_metadata_parsed"] if "java_rewrite_hex" in v],
    ids=by_name,
)
def test_a_rewrite_is_the_bytes_java_rewrites(vector) -> None:
    found = decode_metadata(bytes.fromhex(vector["hex"]), ctime_ms=1111)
    rewritten = encode_metadata(attrs.evolve(found, creator_token=0))
    assert rewritten.hex() == vector["java_rewrite_hex"]


@pytest.mark.parametrize(
    "vector",
    [v for v in load("metadata.json")["znodes"] if v["kind"] == "ledger metadata"],
    ids=by_name,
)
def test_the_nodes_of_a_live_cluster_are_read_and_written_alike(vector) -> None:
    found = decode_metadata(bytes.fromhex(vector["hex"]))
    encode_for_write(found)
    assert encode_metadata(found).hex() == vector["hex"]


@pytest.mark.parametrize("format_version", [1, 2, 3])
@given(data=st.data())
def test_metadata_survives_the_store(format_version, data) -> None:
    metadata = data.draw(strategies.ledger_metadata(format_version=format_version))
    encode_for_write(metadata)
    assert decode_metadata(encode_metadata(metadata)) == metadata


@given(strategies.ledger_metadata(), st.data())
def test_cut_metadata_is_a_typed_error_unless_whole(metadata, data) -> None:
    stored = encode_metadata(metadata)
    with pytest.raises(MetadataFormatError):
        decode_metadata(stored[: data.draw(st.integers(0, len(stored) - 1))])


@given(
    st.binary(max_size=80), st.sampled_from([b"", MAGIC, *(MAGIC + b"%d\n" % n for n in (1, 2, 3))])
)
def test_garbage_is_a_typed_error_or_metadata(tail, head) -> None:
    try:
        decode_metadata(head + tail)
    except MetadataFormatError:
        return


def sample(**changes) -> LedgerMetadata:
    base = LedgerMetadata(
        ensemble_size=2,
        write_quorum=2,
        ack_quorum=1,
        fragments=(Fragment(0, ("a:1", "b:1")), Fragment(10, ("a:1", "c:1"))),
        digest_type=DigestType.CRC32C,
        password=b"secret",
    )
    return attrs.evolve(base, **changes)


CLOSED = {"state": LedgerState.CLOSED, "length": 5}


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"ack_quorum": 0}, "ack quorum below 1"),
        ({"ack_quorum": 3}, "ack quorum above"),
        ({"write_quorum": 3}, "write quorum above"),
        ({"fragments": ()}, "no fragment"),
        ({"fragments": (Fragment(1, ("a:1", "b:1")),)}, "first fragment"),
        ({"fragments": (Fragment(0, ("a:1", "a:1")),)}, "twice"),
        ({"fragments": (Fragment(0, ("a:1",)),)}, "another size"),
        ({"fragments": (Fragment(0, ("a:1", "b c")),)}, "not a valid bookie id"),
        ({"fragments": (Fragment(0, ("a:1", "b" * 2000)),)}, "not a valid bookie id"),
        ({"ensemble_size": 0, "write_quorum": 0, "ack_quorum": 0}, "ensemble size 0"),
        ({"ensemble_size": 2**31 - 1}, "ensemble size 2147483647"),
        ({"password": None}, "digest type without password"),
        ({"password": None, "digest_type": None}, "no password"),
        ({"state": LedgerState.CLOSED}, "last entry"),
        ({"last_entry_id": 4}, "last entry"),
        ({**CLOSED, "last_entry_id": 8}, "beyond the end"),
        ({**CLOSED, "last_entry_id": -2}, "last entry below"),
        ({**CLOSED, "last_entry_id": 10, "length": -1}, "negative length"),
        ({"format_version": 4}, "format 4"),
        ({"format_version": 1}, "ack quorum of its own"),
        ({"custom": {"\ud800": b""}}, "ledger metadata"),
        ({"creator_token": 2**63}, "ledger metadata"),
        ({"ctime_ms": 2**63, "store_ctime": True}, "ledger metadata"),
        ({**CLOSED, "last_entry_id": 2**63}, "ledger metadata"),
    ],
)
def test_what_java_could_not_handle_is_not_written(changes, rule) -> None:
    with pytest.raises(MetadataFormatError, match=rule):
        encode_for_write(sample(**changes))


def test_a_fragment_is_found_among_many_without_looking_at_each() -> None:
    fragments = tuple(Fragment(number * 10, ("a:1",)) for number in range(100_000))
    found = sample(ensemble_size=1, write_quorum=1, fragments=fragments)
    began_s = time.process_time()
    for number in range(1000):
        entry_id = number * 1000 + 5
        assert found.fragment_of(entry_id).first_entry_id == entry_id - 5
        assert found.fragment_end(entry_id) == entry_id + 4
    assert time.process_time() - began_s < 1
    assert found.fragment_of(-1).first_entry_id == 0
    assert found.fragment_end(-1) == -1
    assert found.fragment_end(10**9) is None


def test_a_refusal_does_not_repeat_a_long_name() -> None:
    with pytest.raises(MetadataFormatError) as raised:
        encode_for_write(sample(fragments=(Fragment(0, ("a:1", "b" * 10**6)),)))
    assert len(str(raised.value)) < 200


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_format_1_may_end_its_lines_in_any_way(line_end) -> None:
    lines = ("2", "2", "7", "0\ta:1\tb:1", "4\tCLOSED")
    found = decode_metadata(MAGIC + b"1\n" + line_end.join(lines).encode())
    assert (found.ack_quorum, found.length, found.last_entry_id) == (2, 7, 4)


@pytest.mark.parametrize("number", ["1_0", " 2", "\u0662", "", "9" * 20])
def test_format_1_has_plain_numbers(number) -> None:
    for at in range(5):
        lines = ["2", "2", "7", "0\ta:1\tb:1", "4\tCLOSED"]
        lines[at] = "\t".join((number, *lines[at].split("\t")[1:]))
        with pytest.raises(MetadataFormatError):
            decode_metadata(MAGIC + b"1\n" + "\n".join(lines).encode())


@pytest.mark.parametrize("colon", [":", " :", " # 1\n :", ": # x\n "])
def test_an_enum_by_number_is_refused_wherever_the_comment_stands(colon) -> None:
    text = 'quorumSize: 1 ensembleSize: 1 segment { ensembleMember: "state:1" firstEntryId: 0 }'
    good = MAGIC + f"2\n{text} state{colon} OPEN  # state: 1".encode()
    assert decode_metadata(good).all_bookies() == {"state:1"}
    with pytest.raises(MetadataFormatError, match="by number"):
        decode_metadata(good.replace(b"OPEN", b"1"))


def test_good_metadata_may_be_written() -> None:
    encode_for_write(sample())
    encode_for_write(sample(**CLOSED, last_entry_id=9))


def test_an_entry_belongs_to_the_last_fragment_that_starts_at_or_before_it() -> None:
    m = sample()
    assert [m.fragment_of(e).first_entry_id for e in (0, 9, 10, 2**62)] == [0, 0, 10, 10]
    assert m.ensemble == ("a:1", "c:1")
    assert m.all_bookies() == {"a:1", "b:1", "c:1"}


def test_the_password_is_not_shown() -> None:
    assert "secret" not in repr(sample())
