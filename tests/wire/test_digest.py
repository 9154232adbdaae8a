"""Entry packets and digests."""

from __future__ import annotations

import contextlib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import strategies
from tests.wire import values
from tests.wire.vectors import by_name, wire_vectors
from wire.codes import DigestType
from wire.digest import (
    Entry,
    EntryHeader,
    VerifiedEntries,
    digester,
    header,
    mac_key,
    master_key,
)
from wire.errors import DigestMismatchError, LocalProtocolError
from wire.frames.entry_packets import Packets


@pytest.mark.parametrize("vector", wire_vectors("master_key"), ids=by_name)
def test_keys_are_javas(vector) -> None:
    make = {"ledger": master_key, "mac": mac_key}[vector["inputs"]["pad"]]
    assert make(bytes.fromhex(vector["inputs"]["password"])).hex() == vector["hex"]


@pytest.mark.parametrize("vector", wire_vectors("entry_packet"), ids=by_name)
def test_entry_packets_are_javas(vector) -> None:
    i, packet = vector["inputs"], bytes.fromhex(vector["hex"])
    assert values.packet(i) == packet
    mine = digester(values.digest_type(i["digest_type"]), bytes.fromhex(i["password"]))
    ids = (i["ledger_id"], i["entry_id"], i["last_add_confirmed"], i["length"])
    expected = Entry(*ids, bytes.fromhex(i["payload"]))
    assert mine.verify(i["ledger_id"], i["entry_id"], packet) == expected
    assert mine.verify(i["ledger_id"], None, packet) == expected
    assert header(packet) == EntryHeader(*ids)


@pytest.mark.parametrize("vector", wire_vectors("lac_packet"), ids=by_name)
def test_lac_packets_are_javas(vector) -> None:
    i, packet = vector["inputs"], bytes.fromhex(vector["hex"])
    mine = digester(values.digest_type(i["digest_type"]), bytes.fromhex(i["password"]))
    assert mine.package_lac(i["ledger_id"], i["lac"]) == packet
    assert mine.verify_lac(i["ledger_id"], packet) == i["lac"]


def test_crc32c_is_castagnolis() -> None:
    import crc32c

    assert crc32c.crc32c(b"123456789") == 0xE3069283


guarded = st.sampled_from([t for t in DigestType if t is not DigestType.DUMMY])


