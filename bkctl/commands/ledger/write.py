"""``bkctl ledger add`` and ``write``: arguments, files and pipes are added to a ledger.

The main thread reads and cuts the input; the reactor's thread adds. The data in flight is bounded,
so a gigabyte needs no more memory than a megabyte.
"""

from __future__ import annotations

import abc
import contextlib
import os
import shlex
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import attrs
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from bkclient.admin import one_shot_adds
from bkclient.errors import ClientLedgerFencedError
from bkctl.commands.ledger.create import create_for_writing, new_ledger, plan_of, warn_of_chosen_id
from bkctl.commands.ledger.input_cutting import CHUNK_BYTES, Cutter, Framing, cutter, looks_binary
from bkctl.commands.ledger.list_and_show import metadata_of
from bkctl.errors import ConflictError, NothingFoundError, UsageError
from bkctl.output.progress import Progress
from bkctl.output.units import counted, human_bytes, human_duration
from bkctl.output.views import ENTRIES, LEDGER, SECONDS, SIZE, field, shown
from wire.codes import LedgerState
from wire.errors import BookKeeperError
from wire.ids import EntryId, LedgerId

if TYPE_CHECKING:
    from typing_extensions import Self

    from bkclient.client import Client
    from bkclient.ledger.writer import LedgerWriter
    from bkctl.session.interrupt import Stop
    from bkctl.session.session import Session

READ_BYTES: Final = 256 * 1024
FRAMING_KEY: Final = "bkctl.framing"
"""Custom metadata of ledgers that ``write`` made: the framing that ``read`` uses to join the
entries.
"""

_FRAME_OVERHEAD_BYTES: Final = 1024
"""Bytes of a frame besides the payload, at most: headers, digest, master key."""


def _added_sentence(added: EntriesAdded) -> str:
    if added.first is None:
        return f"nothing to add to ledger {added.ledger_id}"
    if added.entries == 1:
        return f"added entry {added.first} to ledger {added.ledger_id} ({human_bytes(added.size)})"
    return (
        f"added {added.entries} entries, {added.first} to {added.last}, to ledger "
        f"{added.ledger_id} ({human_bytes(added.size)} in {human_duration(added.seconds)})"
    )


@shown("additions", id="last", sentence=_added_sentence)
class EntriesAdded:
    """The result of one ``ledger add``. ``first`` and ``last`` are None if no entry was added."""

    ledger_id: LedgerId = field(LEDGER)
    first: EntryId | None = field("First entry added.")
    last: EntryId | None = field("Last entry added.")
    entries: int = field(ENTRIES)
    size: int = field(SIZE)
    seconds: float = field(SECONDS)


@shown("ledgers", bare=True)
class LedgerWritten:
    """A ledger written and closed in one run."""

    ledger_id: LedgerId = field(LEDGER)
    entries: int = field(ENTRIES)
    size: int = field(SIZE)
    seconds: float = field(SECONDS)
    complete: bool = field("Whether the ledger contains all input.", default=True)


def add(
    session: Session,
    *,
    ledger_id: LedgerId,
    data: Sequence[str],
    path: str | None,
    framing: str | None,
    chunk_bytes: int | None,
) -> None:
    """Add entries to LEDGER_ID, one for each DATA; `-` reads stdin."""
    session.about = f"ledger {ledger_id}"
    require_one_source(data, path, f"bkctl ledger add {ledger_id}")
    if session.dry_run:
        session.plan([f"add to ledger {ledger_id}, which {_why_it_can(session, ledger_id)}"])
        return
    with given_source(session, data, path, framing, chunk_bytes) as source:
        session.emit(_add(session, ledger_id, source))


def require_one_source(data: Sequence[str], path: str | None, command: str) -> None:
    """Refuse if neither DATA nor a file is given, or both. ``command`` is for the hint.

    Raises:
        UsageError: neither or both are given.
    """
    if (path is not None) == bool(data):
        raise UsageError(
            "DATA, --file FILE or - is needed, and only one of them",
            next_step=f"to add the lines of a pipe: {command} -",
        )


def given_source(
    session: Session,
    data: Sequence[str],
    path: str | None,
    framing: str | None,
    chunk_bytes: int | None,
) -> EntrySource:
    """Return the source of the entries: DATA, a file, or stdin for ``-``; see ``open_source``."""
    if path is None and tuple(data) != ("-",):
        return ArgumentSource(session, data)
    return open_source(session, path, framing, chunk_bytes)


