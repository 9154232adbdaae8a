"""The body of `log append`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from twisted.internet.defer import Deferred

from bkclient.errors import ClientError
from bkclient.log import LogManager, LogWriter, Position
from bkclient.log.errors import LogError
from bkctl.commands.ledger.write import EntrySource, given_source, require_one_source
from bkctl.commands.log.columns import LogAppended
from bkctl.output.units import counted
from bkctl.session.session import Session


def append(
    session: Session,
    *,
    name: str,
    data: Sequence[str],
    path: str | None,
    framing: str | None,
    chunk_bytes: int | None,
    seal: bool,
) -> None:
    """Append entries to the log NAME, one for each DATA; `-` reads stdin."""
    session.about = f"log {name}"
    require_one_source(data, path, f"bkctl log append {name}")
    if session.dry_run:
        session.plan(_plan_append(session, name, seal=seal))
        return
    with given_source(session, data, path, framing, chunk_bytes) as source:
        session.emit(_append(session, name, source, seal=seal))


def _plan_append(session: Session, name: str, *, seal: bool) -> list[str]:
    """Return the steps of an append, as sentences."""
    info = session.call(lambda client: LogManager(client).info(name))
    steps = [
        f"fence ledger {one.ledger_id}" for one in info.ledgers[-2:] if one.last_entry_id is None
    ]
    steps += [f"begin ledger {info.trimmed + len(info.ledgers)} of log {name}", "append to it"]
    return [*steps, *(["seal the log"] if seal else [])]


class _Feed:
    """A feed of entries to a log's writer; used only on the reactor's thread."""

    def __init__(self, writer: LogWriter) -> None:
        self.writer = writer
        self.appended = 0
        """Number of entries that the log stores durably."""
        self.first: Position | None = None
        self.last: Position | None = None
        self._error: BaseException | None = None

    @property
    def outcome(self) -> str:
        """The number of appended entries, and the command that shows the log's end."""
        up_to = f", up to {self.last}" if self.last else ""
        return (
            f"{counted(self.appended, 'entry')} appended{up_to}; "
            f"`bkctl log tail {self.writer.name} -n 5` shows the end of the log"
        )

    async def push(self, payloads: Sequence[bytes]) -> None:
        for payload in payloads:
            self._raise()
            await self.writer.wait_for_space()
            appended: Deferred[Position] = self.writer.append(payload)
            appended.addCallbacks(self._appended, self._failed)

    async def drain(self) -> None:
        await self.writer.drain()
        self._raise()

    def _appended(self, position: Position) -> None:
        self.appended += 1
        self.first = self.first or position
        self.last = position

    def _failed(self, failure: Any) -> None:
        self._error = self._error or failure.value

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error


def _append(session: Session, name: str, source: EntrySource, *, seal: bool) -> LogAppended:
    """Append the entries of a source; return their positions and size."""
    began_s = time.monotonic()
    entries = size = 0
    with session.interrupts.stopping() as stop:
        writer = session.call(lambda client: LogManager(client).open_writer(name))
        feed = _Feed(writer)
        end = None if writer.recovered_tail is None else str(writer.recovered_tail)
        if source.size is None:  # The next entries may arrive hours later.
            at = f"ends at {end}" if end else "has no entry"
            session.note(f"log {name} {at}; the new entries follow")
        try:
            with source.progress(session, f"appending to log {name}") as progress:
                for payloads in source.batches(stop):
                    session.run(feed.push, payloads)
                    entries += len(payloads)
                    size += sum(map(len, payloads))
                    progress.update(source.position, entries)
                session.run(feed.drain)
        except LogError:
            session.failed = feed.outcome
            raise
        except Exception:
            with suppress(ClientError):  # The input failed: earlier entries stay in the log.
                session.run(writer.close)
            session.warn(feed.outcome)
            raise
        session.run(writer.close, seal=seal and stop.reason is None)
        if stop.reason is not None:
            session.resume = (
                f"{counted(entries, 'entry')} appended to log {name}, and its ledger closed"
            )
            raise stop.reason
    return LogAppended(
        name=name,
        ended_at=end,
        first=None if feed.first is None else str(feed.first),
        last=None if feed.last is None else str(feed.last),
        entries=entries,
        size=size,
        seconds=time.monotonic() - began_s,
        sealed=seal,
    )
