from hypothesis import given
from hypothesis import strategies as st

from wire.digest import ENTRY_HEADER, Entry, VerifiedEntries
from wire.entry_batch import EntryBatch, batches
from wire.ids import EntryId, LedgerId

L = LedgerId(7)


def batch_of(first: int, payloads: list[bytes]) -> EntryBatch:
    entries = entries_of(first, payloads)
    (batch,) = batches(L, first, VerifiedEntries.of(entries))
    return batch


def entries_of(first: int, payloads: list[bytes]) -> list[Entry]:
    return [
        Entry(L, EntryId(first + n), EntryId(first + n - 1), 10 * n, payload)
        for n, payload in enumerate(payloads)
    ]


@given(st.integers(0, 2**40), st.lists(st.binary(max_size=20), min_size=1, max_size=10))
def test_a_batch_holds_its_payloads_one_behind_the_other(first, payloads) -> None:
    batch = batch_of(first, payloads)
    assert (batch.ledger_id, batch.first_entry_id, len(batch)) == (L, first, len(payloads))
    assert batch.payloads == b"".join(payloads)
    assert [batch.payload(n) for n in range(len(batch))] == payloads
    assert batch.offsets[0] == 0
    assert batch.offsets[-1] == len(batch.payloads)
    assert batch.entry_ids == range(first, first + len(payloads))
    assert batch.last_entry_id == first + len(payloads) - 1


@given(st.integers(0, 2**40), st.lists(st.binary(max_size=20), min_size=1, max_size=10))
def test_its_entries_are_those_it_was_made_of(first, payloads) -> None:
    assert batch_of(first, payloads).entries() == entries_of(first, payloads)


def test_headers_are_as_in_packets() -> None:
    batch = batch_of(5, [b"a", b"b"])
    assert list(ENTRY_HEADER.iter_unpack(batch.headers)) == [(7, 5, 4, 0), (7, 6, 5, 10)]


def test_offsets_are_those_of_an_arrow_column() -> None:
    assert batch_of(0, [b"ab", b"", b"c"]).offsets.itemsize == 4
    assert batch_of(0, [b"ab", b"", b"c"]).offsets.tolist() == [0, 2, 2, 3]


class _Long(bytes):
    """A payload that says it is longer than memory."""

    def __len__(self) -> int:
        return 2**31 - 1


def test_what_offsets_just_reach_is_one_batch() -> None:
    found = VerifiedEntries.of(entries_of(5, [b"a", b""]))
    found.payloads[0] = _Long(b"a")
    (batch,) = batches(L, 5, found)
    assert batch.offsets.tolist() == [0, 2**31 - 1, 2**31 - 1]


def test_a_batch_says_what_it_is_without_its_bytes() -> None:
    text = repr(batch_of(5, [b"secret"] * 100))
    assert "first_entry_id=5" in text
    assert len(text) < 100


def test_what_offsets_do_not_reach_is_a_batch_for_each_entry() -> None:
    found = VerifiedEntries.of(entries_of(5, [b"a", b"b"]))
    found.payloads[0] = _Long(b"a")
    made = batches(L, 5, found)
    first = next(made)
    second = next(made)
    assert (first.entry_ids, second.entry_ids) == (range(5, 6), range(6, 7))
    assert list(ENTRY_HEADER.iter_unpack(first.headers)) == [(7, 5, 4, 0)]
    assert list(ENTRY_HEADER.iter_unpack(second.headers)) == [(7, 6, 5, 10)]
    assert next(made, None) is None