def _why_it_can(session: Session, ledger_id: LedgerId) -> str:
    """Return the reason that a client can add to a ledger.

    Raises:
        ClientError: no client can add to the ledger.
    """
    from bkctl.session import shell_writers

    if shell_writers.writer_in_use(session, ledger_id) is not None:
        return "this shell writes to"
    one_shot_adds.read_handover(ledger_id, metadata_of(session, ledger_id))
    return "its last writer has released"


def _add(session: Session, ledger_id: LedgerId, source: EntrySource) -> Any:
    from bkctl.session import shell_writers

    began_s = time.monotonic()
    session.interrupts.last_words = f"ledger {ledger_id} was not released; {_recover(ledger_id)}"
    after = f"ledger {ledger_id} was released"
    if session.host.writers is not None:
        session.interrupts.last_words = "entries in flight are still added"
        after = f"this shell keeps ledger {ledger_id} open for writing"
    with session.interrupts.stopping() as stop:
        writer = shell_writers.take(session, ledger_id)
        first = writer.last_add_pushed + 1
        pump = EntryPump(session, writer, source, f"adding to ledger {ledger_id}")
        pump.run(stop)
        shell_writers.give_back(session, writer)
        session.interrupts.last_words = ""
        if stop.reason is not None:
            session.resume = (
                f"{counted(pump.entries, 'entry')} added, and {after}; to continue: "
                f"{source.rest(pump, f'bkctl ledger add {ledger_id} -')}"
            )
            raise stop.reason
    seconds = time.monotonic() - began_s
    entries = pump.entries
    return EntriesAdded(
        ledger_id=ledger_id,
        first=EntryId(first) if entries else None,
        last=EntryId(first + entries - 1) if entries else None,
        entries=entries,
        size=pump.size,
        seconds=seconds,
    )


def write(
    session: Session, /, path: str, framing: str | None, chunk_bytes: int | None, **wanted: Any
) -> None:
    """Create a ledger, add all of FILE or stdin, close it and print its id."""
    with open_source(session, None if path == "-" else path, framing, chunk_bytes) as source:
        new = new_ledger(session, **wanted)
        custom = {FRAMING_KEY: source.framing_name.encode(), **new.custom}
        new = attrs.evolve(new, custom=custom)
        if session.plans_only([plan_of(new), f"fill it from {path}", "close it"]):
            return
        warn_of_chosen_id(session, new)
        session.emit(_write(session, new, source))


def _write(session: Session, new: Any, source: StreamSource) -> Any:
    began_s = time.monotonic()
    with session.interrupts.stopping() as stop:
        writer = session.call(create_for_writing, new)
        ledger_id = writer.ledger_id
        session.about = f"ledger {ledger_id}"
        # The pipe may stay open for hours, and a killed process prints nothing: name the ledger
        # now.
        if source.size is None:
            session.note(f"ledger {ledger_id} is open; it gets the entries of the pipe")
        else:
            session.verbose(f"ledger {ledger_id} created")
        session.interrupts.last_words = f"ledger {ledger_id} is open; {_recover(ledger_id)}"
        pump = EntryPump(session, writer, source, f"writing ledger {ledger_id}")
        try:
            pump.run(stop)
        except ClientLedgerFencedError as error:
            if new.ledger_id is not None:
                _undo_if_fenced_before(session, writer, error)
            raise
        session.run(writer.close)
        session.interrupts.last_words = ""
        if stop.reason is not None:
            session.resume = (
                f"ledger {ledger_id} is closed with {counted(pump.entries, 'entry')} read so far; "
                f"the rest goes into a new one: {source.rest(pump, 'bkctl ledger write -')}"
            )
            raise stop.reason
    source.note_missing_newline(session)
    return LedgerWritten(
        ledger_id=ledger_id,
        entries=pump.entries,
        size=pump.size,
        seconds=time.monotonic() - began_s,
    )


def _undo_if_fenced_before(
    session: Session, writer: LedgerWriter, error: ClientLedgerFencedError
) -> None:
    """Delete a new ledger without a confirmed entry, unless another client has changed it.

    Raises:
        ConflictError: the ledger was deleted.
    """
    ledger_id = writer.ledger_id
    try:
        was_ours = writer.last_add_confirmed < 0 and session.call(_delete_unchanged, writer)
    except BookKeeperError:
        was_ours = False
    if was_ours:
        session.failed = ""
        raise ConflictError(
            f"bookies still fence ledger {ledger_id}, which was deleted; no entry was added, and "
            "the new ledger is deleted again",
            next_step="leave out --ledger-id: a generated id is always new",
        ) from error
    session.failed += f"; `bkctl ledger delete {ledger_id} --force open-ledgers` deletes it"


