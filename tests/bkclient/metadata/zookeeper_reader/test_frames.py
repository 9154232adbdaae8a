"""ZooKeeper's frames, by kazoo's word for what they are."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kazoo.protocol import serialization as kazoo

from bkclient.metadata.zookeeper_reader import frames
from wire.errors import FormatError

PATHS = st.text(min_size=1, max_size=40).filter(lambda text: text.isprintable())
STAT = struct.pack(">qqqqiiiqiiq", 1, 2, 1_700_000_000_123, 4, 5, 6, 7, 8, 9, 10, 11)


def framed(xid: int, request: object) -> bytes:
    body = struct.pack(">ii", xid, request.type) + bytes(request.serialize())  # type: ignore[attr-defined]
    return struct.pack(">i", len(body)) + body


@given(path=PATHS, xid=st.integers(1, 2**31 - 3))
def test_requests_are_the_bytes_that_kazoo_sends(path: str, xid: int) -> None:
    ours = frames.requests(
        xid, [frames.get_data(path), frames.get_children(path), frames.sync(path)]
    )
    assert ours == (
        framed(xid, kazoo.GetData(path, None))
        + framed(xid + 1, kazoo.GetChildren(path, None))
        + framed(xid + 2, kazoo.Sync(path))
    )


@given(zxid=st.integers(0, 2**63 - 1), timeout_ms=st.integers(0, 2**31 - 1))
def test_a_greeting_is_the_bytes_that_kazoo_sends(zxid: int, timeout_ms: int) -> None:
    body = bytes(kazoo.Connect(0, zxid, timeout_ms, 0, bytes(16), False).serialize())
    assert frames.greeting(zxid, timeout_ms) == struct.pack(">i", len(body)) + body


def test_credentials_are_the_bytes_that_kazoo_sends() -> None:
    assert frames.auth("digest", "me:x") == framed(-4, kazoo.Auth(0, "digest", "me:x"))


def part(operation: int, wrong: int = 0) -> bytes:
    return bytes(kazoo.MultiHeader(operation, operation == -1 and wrong == -1, wrong).serialize())


@given(paths=st.lists(PATHS, max_size=5), xid=st.integers(1, 2**31 - 3))
def test_values_asked_for_together_are_a_multi_of_reads(paths: list[str], xid: int) -> None:
    parts = [part(4, -1) + bytes(kazoo.GetData(path, None).serialize()) for path in paths]
    body = struct.pack(">ii", xid, 22) + b"".join(parts) + part(-1, -1)
    asked = frames.get_together(map(frames.get_data, paths))
    assert frames.requests(xid, [asked]) == struct.pack(">i", len(body)) + body


def together(answers: list[bytes | int]) -> bytes:
    """Return the answer of a server to reads in one request: values, or numbers of errors."""
    parts = [
        struct.pack(">i?ii", -1, False, answer, answer)
        if isinstance(answer, int)
        else part(4) + bytes(kazoo.write_buffer(answer)) + STAT
        for answer in answers
    ]
    return b"".join(parts) + part(-1, -1)


ANSWERS = st.lists(st.binary(max_size=20) | st.integers(-120, -2), max_size=5)


@given(answers=ANSWERS)
def test_answers_that_come_together_are_those_of_single_reads(answers: list[bytes | int]) -> None:
    found = frames.answers_together(together(answers), len(answers))
    assert [
        wrong or frames.data_of(payload) == (answer, 1_700_000_000_123, 5)
        for (wrong, payload), answer in zip(found, answers, strict=True)
    ] == [answer if isinstance(answer, int) else True for answer in answers]


@given(answers=ANSWERS, data=st.data())
def test_answers_together_that_are_cut_or_of_another_number_are_refused(
    answers: list[bytes | int], data: st.DataObject
) -> None:
    payload, count = together(answers), len(answers)
    wrong_count = data.draw(st.integers(0, 8).filter(lambda number: number != count))
    with pytest.raises(FormatError):
        frames.answers_together(payload, wrong_count)
    with pytest.raises(FormatError):
        frames.answers_together(payload[: data.draw(st.integers(0, len(payload) - 1))], count)
    with pytest.raises(FormatError):
        frames.answers_together(payload + b"\0", count)


@pytest.mark.parametrize("size", [-5, 2**30, 2**31 - 1])
def test_values_of_impossible_sizes_are_refused(size: int) -> None:
    payload = part(4) + struct.pack(">i", size) + b"value" + STAT + part(-1, -1)
    with pytest.raises(FormatError):
        frames.answers_together(payload, 1)


@given(value=st.binary(max_size=60))
def test_a_value_comes_with_its_creation_time_and_version(value: bytes) -> None:
    answer = bytes(kazoo.write_buffer(value)) + STAT
    assert frames.data_of(answer) == (value, 1_700_000_000_123, 5)


def test_no_value_is_an_empty_one() -> None:
    answer = bytes(kazoo.write_buffer(None)) + STAT
    assert frames.data_of(answer) == (b"", 1_700_000_000_123, 5)


@given(names=st.lists(PATHS, max_size=8))
def test_names_come_in_the_order_of_the_answer(names: list[str]) -> None:
    written = [bytes(kazoo.write_string(name)) for name in names]
    answer = struct.pack(">i", len(names)) + b"".join(written)
    assert frames.names_of(answer) == names


@given(st.data())
def test_an_answer_that_is_cut_is_refused(data: st.DataObject) -> None:
    value = bytes(kazoo.write_buffer(b"value")) + STAT
    with pytest.raises(FormatError):
        # What follows the version is not looked at.
        frames.data_of(value[: data.draw(st.integers(0, len(value) - len(STAT) + 35))])
    names = struct.pack(">i", 2) + bytes(kazoo.write_string("name")) * 2
    with pytest.raises(FormatError):
        frames.names_of(names[: data.draw(st.integers(0, len(names) - 1))])


@pytest.mark.parametrize("size", [-5, 2**30])
def test_names_of_impossible_sizes_are_refused(size: int) -> None:
    with pytest.raises(FormatError):
        frames.names_of(struct.pack(">ii", 1, size) + b"name")


def test_names_that_are_no_text_are_refused() -> None:
    with pytest.raises(FormatError, match="utf-8"):
        frames.names_of(struct.pack(">ii", 1, 1) + b"\xff")


def test_a_welcome_tells_the_time_out_and_a_cut_one_is_refused() -> None:
    assert frames.timeout_of(struct.pack(">iiq", 0, 4000, 1) + bytes(20)) == 4000
    with pytest.raises(FormatError):
        frames.timeout_of(bytes(8))
