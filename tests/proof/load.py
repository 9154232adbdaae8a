"""Writers, tails and recoveries: what clients are at while faults happen, and the last reading."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import attrs

from tests.proof.client import WINDOW
from tests.proof.clients import ClientProcess
from tests.proof.cluster import ProofCluster
from tests.proof.history import Event, Kind
from tests.support.waiting import NotInTimeError, until

WRITERS: Final = ("ours-v3", "java-v3", "ours-v2", "java-v2")
READERS: Final = ("ours-v3", "java-v3", "ours-v2")
SIZES: Final = ((3, 3, 2), (3, 2, 2), (4, 3, 2), (3, 3, 3))
DIGESTS: Final = ("CRC32C", "CRC32", "MAC")
ENTRIES: Final = (50, 600)
AT_ONCE: Final = 6
"""Ledgers that are read side by side at the end."""

STALLED_S: Final = 40.0
"""A writer that has had no outcome for so long gets another ledger; its adds may still end."""

OVER: Final = (Kind.REFUSED, Kind.CLOSED, Kind.FAILED)


@attrs.define
class Slot:
    """A writer, one ledger at a time. ``handle`` is that of the ledger it is at."""

    client: ClientProcess
    rng: random.Random
    handle: int = 0
    heard: int = 0
    heard_at_s: float = 0.0


class Load:
    """What clients do. Ledgers, their sizes and entries come from the seed."""

    def __init__(self, cluster: ProofCluster, seed: int, writers: int) -> None:
        self._cluster = cluster
        # A ledger on all bookies cannot be repaired: nobody could take a lost replica (#3905).
        self._sizes = [sizes for sizes in SIZES if sizes[0] < len(cluster.members)]
        self._rng = random.Random(f"load {seed}")
        writing = [f"{WRITERS[n % len(WRITERS)]}-w{n}.0" for n in range(writers)]
        clients = cluster.add_clients(
            [*writing, *(f"{name}-r{n}" for n, name in enumerate(READERS))]
        )
        self.slots = [
            Slot(client, random.Random(f"load {seed} {number}"))
            for number, client in enumerate(clients[:writers])
        ]
        self.readers = clients[writers:]
        self._seen: set[int] = set()
        self.counts: Counter[str] = Counter()

    def tick(self) -> None:
        """Give writers that are through a new ledger, and new ledgers their tails."""
        for slot in self.slots:
            if not slot.client.running:
                self._replace(slot)
            if slot.handle == 0 or self._is_stalled(slot) or _is_over(slot):
                self._write(slot)
        for created in self._created():
            if created.ledger not in self._seen:
                self._seen.add(created.ledger)
                if self._rng.random() < 0.5:
                    self._ask(self._rng.choice(self.readers), "tail", created)

    def fence(self, slot: Slot, rng: random.Random) -> None:
        """Have a reader recover the ledger that a writer is at."""
        for event in slot.client.of(slot.handle):
            if event.kind is Kind.CREATED:
                self._ask(rng.choice(self.readers), "recover", event)

    def kill(self, slot: Slot) -> None:
        """Kill a writer; the next one of its kind comes with the next tick."""
        slot.client.kill()

    def finish(self, timeout_s: float) -> None:
        """Have all writers close their ledgers, and wait until they have or cannot."""
        for slot in self.slots:
            slot.client.ask(do="finish", handle=slot.handle)

        def all_over() -> bool:
            return all(not slot.client.running or _is_over(slot) for slot in self.slots)

        with suppress(NotInTimeError):
            until(all_over, timeout_s=timeout_s)

    def read_everything(self, timeout_s: float) -> None:
        """Have every ledger closed, then read by two readers; failures are tried again."""
        deadline_s = time.monotonic() + timeout_s
        ledgers = {event.ledger: event for event in self._created()}
        for do in ("recover", "read"):
            waiting = {
                (ledger, turn): event for ledger, event in ledgers.items()
                for turn in range(1 if do == "recover" else 2)
            }  # fmt: skip
            while waiting and time.monotonic() < deadline_s:
                waiting = self._read(do, waiting, deadline_s)
            self.counts[f"ledgers that nobody could {do}"] += len(waiting)

    def _write(self, slot: Slot) -> None:
        """Give a writer a new ledger."""
        slot.handle = slot.client.ask(
            do="write",
            sizes=slot.rng.choice(self._sizes),
            digest=slot.rng.choice(DIGESTS),
            entries=slot.rng.randint(*ENTRIES),
        )
        slot.heard, slot.heard_at_s = 0, time.monotonic()

    def _replace(self, slot: Slot) -> None:
        """Start the next writer in the place of one that was killed."""
        name, _, life = slot.client.name.rpartition(".")
        (slot.client,) = self._cluster.add_clients([f"{name}.{int(life) + 1}"])
        slot.handle = 0
        self.counts["writers started again"] += 1

    def _is_stalled(self, slot: Slot) -> bool:
        heard = len(slot.client.of(slot.handle))
        if heard != slot.heard:
            slot.heard, slot.heard_at_s = heard, time.monotonic()
        return time.monotonic() - slot.heard_at_s > STALLED_S

    def _read(
        self, do: str, waiting: dict[tuple[int, int], Event], deadline_s: float
    ) -> dict[tuple[int, int], Event]:
        """Ask for some ledgers at once; return those that have to be asked for again."""
        left = dict(waiting)
        asked = []
        for at, created in list(waiting.items())[:AT_ONCE]:
            reader = self.readers[(at[0] + at[1]) % len(self.readers)]
            asked.append((at, reader, self._ask(reader, do, created)))
        for at, reader, handle in asked:

            def outcome(reader: ClientProcess = reader, handle: int = handle) -> list[Event]:
                return [e for e in reader.of(handle) if e.kind in (Kind.END, Kind.FAILED)]

            try:
                found = until(outcome, timeout_s=max(0.0, deadline_s - time.monotonic()))
            except NotInTimeError:
                continue
            if found[0].kind is Kind.END:
                del left[at]
            else:
                # Behind the others.
                left[at] = left.pop(at)
        return left

    def _ask(self, reader: ClientProcess, do: str, created: Event) -> int:
        self.counts[f"{do}s"] += 1
        return reader.ask(do=do, ledger=created.ledger, digest=created.note)

    def _created(self) -> Iterator[Event]:
        for client in self._cluster.clients:
            yield from client.created()


def _is_over(slot: Slot) -> bool:
    return any(event.kind in OVER for event in slot.client.of(slot.handle)[-WINDOW:])