async def _delete_unchanged(client: Client, writer: LedgerWriter) -> bool:
    """Delete a ledger that only its writer has changed; return whether it was deleted."""
    stored = await client.read_metadata(writer.ledger_id)
    token = stored.value.creator_token  # Each change of the metadata sets the token to 0.
    is_unchanged = token != 0 and token == writer.metadata.creator_token
    if not is_unchanged or stored.value.state is not LedgerState.OPEN:
        return False
    await client.store.remove_ledger(writer.ledger_id, stored.version)
    return True


def _recover(ledger_id: LedgerId) -> str:
    return f"`bkctl ledger recover {ledger_id}` closes it"


class EntryPump:
    """A pump of entries from a source to a writer on the reactor, which counts them."""

    def __init__(self, session: Session, writer: Any, source: EntrySource, what: str) -> None:
        self._session, self._writer, self._source, self._what = session, writer, source, what
        self.entries = 0
        self.size = 0
        """The bytes of payload."""

    def run(self, stop: Stop) -> None:
        """Add the source's entries, until its end or the stop; wait until they are confirmed.

        An error ends the writer; the ledger then has no writer.

        Raises:
            Interrupted: the stop was requested, and then an add failed.
        """
        session = self._session
        session.failed = (
            f"{_recover(self._writer.ledger_id)}, if it is open, and shows its last entry"
        )
        try:
            self._add_all(stop)
        except BookKeeperError as error:
            if not self._writer.is_writable:
                self._await_close()
            if stop.reason is None:
                raise
            session.resume = f"{error}; {session.failed}"
            raise stop.reason from error
        session.failed = ""

    def _await_close(self) -> None:
        """Wait until a writer whose add failed has closed the ledger; note the ledger's end."""
        with contextlib.suppress(BookKeeperError):  # A fenced writer may not close it.
            end = self._session.run(self._writer.close)
            entries = counted(end.last_entry_id + 1, "entry")
            self._session.failed = f"ledger {self._writer.ledger_id} is closed with {entries}"

    def _add_all(self, stop: Stop) -> None:
        feed, source = EntryFeed(self._writer), self._source
        with source.progress(self._session, self._what) as progress:
            for entries in source.batches(stop):
                self._session.run(feed.push, entries)
                self.entries += len(entries)
                self.size += sum(map(len, entries))
                progress.update(source.position, self.entries)
            self._session.run(feed.drain)


class EntryFeed:
    """The batches of one writer, added in order on the reactor's thread.

    The writer accepts a batch while the next one is read; the writer itself bounds the data in
    flight.
    """

    def __init__(self, writer: LedgerWriter) -> None:
        self.writer = writer
        self._failure: Failure | None = None
        self._last_given: int = writer.last_add_pushed

    async def push(self, payloads: Sequence[bytes]) -> None:
        """Begin to add a batch, after the writer has accepted all of the batch before.

        Raises:
            ClientError: an add has failed.
        """
        await self._all_taken()
        self._last_given += len(payloads)
        self.writer.add_many(payloads).addErrback(self._fail)

    async def drain(self) -> None:
        """Wait until all entries are confirmed.

        Raises:
            ClientError: an add has failed.
        """
        await self._all_taken()
        await self.writer.drain()
        self._raise()

    async def _all_taken(self) -> None:
        """Wait until each entry has its id; otherwise two batches could change their order."""
        self._raise()
        while self.writer.last_add_pushed < self._last_given:
            await self.writer.wait_for_space()
            await deferLater(self.writer.clock, 0)
            self._raise()

    def _fail(self, failure: Failure) -> None:
        self._failure = self._failure or failure

    def _raise(self) -> None:
        if self._failure is not None:
            self._failure.raiseException()


# Entry sources ---------------------------------------------------------------------------------


