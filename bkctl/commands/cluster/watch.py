"""`cluster watch`: read the state again after each possible change, and print the differences."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import attrs
from twisted.internet.defer import Deferred

from bkclient.concurrency import wall_ms
from bkclient.metadata.errors import MetadataUnavailableError
from bkclient.metadata.versions_and_watches import SessionEvent
from bkclient.replication.autorecovery_admin import count_marks
from bkctl.commands.load.bookie_loads import MARKS_MAX, flush_each
from bkctl.output.views import Kind, evolve, field, shown

if TYPE_CHECKING:
    from bkclient.client import Client
    from bkctl.session.session import Session
    from wire.ids import BookieId

_SESSION_WORDS: Final = {
    SessionEvent.CONNECTED: "connected",
    SessionEvent.SUSPENDED: "suspended",
    SessionEvent.LOST: "lost",
}


def _event(v: ClusterEvent) -> str:
    who = f"bookie {v.bookie_id}" if v.bookie_id else v.event
    was = "" if v.was is None else f" (was {v.was})"
    return f"{who}: {v.now}{was}"


@shown("events", kw_only=True, id="event", sentence=_event, dated=True)
class ClusterEvent:
    """One change. ``event`` is a stable word; ``was`` and ``now`` are the old and the new state."""

    time_ms: int = field("Time of the event.", name="time")
    event: str = field("bookie, auditor, autorecovery, under-replicated or metadata.")
    bookie_id: BookieId | None = field("The bookie.", header="BOOKIE", default=None)
    now: str = field("The new state.", kind=Kind.STATE)
    was: str | None = field("The old state.", default=None)


@attrs.frozen(kw_only=True)
class ClusterSnapshot:
    """The watched state at one time."""

    bookies: Mapping[BookieId, str]
    auditor: BookieId | None
    enabled: bool
    marks: int


def watch(session: Session, *, for_s: float | None, interval: float) -> None:
    """Print events as they arrive."""
    session.options.no_pager = True
    found = session.iterate(events, for_s, interval)
    session.emit_all(flush_each(session, found), ClusterEvent)


async def events(
    client: Client, for_s: float | None, interval_s: float
) -> AsyncIterator[ClusterEvent]:
    """Yield the initial state, then the changes; for ``for_s`` seconds, or without end."""
    clock = client.cluster.clock
    end_s = None if for_s is None else clock.seconds() + for_s
    wake = _ChangeWait(client)
    before: ClusterSnapshot | None = None
    with ExitStack() as watches:
        watches.callback(client.store.on_session(wake.session).cancel)
        watches.callback((await client.store.watch_bookies(wake)).cancel)
        watches.callback((await client.store.watch_underreplicated(wake)).cancel)
        watches.callback((await client.store.watch_replication_enabled(wake)).cancel)
        while True:
            for word in wake.sessions():
                yield ClusterEvent(time_ms=wall_ms(clock), event="metadata", now=word)
            try:
                now = await read_snapshot(client)
            except MetadataUnavailableError:
                pass  # The session's events report the loss.
            else:
                for event in changes(before, now, wall_ms(clock)):
                    yield event
                before = now
            left_s = interval_s if end_s is None else min(interval_s, end_s - clock.seconds())
            if left_s <= 0:
                return
            await wake.wait(left_s)


class _ChangeWait:
    """A wait that ends when this callback is called."""

    def __init__(self, client: Client) -> None:
        self._clock = client.cluster.clock
        self._waiter: Deferred[None] | None = None
        self._heard = False
        self._words: list[str] = []

    def __call__(self) -> None:
        self._heard = True
        if self._waiter is not None and not self._waiter.called:
            self._waiter.callback(None)

    def session(self, event: SessionEvent) -> None:
        self._words.append(_SESSION_WORDS[event])
        self()

    def sessions(self) -> list[str]:
        """Return the session's events since the last call."""
        words, self._words = self._words, []
        return words

    async def wait(self, seconds: float) -> None:
        """Return after a time, or as soon as an event has arrived since the last wait."""
        if not self._heard:
            self._waiter = Deferred()
            timer = self._clock.callLater(seconds, self)
            try:
                await self._waiter
            finally:
                self._waiter = None
                if timer.active():
                    timer.cancel()
        self._heard = False


async def read_snapshot(client: Client) -> ClusterSnapshot:
    """Read the watched state once."""
    store = client.store
    states = dict.fromkeys(await store.known_bookies(), "down")
    states |= dict.fromkeys(await store.read_only_bookies(), "read-only")
    states |= dict.fromkeys(await store.writable_bookies(), "writable")
    marks = await count_marks(store, MARKS_MAX)
    return ClusterSnapshot(
        bookies=dict(sorted(states.items())),
        auditor=await store.current_auditor(),
        enabled=await store.replication_enabled(),
        marks=marks,
    )


def changes(
    before: ClusterSnapshot | None, now: ClusterSnapshot, time_ms: int
) -> Iterator[ClusterEvent]:
    """Yield the differences between two snapshots; without ``before``, the initial state."""

    def event(word: str, is_now: str, was: str | None) -> ClusterEvent:
        return ClusterEvent(time_ms=time_ms, event=word, now=is_now, was=was)

    old = {} if before is None else before.bookies
    for bookie in sorted(old.keys() | now.bookies.keys()):
        was, is_now = old.get(bookie), now.bookies.get(bookie, "gone")
        if was != is_now:
            yield evolve(event("bookie", is_now, was), bookie_id=bookie)
    values: tuple[tuple[str, Callable[[ClusterSnapshot], str]], ...] = (
        ("auditor", lambda seen: seen.auditor or "none"),
        ("autorecovery", lambda seen: "enabled" if seen.enabled else "disabled"),
        ("under-replicated", lambda seen: str(seen.marks)),
    )
    for word, get in values:
        former = None if before is None else get(before)
        if former != get(now):
            yield event(word, get(now), former)
