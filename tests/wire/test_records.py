"""The small stored records."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import strategies
from tests.wire.vectors import by_name, load, wire_vectors
from wire.errors import FormatError
from wire.ids import is_valid_bookie_id
from wire.records.bookie_service_info import (
    BookieServiceInfo,
    decode_service_info,
    encode_service_info,
)
from wire.records.cookie import Cookie, cookie_differences, decode_cookie, encode_cookie
from wire.records.entry_list import _GROUP, _LIST_HEADER, decode_entry_list, encode_entry_runs
from wire.records.layout import LAYOUT_FACTORIES, Layout, decode_layout, encode_layout
from wire.records.underreplication import (
    REPAIR_LAYOUT,
    AuditorVote,
    LockData,
    UnderreplicatedMark,
    decode_check_time,
    decode_lock,
    decode_mark,
    decode_repair_layout,
    decode_vote,
    encode_check_time,
    encode_lock,
    encode_mark,
    encode_repair_layout,
    encode_vote,
)

METADATA = load("metadata.json")


def znode(pattern: str) -> list[dict]:
    return [z for z in METADATA["znodes"] if re.search(pattern, z["path"])]


# Cookies


@pytest.mark.parametrize("vector", METADATA["cookies"], ids=by_name)
def test_cookies_are_javas(vector) -> None:
    data, told = bytes.fromhex(vector["hex"]), vector["decoded"]
    cookie = decode_cookie(data)
    assert cookie.bookie_id == told["bookie_host"]
    assert cookie.journal_dirs == told["journal_dir"]
    assert list(cookie.ledger_dirs) == told["ledger_dirs"]
    assert (cookie.index_dirs and list(cookie.index_dirs)) == told["index_dirs"]
    assert cookie.instance_id == told["instance_id"]
    assert encode_cookie(cookie) == data


@pytest.mark.parametrize(
    "vector",
    # Java reads any newer version as 5; ours refuses it (storage.md, section 2).
    [v for v in METADATA["cookie_parsing"] if v["name"] != "v6"],
    ids=by_name,
)
def test_cookies_are_accepted_and_refused_as_java_does(vector) -> None:
    try:
        decode_cookie(vector["text"].encode())
        accepted = True
    except FormatError:
        accepted = False
    assert accepted is vector["accepted"]


@pytest.mark.parametrize("version", ["6", "99", "2", "-5", "5_0", "\u0665", ""])
def test_a_cookie_of_no_version_we_know_is_refused(version) -> None:
    body = 'bookieHost: "a:1" journalDir: "/j" ledgerDirs: "1\\t/l"'
    with pytest.raises(FormatError):
        decode_cookie(f"{version}\n{body}\n".encode())
    assert decode_cookie(f"+5 \n{body}".encode()).ledger_dirs == ("/l",)


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_a_cookie_of_version_3_has_plain_lines(line_end) -> None:
    cookie = decode_cookie(line_end.join(("3", "h:1", "/j", "2\t/a\t/b", "")).encode())
    assert cookie == Cookie("h:1", "/j", ("/a", "/b"), layout_version=3)
    with pytest.raises(FormatError):
        decode_cookie(b"3\nh:1\n/j")


@pytest.mark.parametrize("dirs", ["", "/a", "2\\t/a", "0\\t/a", "x\\t/a"])
def test_a_cookie_that_miscounts_its_directories_is_damaged(dirs) -> None:
    with pytest.raises(FormatError, match="lists directories"):
        decode_cookie(f'5\nbookieHost: "a" journalDir: "b" ledgerDirs: "{dirs}"'.encode())


@given(strategies.cookies)
def test_cookies_survive_the_store(cookie) -> None:
    assert decode_cookie(encode_cookie(cookie)) == cookie


@given(st.binary(max_size=60), st.sampled_from([b"", b"3\n", b"4\n", b"5\n", b"99\n"]))
def test_garbage_is_a_typed_error_or_a_cookie(tail, head) -> None:
    try:
        decode_cookie(head + tail)
    except FormatError:
        return


BASE = Cookie("h:1", "/j", ("/a", "/b"), None, "id")
VERIFICATION = {
    "same": (BASE, BASE),
    "order": (Cookie("h:1", "/j", ("/b", "/a"), None, "id"), BASE),
    "new superset": (Cookie("h:1", "/j", ("/a", "/b", "/c"), None, "id"), BASE),
    "fewer": (Cookie("h:1", "/j", ("/a",), None, "id"), BASE),
    "idx added equal to ledger": (Cookie("h:1", "/j", ("/a", "/b"), ("/a", "/b"), "id"), BASE),
    "idx added different": (Cookie("h:1", "/j", ("/a", "/b"), ("/i",), "id"), BASE),
    "idx in cookie, none in conf": (BASE, Cookie("h:1", "/j", ("/a", "/b"), ("/a", "/b"), "id")),
    "journal added": (Cookie("h:1", "/j,/k", ("/a", "/b"), None, "id"), BASE),
    "inst null vs set": (Cookie("h:1", "/j", ("/a", "/b"), None, None), BASE),
    "inst set vs null": (BASE, Cookie("h:1", "/j", ("/a", "/b"), None, None)),
}


@pytest.mark.parametrize("vector", METADATA["cookie_verification"], ids=lambda v: v["case"])
def test_cookies_fit_as_java_says(vector) -> None:
    ours, theirs = VERIFICATION[vector["case"]]
    assert (not cookie_differences(ours, theirs)) is vector["exact"]
    assert (not cookie_differences(ours, theirs, superset=True)) is vector["superset"]


def test_a_difference_names_field_and_both_values() -> None:
    (difference,) = cookie_differences(BASE, Cookie("h:1", "/k", ("/a", "/b"), None, "id"))
    assert (difference.field, difference.configured, difference.found) == (
        "journal directories",
        "/j",
        "/k",
    )


# Registrations and layouts


@pytest.mark.parametrize(
    "vector", [v for v in METADATA["registrations"] if v.get("decoded") and v["hex"]], ids=by_name
)
def test_registrations_are_javas(vector) -> None:
    info = decode_service_info(bytes.fromhex(vector["hex"]), "x:1")
    told = vector["decoded"]
    assert [e.id for e in info.endpoints] == [e["id"] for e in told["endpoints"]]
    assert [(e.host, e.port, e.protocol) for e in info.endpoints] == [
        (e["host"], e["port"], e["protocol"]) for e in told["endpoints"]
    ]
    assert dict(info.properties) == told["properties"]
    assert encode_service_info(info) == bytes.fromhex(vector["hex"])


def test_an_empty_registration_means_the_address_in_the_id() -> None:
    endpoint = decode_service_info(b"", "10.9.9.9:3181").endpoint()
    assert (endpoint.host, endpoint.port) == ("10.9.9.9", 3181)
    for bookie_id in ("hostonly", "h:", ":1", "h:x"):
        with pytest.raises(FormatError):
            decode_service_info(b"", bookie_id)


@pytest.mark.parametrize("data", ["32020a00", "ffffff"])
def test_a_broken_registration_is_a_typed_error(data) -> None:
    with pytest.raises(FormatError):
        decode_service_info(bytes.fromhex(data), "x:1")


@given(strategies.service_infos)
def test_registrations_survive_the_store(info) -> None:
    assert decode_service_info(encode_service_info(info), "x:1") == info


def test_a_registration_may_have_no_endpoint_for_entries() -> None:
    assert BookieServiceInfo().endpoint() is None


@pytest.mark.parametrize("vector", METADATA["layout"], ids=lambda v: v.get("name") or v["text"])
def test_layouts_are_javas(vector) -> None:
    if "hex" in vector:
        data = bytes.fromhex(vector["hex"])
        layout = Layout(LAYOUT_FACTORIES[vector["name"]])
        assert (encode_layout(layout), decode_layout(data)) == (data, layout)
    elif vector["accepted"]:
        decode_layout(vector["text"].encode())
    else:
        with pytest.raises(FormatError):
            decode_layout(vector["text"].encode())


@pytest.mark.parametrize("valid", [True, False])
def test_bookie_ids_are_javas(valid) -> None:
    for bookie_id in METADATA["bookie_ids"]["valid" if valid else "invalid"]:
        assert is_valid_bookie_id(bookie_id) is valid, bookie_id


# Repair


@pytest.mark.parametrize("vector", znode(r"/urL\d+$"), ids=lambda v: v["path"])
def test_marks_and_locks_are_javas(vector) -> None:
    data = bytes.fromhex(vector["hex"])
    if "/locks/" in vector["path"]:
        assert encode_lock(decode_lock(data)) == data
    else:
        assert encode_mark(decode_mark(data)) == data


@pytest.mark.parametrize("vector", znode(r"/V_\d+$"), ids=lambda v: v["path"])
def test_votes_are_javas(vector) -> None:
    data = bytes.fromhex(vector["hex"])
    assert encode_vote(decode_vote(data)) == data


def test_the_layout_of_repair_is_javas() -> None:
    (vector,) = znode("/underreplication/LAYOUT$")
    data = bytes.fromhex(vector["hex"])
    assert decode_repair_layout(data) == REPAIR_LAYOUT
    assert encode_repair_layout(REPAIR_LAYOUT) == data


def test_check_times_are_javas() -> None:
    vector = METADATA["ctime_nodes"]
    data = bytes.fromhex(vector["hex"])
    assert encode_check_time(vector["value"]) == data
    assert decode_check_time(data) == vector["value"]
    assert decode_check_time(b"") is None


@given(strategies.marks)
def test_marks_survive_the_store(mark) -> None:
    assert decode_mark(encode_mark(mark)) == mark


@given(st.text(max_size=20))
def test_names_survive_the_store(name) -> None:
    assert decode_lock(encode_lock(LockData(name))) == LockData(name)
    assert decode_vote(encode_vote(AuditorVote(name))) == AuditorVote(name)


@given(st.binary(max_size=40))
def test_garbage_is_a_typed_error(data) -> None:
    for decode in (
        decode_mark,
        decode_lock,
        decode_vote,
        decode_repair_layout,
        decode_check_time,
        decode_layout,
        decode_entry_list,
    ):
        try:
            decode(data)
        except FormatError:
            continue


def test_an_empty_mark_is_legal() -> None:
    assert decode_mark(b"") == UnderreplicatedMark()


@pytest.mark.parametrize(
    "text", ["2\nx:1_0", "2\nx: 1", "\u0662\nx:1", "2 \nx:1", "2\nx:1:", "2\n:"]
)
def test_a_layout_with_loose_numbers_is_refused(text) -> None:
    with pytest.raises(FormatError):
        decode_layout(text.encode())


# Entry lists


def encode_entry_list(entries: Iterable[int]) -> bytes:
    return encode_entry_runs((entry, 1) for entry in entries)


@pytest.mark.parametrize("vector", wire_vectors("availability"), ids=by_name)
def test_entry_lists_are_javas(vector) -> None:
    entries = vector["inputs"]["entries"]
    data = bytes.fromhex(vector["hex"])
    assert encode_entry_list(dict.fromkeys(entries)) == data
    found = decode_entry_list(data)
    assert list(found) == sorted(set(entries))
    assert found.count == len(set(entries))
    assert all(entry in found for entry in entries)


@given(st.sets(st.integers(0, 200)))
def test_entry_lists_survive_the_wire(entries) -> None:
    found = decode_entry_list(encode_entry_list(sorted(entries)))
    assert list(found) == sorted(entries)
    assert {e for e in range(-1, 202) if e in found} == entries


def striped(count: int, start: int = 0) -> Iterator[int]:
    """Give what one of three bookies has with a write quorum of 2."""
    return (start + entry for entry in range(count) if entry % 3)


def test_the_list_of_a_long_striped_ledger_is_short() -> None:
    data = encode_entry_list(striped(900_000))
    assert len(data) < 1000
    found = decode_entry_list(data)
    assert found.count == 600_000
    assert list(found) == list(striped(900_000))


def test_a_long_list_has_periods_only_where_they_save_much() -> None:
    rest = [2_000_000 + entry * entry * 3 for entry in range(5000)]
    pairs = [10**15 + 10 * (entry // 2) ** 2 + 3 * (entry % 2) for entry in range(1000)]
    entries = [*striped(900_000), *rest, *pairs]
    data = encode_entry_list(dict.fromkeys(entries))
    found = decode_entry_list(data)
    assert list(found) == sorted(set(entries))
    assert sum(1 for group in found.groups if group[3]) == 1


def test_a_list_that_fits_is_as_javas() -> None:
    groups = decode_entry_list(encode_entry_list(striped(3 * 100_000))).groups
    assert len(groups) == 100_000
    assert not any(group[3] for group in groups)


def test_entries_without_order_make_no_list_without_end() -> None:
    scattered = (entry * 20 + entry % 5 * (entry % 3) for entry in count())
    with pytest.raises(FormatError, match="more than 200000 groups"):
        encode_entry_list(scattered)


def test_periods_are_honoured() -> None:
    header = _LIST_HEADER.pack(0, 1)
    found = decode_entry_list(header + _GROUP.pack(2, 12, 3, 5))
    assert list(found) == [2, 3, 4, 7, 8, 9, 12, 13, 14]
    assert found.count == 9
    assert [e for e in range(20) if e in found] == list(found)
    without_gaps = decode_entry_list(header + _GROUP.pack(2, 12, 5, 5))
    assert [e for e in range(20) if e in without_gaps] == list(range(2, 17))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        _LIST_HEADER.pack(1, 0),
        _LIST_HEADER.pack(0, 1),
        _LIST_HEADER.pack(0, -1),
        _LIST_HEADER.pack(0, 1) + _GROUP.pack(5, 4, 1, 1),
        _LIST_HEADER.pack(0, 1) + _GROUP.pack(5, 9, 1, 0),
        _LIST_HEADER.pack(0, 1) + _GROUP.pack(5, 5, 0, 0),
        _LIST_HEADER.pack(0, 1) + _GROUP.pack(-1, -1, 1, 0),
        _LIST_HEADER.pack(0, 1) + _GROUP.pack(0, 2**63 - 1, 1, 1),
        _LIST_HEADER.pack(0, 1) + _GROUP.pack(0, 9, 4, 3),
        _LIST_HEADER.pack(0, 1) + _GROUP.pack(0, 10, 1, 3),
    ],
)
def test_a_broken_entry_list_is_a_typed_error(data) -> None:
    with pytest.raises(FormatError):
        decode_entry_list(data)