class EntrySource(abc.ABC):
    """Entries in batches. A context manager, which closes the file that it opened."""

    framing_name = "arguments"
    size: int | None = None
    """The bytes to read; None if unknown."""
    position = 0
    """The bytes read so far."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def progress(self, session: Session, what: str) -> Progress:
        """Return the progress display."""
        return session.progress(what, total=self.size)

    @abc.abstractmethod
    def batches(self, stop: Stop) -> Iterator[list[bytes]]:
        """Yield entries, as many at a time as are available; end early at the stop."""

    @abc.abstractmethod
    def rest(self, pump: EntryPump, command: str) -> str:
        """Return a hint how to add the remaining entries."""

    @abc.abstractmethod
    def close(self) -> None:
        """Close the input."""


class ArgumentSource(EntrySource):
    """The command-line arguments as entries."""

    def __init__(self, session: Session, data: Sequence[str]) -> None:
        self._entries = [os.fsencode(text) for text in data]
        for text in data:
            if os.path.isfile(text):  # noqa: PTH113 -- nearly never, and pathlib takes time
                name = shlex.quote(text)
                session.warn(f"the entry is the text {name}; for the file's lines: --file {name}")
                break
        self.size = sum(map(len, self._entries))

    def batches(self, stop: Stop) -> Iterator[list[bytes]]:
        if not stop:
            self.position = self.size or 0
            yield self._entries

    def close(self) -> None:
        self._entries = []

    def rest(self, pump: EntryPump, command: str) -> str:  # noqa: ARG002 -- arguments need no pipe
        return f"the arguments from number {pump.entries + 1} on"


class StreamSource(EntrySource):
    """The entries that are cut from a file or a pipe."""

    def __init__(
        self, stream: BinaryIO, name: str, framing: Framing, by: Cutter, start: bytes
    ) -> None:
        self._stream, self._name, self._framing, self._by = stream, name, framing, by
        self._start = start
        self.framing_name = framing.value
        self.size = _size(stream)
        self._last_byte = b""

    def progress(self, session: Session, what: str) -> Progress:
        # A bar would overwrite the line that the user types.
        return Progress() if self._stream.isatty() else super().progress(session, what)

    def close(self) -> None:
        if self._name != "-":
            self._stream.close()

    def batches(self, stop: Stop) -> Iterator[list[bytes]]:
        data = self._start
        while data and not stop:
            self.position += len(data)
            self._last_byte = data[-1:]
            entries = self._by.feed(data)
            if entries:
                yield entries
            data = stop.wait_for(read_some, self._stream) or b""
        if not stop:
            entries = self._by.end()
            if entries:
                yield entries

    def rest(self, pump: EntryPump, command: str) -> str:
        source = "the input" if self._name == "-" else self._name
        if self._framing.value == "lines":
            return f"tail -n +{pump.entries + 1} {source} | {command}"
        return f"{source} from entry {pump.entries + 1} on | {command}"

    def read_whole(self) -> None:
        """Read the complete input as one entry. Only the end shows whether it is too large.

        Raises:
            FramingError: the input is too large.
        """
        data = self._start
        while data:
            self.position += len(data)
            self._by.feed(data)
            data = read_some(self._stream)
        self._start = b""

    def note_missing_newline(self, session: Session) -> None:
        if self._framing.value == "lines" and self._last_byte not in {b"", b"\n"}:
            session.note(
                "note: the last line has no newline; `bkctl ledger read` will print one after it"
            )


def open_source(
    session: Session, path: str | None, framing: str | None, chunk_bytes: int | None
) -> StreamSource:
    """Open a file or stdin, and choose the framing from the options or the first bytes.

    Raises:
        NothingFoundError: the file does not exist.
        OSError: the file cannot be read.
        FramingError: the input does not fit the framing.
    """
    if framing is not None and chunk_bytes is not None:
        raise UsageError(f"--{framing} and --chunks: only one of them can be given")
    try:
        stream: Any = session.input.bytes if path is None else Path(path).open("rb")  # noqa: SIM115
    except FileNotFoundError as error:
        raise NothingFoundError(
            f"{path}: No such file or directory",
            next_step="give the path of a file; `-` reads stdin",
        ) from error
    start = read_some(stream)
    if chunk_bytes is not None:
        chosen = Framing.CHUNKS
    elif framing is not None:
        chosen = Framing(framing)
    elif looks_binary(start):
        chosen = Framing.CHUNKS
        session.note("note: the input is binary, so it is cut into chunks of 1 MiB (--chunks)")
    else:
        chosen = Framing.LINES
    entry_bytes_max = session.config.frame_bytes_max - _FRAME_OVERHEAD_BYTES
    by = cutter(chosen, entry_bytes_max=entry_bytes_max, chunk_bytes=chunk_bytes or CHUNK_BYTES)
    source = StreamSource(stream, path or "-", chosen, by, start)
    if chosen is Framing.WHOLE:
        try:
            source.read_whole()
        except BaseException:
            source.close()
            raise
    return source


def read_some(stream: Any) -> bytes:
    """Read the available bytes; wait only if there are none. Empty at the end."""
    read = getattr(stream, "read1", stream.read)
    data: bytes = read(READ_BYTES)
    return data


def _size(stream: BinaryIO) -> int | None:
    """Return the size of a regular file; None for a pipe."""
    try:
        return os.fstat(stream.fileno()).st_size or None
    except OSError:
        return None