@given(
    guarded,
    st.binary(max_size=9),
    strategies.u63,
    strategies.u63,
    st.binary(max_size=60),
    st.data(),
)
def test_any_changed_byte_is_noticed(digest_type, password, ledger, entry, payload, data) -> None:
    mine = digester(digest_type, password)
    packet = bytearray(mine.package(ledger, entry, -1, len(payload), payload))
    at = data.draw(st.integers(0, len(packet) - 1))
    packet[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(DigestMismatchError):
        mine.verify(ledger, entry, bytes(packet))


@given(strategies.digest_types, st.binary(max_size=40), st.data())
def test_a_cut_packet_is_refused(digest_type, payload, data) -> None:
    mine = digester(digest_type, b"pw")
    packet = mine.package(1, 2, 0, len(payload), payload)
    cut = data.draw(st.integers(0, 31 + mine.size))
    with pytest.raises(DigestMismatchError):
        mine.verify(1, 2, packet[:cut])
    if cut < 32:
        with pytest.raises(DigestMismatchError):
            header(packet[:cut])


@given(
    strategies.digest_types,
    st.lists(st.binary(max_size=20), min_size=1, max_size=6),
    st.sampled_from(["nothing", "a byte", "a packet of another place", "a short packet"]),
    st.data(),
)
def test_a_run_is_verified_up_to_the_first_packet_that_would_be_refused(
    digest_type, payloads, change, data
) -> None:
    mine = digester(digest_type, b"pw")
    packets = [mine.package(1, 5 + n, n, 9, payload) for n, payload in enumerate(payloads)]
    bad = data.draw(st.integers(0, len(packets) - 1))
    if change == "a byte":
        at = data.draw(st.integers(0, len(packets[bad]) - 1))
        packets[bad] = packets[bad][:at] + b"\xee" + packets[bad][at + 1 :]
    elif change == "a packet of another place":
        packets[bad] = mine.package(*data.draw(st.sampled_from([(1, 4), (2, 5 + bad)])), 0, 9, b"")
    elif change == "a short packet":
        packets[bad] = packets[bad][: data.draw(st.integers(0, 31 + mine.size))]
    good = {}
    for entry_id, packet in enumerate(packets, 5):
        with contextlib.suppress(DigestMismatchError):
            good[entry_id] = mine.verify(1, entry_id, packet)
    ids = range(5, 5 + len(packets))
    run = [good[one] for one in itertools.takewhile(good.__contains__, ids)]
    assert mine.verify_run(1, ids, Packets.join(packets)).entries() == run
    many = mine.verify_many(1, dict(zip(ids, packets, strict=True)))
    found = VerifiedEntries(
        [header for header, _ in many.values()], [one for _, one in many.values()]
    )
    assert (list(many), found.entries()) == (list(good), list(good.values()))


@pytest.mark.parametrize("digest_type", list(DigestType))
@pytest.mark.parametrize(("ids", "found"), [(range(2, 9, 3), 2), (range(2, 3), 1), (range(5), 0)])
def test_a_run_has_the_ids_asked_for_and_no_others(digest_type, ids, found) -> None:
    mine = digester(digest_type, b"pw")
    packets = [mine.package(1, entry_id, 0, 9, b"%d" % entry_id) for entry_id in (2, 5)]
    entries = mine.verify_run(1, ids, Packets.join(packets)).entries()
    assert [entry.entry_id for entry in entries] == list(ids[:found])


@pytest.mark.parametrize(
    "entry",
    [(9, 7, 0, 1), (9, 3, 0, 7), (9, 3, 7, 0), (7, 3, 7, 7)],
    ids=["its id", "its length", "its last confirmed", "nothing but its ledger"],
)
def test_only_an_entry_with_both_ids_belongs_to_a_run(entry: tuple[int, int, int, int]) -> None:
    mine = digester(DigestType.CRC32C, b"pw")
    run = Packets.join([mine.package(*entry, b"x")])
    assert mine.verify_run(7, range(7, 8), run).entries() == []


@pytest.mark.parametrize("digest_type", list(DigestType))
def test_nothing_behind_a_short_packet_belongs_to_a_run(digest_type) -> None:
    mine = digester(digest_type, b"pw")
    first, second = (mine.package(1, entry_id, 0, 9, b"x") for entry_id in (2, 3))
    run = Packets.join([first, second[:20], second])
    assert mine.verify_run(1, range(2, 5), run).entries() == [mine.verify(1, 2, first)]


def test_a_run_ends_before_an_entry_that_nobody_asked_for() -> None:
    mine = digester(DigestType.CRC32C, b"pw")
    packets = [mine.package(1, entry_id, 0, 9, b"x") for entry_id in (2, 4)]
    assert mine.verify_run(1, range(2, 4), Packets.join(packets)).entries() == [
        mine.verify(1, 2, packets[0])
    ]


def test_entries_stay_what_they_are_as_headers_and_payloads() -> None:
    entries = [Entry(1, 5, 4, 9, b"five"), Entry(1, 6, -1, 2**40, b"")]
    assert VerifiedEntries.of(entries).entries() == entries


@pytest.mark.parametrize("digest_type", list(DigestType))
def test_an_entry_of_another_place_is_refused(digest_type) -> None:
    mine = digester(digest_type, b"pw")
    packet = mine.package(1, 2, 0, 3, b"abc")
    for ledger, entry in ((1, 3), (2, 2), (9, None)):
        with pytest.raises(DigestMismatchError, match="got entry 2 of ledger 1"):
            mine.verify(ledger, entry, packet)
    with pytest.raises(DigestMismatchError):
        mine.verify_lac(2, mine.package_lac(1, 5))


@pytest.mark.parametrize("digest_type", [t for t in DigestType if t is not DigestType.DUMMY])
def test_a_broken_lac_packet_is_refused(digest_type) -> None:
    mine = digester(digest_type, b"pw")
    packet = mine.package_lac(1, 5)
    for broken in (packet[:-1], packet[:15], packet[:8] + b"\1" + packet[9:]):
        with pytest.raises(DigestMismatchError):
            mine.verify_lac(1, broken)


def test_only_the_mac_depends_on_the_password() -> None:
    packets = {
        digest_type: {digester(digest_type, p).package(1, 2, 0, 3, b"abc") for p in (b"a", b"b")}
        for digest_type in DigestType
    }
    assert {t: len(p) for t, p in packets.items()} == {
        DigestType.CRC32: 1,
        DigestType.CRC32C: 1,
        DigestType.DUMMY: 1,
        DigestType.MAC: 2,
    }


def test_an_unknown_digest_type_is_our_error() -> None:
    with pytest.raises(LocalProtocolError):
        digester(9, b"")  # type: ignore[arg-type]


def test_an_id_that_does_not_fit_is_our_error() -> None:
    mine = digester(DigestType.CRC32C, b"")
    for ids in ((2**63, 0, 0, 0), (0, -(2**63) - 1, 0, 0)):
        with pytest.raises(LocalProtocolError):
            mine.package(*ids, b"")
    with pytest.raises(LocalProtocolError):
        mine.package_lac(0, 2**63)


@pytest.mark.parametrize("digest_type", list(DigestType))
def test_a_cut_lac_packet_is_refused_and_a_longer_one_is_read(digest_type) -> None:
    mine = digester(digest_type, b"pw")
    packet = mine.package_lac(1, 5)
    for cut in range(len(packet)):
        with pytest.raises(DigestMismatchError):
            mine.verify_lac(1, packet[:cut])
    assert mine.verify_lac(1, packet + b"more") == 5
