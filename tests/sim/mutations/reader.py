"""Rules of readers, broken on purpose: digests, the LAC, passwords."""

from __future__ import annotations

import contextlib
from typing import Any, Final

import attrs

from bkclient.ledger import opening
from bkclient.ledger.reads.answer_verifier import AnswerVerifier
from bkclient.ledger.reads.tail import ConfirmedEnd, MetadataFollower
from tests.sim.engine.mutation_switch import Mutation, put, switch
from wire.digest import _Digester
from wire.ledger_metadata import LedgerMetadata


def _no_digest(stack: contextlib.ExitStack) -> None:
    """Entries are taken without looking at their digest."""
    usual = _Digester.verify

    def verify(self: Any, ledger_id: int, entry_id: int | None, packet: bytes) -> Any:
        head, payload = packet[:32], packet[32 + self.size :]
        whole = head + self._compute(head, payload) + payload
        return usual(self, ledger_id, entry_id, whole)

    put(stack, _Digester, verify=verify)


def _no_lac_digest(stack: contextlib.ExitStack) -> None:
    """A LAC is taken from a bookie's last entry, and from an explicit LAC, without their digest."""
    usual = AnswerVerifier.lac

    def known(self: Any, bookie: Any, response: Any) -> Any:
        with contextlib.ExitStack() as answer:
            _no_digest(answer)
            return usual(self, bookie, response)

    put(stack, AnswerVerifier, lac=known)


def _lac_goes_back(stack: contextlib.ExitStack) -> None:
    def saw(self: Any, lac: int) -> None:
        self._lac = lac

    put(stack, ConfirmedEnd, raise_to=saw)


def _reads_beyond(stack: contextlib.ExitStack) -> None:
    """A reader takes an entry that a bookie has for one that is confirmed."""

    def known(self: Any, bookie: Any, response: Any) -> Any:
        found = usual(self, bookie, response)
        if found is None or response.last_entry is None:
            return found
        last = self.packet(bookie, response.last_entry, None)
        return attrs.evolve(found, lac=max(found.lac, last.entry_id))

    usual = AnswerVerifier.lac
    put(stack, AnswerVerifier, lac=known)


def _does_not_follow(stack: contextlib.ExitStack) -> None:
    """A reader asks the bookies that it knew when it was opened, for ever."""

    async def start(_self: Any) -> None:
        pass

    async def refresh(self: Any) -> LedgerMetadata:
        return self._local.value  # type: ignore[no-any-return]

    put(stack, MetadataFollower, start=start, refresh=refresh)


def _any_password(stack: contextlib.ExitStack) -> None:
    usual = opening.settle_keys

    def keys(cluster: Any, ledger_id: Any, metadata: Any, password: Any, digest_type: Any) -> Any:
        return usual(cluster, ledger_id, metadata, metadata.password, digest_type)

    put(stack, opening, settle_keys=keys)


READER_MUTATIONS: Final[dict[str, Mutation]] = {
    "no-digest": switch(
        "digests are not verified", "8, S16", "I5 I2 I6 I7 I16", _no_digest, "anything", 120
    ),
    "no-lac-digest": switch(
        "LACs are taken without their digest",
        "9, S16",
        "I7",
        _no_lac_digest,
        "tests.sim.test_scenarios:test_s16_a_damaged_lac_is_no_answer",
        0,
    ),
    "lac-goes-back": switch("a reader's LAC goes back", "8", "I7", _lac_goes_back, "anything", 50),
    "reads-beyond": switch(
        "an unconfirmed entry is read as confirmed", "9", "I7 I6 I18", _reads_beyond, "anything", 50
    ),
    "does-not-follow": switch(
        "a reader does not follow the metadata",
        "4, #4613",
        "I8 L1 L4",
        _does_not_follow,
        "anything",
        10,
    ),
    "any-password": switch(
        "the password is not compared", "4", "I21", _any_password, "anything", 20
    ),
}
"""By name; part of ``mutations.MUTATIONS``."""
