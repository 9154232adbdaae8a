"""A ledger that passes from process to process, each of which may die at any request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from bkclient.admin import cluster_operations, one_shot_adds
from bkclient.admin.one_shot_adds import NotHandedOverError
from bkclient.client import Client
from bkclient.errors import ClientError
from bkclient.ledger.creation import NewLedger
from tests.bkclient.scenarios.process_deaths import Death, Killed, Processes, deaths, steps_of
from tests.bkclient.worlds import collect
from wire.ids import LedgerId

PAIR = {"ensemble_size": 2, "write_quorum": 2, "ack_quorum": 2}
ENTRIES = [b"second-%d" % number for number in range(3)]
Work = Callable[["Relay"], Any]


class Relay(Processes):
    """A ledger whose first writer has handed it over, and processes that add to it in turn."""

    def __init__(self, death: Death | None = None) -> None:
        super().__init__(4)
        with self.start() as first:
            self.ledger_id: LedgerId = first.call(
                one_shot_adds.create_handed_over, NewLedger(**PAIR)
            )[0]
        self.acknowledged: dict[int, bytes] = {}
        self.steps = 0
        self.add([b"first"])
        self.death = None if death is None else attrs.evolve(death)

    def add(self, payloads: list[bytes], *, closes: bool = False) -> None:
        """Add entries in a process of its own, then hand the ledger over or close it."""

        async def added(client: Client) -> None:
            writer = await one_shot_adds.claim_ledger(client, self.ledger_id)
            for payload in payloads:
                self.acknowledged[await writer.add(payload)] = payload
            await (writer.close() if closes else one_shot_adds.release_ledger(writer))

        with self.start() as process:
            process.call(added)

    def recover(self) -> None:
        """Close the ledger in a process of its own."""
        with self.start() as process:
            process.call(cluster_operations.recover_ledger, self.ledger_id)

    def found(self) -> list[bytes]:
        async def read(client: Client) -> list[bytes]:
            return await collect((await client.open_ledger(self.ledger_id)).read())

        with self.start() as process:
            payloads: list[bytes] = process.call(read)
        return payloads

    def check(self, sent: list[bytes]) -> None:
        """Each acknowledged entry is at its place; others were sent, and are there once."""
        found = self.found()
        assert {n: found[n] for n in self.acknowledged if n < len(found)} == self.acknowledged
        assert found == [payload for payload in sent if payload in found]
        self.wait()
        assert self.found() == found


def add_and_release(relay: Relay) -> None:
    relay.add(ENTRIES)


def add_and_close(relay: Relay) -> None:
    relay.add(ENTRIES, closes=True)


def recover(relay: Relay) -> None:
    relay.recover()


@pytest.mark.parametrize("work", [add_and_release, add_and_close, recover])
def test_a_process_that_dies_at_any_step_costs_no_acknowledged_entry(work: Work) -> None:
    for death in deaths(steps_of(Relay(), work, steps_min=3)):
        relay = Relay(death)
        with pytest.raises(Killed):
            work(relay)
        relay.death = None
        # The next process adds as if nothing had been, and recovers where it may not.
        try:
            relay.add([b"third"])
        except (NotHandedOverError, ClientError):
            with pytest.raises(ClientError):
                relay.add([b"never"])
            relay.recover()
        relay.check([b"first", *ENTRIES, b"third"])


@pytest.mark.parametrize("work", [add_and_release, add_and_close, recover])
def test_a_process_that_loses_one_answer_does_all_of_its_work_once(work: Work) -> None:
    for death in deaths(steps_of(Relay(), work, steps_min=3), is_fatal=False):
        relay = Relay(death)
        work(relay)
        assert relay.death is not None
        assert relay.death.left <= 0, death
        relay.death = None
        if work is add_and_release:
            relay.add([b"third"])
            assert relay.found() == [b"first", *ENTRIES, b"third"], death
        relay.check([b"first", *ENTRIES, b"third"])


def test_a_process_that_dies_at_any_step_of_its_recovery_leaves_it_to_the_next() -> None:
    """The writer died after two acknowledged entries; so does the first that recovers."""

    def torn(death: Death | None) -> Relay:
        relay = Relay()

        async def added(client: Client) -> None:
            writer = await one_shot_adds.claim_ledger(client, relay.ledger_id)
            for payload in ENTRIES[:2]:
                relay.acknowledged[await writer.add(payload)] = payload
            writer.add(ENTRIES[2]).addErrback(lambda _failure: None)

        with relay.start() as process:
            process.call(added)
        relay.death = None if death is None else attrs.evolve(death)
        return relay

    for death in deaths(steps_of(torn(None), recover)):
        relay = torn(death)
        with pytest.raises(Killed):
            relay.recover()
        relay.death = None
        with pytest.raises(ClientError):
            relay.add([b"never"])
        relay.recover()
        relay.check([b"first", *ENTRIES])
