"""What the ledger commands do: the steps between parsed options and printed values.

Functions whose first argument is a ``client`` are coroutines for the reactor's thread, given to
``Session.call``. Those that take a ``session`` run on the main thread and block.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from bkclient.admin import handover, operations
from bkclient.admin.ledger_scan import read_ledgers
from bkclient.errors import LedgerIdOverflowError, MetadataVersionError
from bkclient.log.ledger_list import LOG_KEY
from bkctl.commands.ledger.columns import LedgerDetails, LedgerSummary
from bkctl.commands.ledger.outcomes import (
    EntriesAdded,
    LedgerClosed,
    LedgerCreated,
    LedgerDeleted,
    LedgerFenced,
)
from bkctl.errors import (
    ConflictError,
    NothingFoundError,
    PartlyDoneError,
    RefusedError,
    UsageError,
)
from bkctl.ledger_ids import format_ledger_id
from bkctl.output.units import counted, human_bytes, human_duration
from wire.codes import DigestType, LedgerState
from wire.errors import BookKeeperError
from wire.ids import EntryId, LedgerId
from wire.ledger_metadata import LedgerMetadata

if TYPE_CHECKING:
    from bkclient.client import Client
    from bkclient.ledger.recovery import RecoveryProgress
    from bkclient.ledger.writer import LedgerWriter
    from bkclient.metadata.api import Versioned
    from bkctl.session.session import Session

# Create ----------------------------------------------------------------------------------------


@attrs.frozen
class NewLedger:
    """How a new ledger is to be made."""

    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    digest_type: DigestType
    password: bytes = attrs.field(repr=False)
    custom: Mapping[str, bytes] = attrs.field(factory=dict)
    ledger_id: LedgerId | None = None

    def __str__(self) -> str:
        meta = "".join(f", {key}={value.decode()}" for key, value in self.custom.items())
        return (
            f"ensemble {self.ensemble_size}, write quorum {self.write_quorum}, ack quorum "
            f"{self.ack_quorum}, digest {self.digest_type.name.lower()}{meta}"
        )

    def with_custom(self, key: str, text: str) -> NewLedger:
        """Return the same with one more piece of custom metadata."""
        return attrs.evolve(self, custom={**self.custom, key: text.encode()})


def new_ledger(
    session: Session,
    *,
    ensemble_size: int,
    write_quorum: int,
    ack_quorum: int,
    digest: str,
    password_file: str | None,
    meta: Sequence[tuple[str, str]],
    wanted_id: LedgerId | None,
) -> NewLedger:
    """Return what the options of ``ledger create`` ask for.

    Raises:
        UsageError: the quorums do not fit, or the password file cannot be read.
    """
    if not ensemble_size >= write_quorum >= ack_quorum:
        raise UsageError(
            f"-E {ensemble_size} -W {write_quorum} -A {ack_quorum}: these do not fit",
            next_step="ensemble size >= write quorum >= ack quorum",
        )
    return NewLedger(
        ensemble_size=ensemble_size,
        write_quorum=write_quorum,
        ack_quorum=ack_quorum,
        digest_type=DigestType[digest.upper()],
        password=session.questions.password(password_file),
        custom={key: text.encode() for key, text in meta},
        ledger_id=wanted_id,
    )


def warn_of_chosen_id(session: Session, new: NewLedger) -> None:
    """Warn where a ledger of the chosen id may have existed."""
    if new.ledger_id is None:
        return
    generated: LedgerId | None = session.call(_generated_id)
    if generated is not None and new.ledger_id < generated:
        session.warn(
            f"ledger {new.ledger_id} may have existed: a writer of a deleted ledger of this id "
            "could still close or add to the new one; without --ledger-id the id is a new one"
        )


async def _generated_id(client: Client) -> LedgerId | None:
    """Return a new id, which is used up; None where the layout has no more."""
    try:
        return await client.store.allocate_ledger_id()
    except LedgerIdOverflowError:
        return None


async def create(client: Client, new: NewLedger) -> LedgerCreated:
    """Create a ledger that no writer has: the first one to claim it will."""
    ledger_id, metadata = await handover.create_handed_over(client, **_as_options(new))
    return LedgerCreated(
        ledger_id, new.ensemble_size, new.write_quorum, new.ack_quorum, metadata.ensemble
    )


async def create_for_writing(client: Client, new: NewLedger) -> LedgerWriter:
    """Create a ledger for this process to write and close."""
    return await client.create_ledger(**_as_options(new))


def _as_options(new: NewLedger) -> dict[str, Any]:
    return {field.name: getattr(new, field.name) for field in attrs.fields(NewLedger)}


# Add -------------------------------------------------------------------------------------------


def check_handed_over(session: Session, ledger_id: LedgerId) -> None:
    """Refuse a ledger that cannot be added to.

    Raises:
        ClientError: it is not open, or its last writer did not hand it over.
    """
    handover.handed_over(ledger_id, metadata_of(session, ledger_id))


async def close(_client: Client, writer: LedgerWriter) -> LedgerMetadata:
    """Close the ledger of our own writer."""
    return await writer.close()


class Feed:
    """Gives batches to a writer in order; lives on the reactor's thread.

    A batch is taken while the next one is being read; the writer itself bounds what is in flight.
    """

    def __init__(self, writer: LedgerWriter) -> None:
        self.writer = writer
        self._failure: Failure | None = None
        self._last_given: int = writer.last_add_pushed

    async def push(self, payloads: Sequence[bytes]) -> None:
        """Begin to add a batch, once all of the one before has been taken.

        Raises:
            ClientError: an add has failed.
        """
        await self._all_taken()
        self._last_given += len(payloads)
        self.writer.add_many(payloads).addErrback(self._fail)

    async def drain(self) -> None:
        """Wait until all of it is confirmed.

        Raises:
            ClientError: an add has failed.
        """
        await self._all_taken()
        await self.writer.drain()
        self._raise()

    async def _all_taken(self) -> None:
        """Wait until everything has its entry id: or two batches could change places."""
        self._raise()
        while self.writer.last_add_pushed < self._last_given:
            await self.writer.room()
            await deferLater(self.writer.clock, 0)
            self._raise()

    def _fail(self, failure: Failure) -> None:
        self._failure = self._failure or failure

    def _raise(self) -> None:
        if self._failure is not None:
            self._failure.raiseException()


async def push(_client: Client, feed: Feed, payloads: Sequence[bytes]) -> None:
    """Run ``Feed.push``."""
    await feed.push(payloads)


async def drain(_client: Client, feed: Feed) -> None:
    """Run ``Feed.drain``."""
    await feed.drain()


def added(
    writer: LedgerWriter, first: int, entries: int, size: int, seconds: float
) -> EntriesAdded:
    """Return what one ``ledger add`` did."""
    return EntriesAdded(
        ledger_id=writer.ledger_id,
        first=EntryId(first) if entries else None,
        last=EntryId(first + entries - 1) if entries else None,
        entries=entries,
        size=size,
        seconds=seconds,
    )


# Look ------------------------------------------------------------------------------------------


async def summaries(client: Client, ids: Sequence[LedgerId]) -> list[LedgerSummary]:
    """Read the metadata of ledgers, many at a time; those that are gone by now are left out.

    A ledger whose metadata cannot be read comes without.
    """
    return [
        LedgerSummary(one.ledger_id, one.metadata) for one in await read_ledgers(client.store, ids)
    ]


def details(session: Session, ids: Iterable[LedgerId]) -> Iterator[LedgerDetails]:
    """Yield each ledger with all that is shown, in the order of ``ids``."""
    for ledger_id in ids:
        session.about = f"ledger {ledger_id}"
        stored: Versioned[LedgerMetadata] = session.call(operations.read_metadata, ledger_id)
        yield LedgerDetails(
            ledger_id,
            stored.value,
            stored.version,
            stored.value.password if session.options.show_secrets else None,
        )


def metadata_of(session: Session, ledger_id: LedgerId) -> LedgerMetadata:
    """Return a ledger's metadata."""
    stored: Versioned[LedgerMetadata] = session.call(operations.read_metadata, ledger_id)
    return stored.value


# Close, fence, recover -------------------------------------------------------------------------


class Close(enum.Enum):
    """What it takes to close a ledger."""

    ALREADY = enum.auto()
    CLAIM = enum.auto()
    """Its last writer handed it over: an ordinary close will do."""
    RECOVER = enum.auto()
    """It may have a writer, or had one that ended without a word."""


def way_to_close(session: Session, ledger_id: LedgerId) -> tuple[Close, LedgerMetadata]:
    """Return what it takes to close a ledger, and its metadata."""
    metadata = metadata_of(session, ledger_id)
    if metadata.is_closed:
        return Close.ALREADY, metadata
    if metadata.state is LedgerState.OPEN and handover.is_handed_over(metadata):
        return Close.CLAIM, metadata
    return Close.RECOVER, metadata


async def claim_and_close(client: Client, ledger_id: LedgerId) -> LedgerClosed:
    """Close a ledger that was handed over."""
    writer = await handover.claim(client, ledger_id)
    return closed(ledger_id, await writer.close(), "closed")


def closed(ledger_id: LedgerId, metadata: LedgerMetadata, how: str) -> LedgerClosed:
    """Return what is to be told of a closed ledger."""
    assert metadata.last_entry_id is not None, metadata
    return LedgerClosed(ledger_id, how, metadata.last_entry_id, metadata.length)


def refuse_closed(metadata: LedgerMetadata) -> None:
    """Refuse to fence what cannot grow anyway.

    Raises:
        ConflictError: the ledger is closed.
    """
    if metadata.is_closed:
        raise ConflictError("it is closed, so nobody can add to it", next_step="nothing is to do")


async def fence(client: Client, ledger_id: LedgerId) -> LedgerFenced:
    """Mark a ledger as in recovery and fence it on its last ensemble."""
    done = await operations.fence_ledger(client, ledger_id)
    return LedgerFenced(
        ledger_id=ledger_id,
        state="in-recovery",
        answered=done.fenced,
        missing={bookie: str(error) for bookie, error in done.failed.items()},
        covered=done.covered,
    )


def recover(session: Session, ledger_id: LedgerId) -> LedgerClosed:
    """Recover and close a ledger, with a progress display."""
    with session.progress(f"recovering ledger {ledger_id}", unit="entries") as progress:

        def report(step: RecoveryProgress) -> None:
            progress.update(max(0, step.recovered))

        metadata: LedgerMetadata = session.call(operations.recover_ledger, ledger_id, report)
    return closed(ledger_id, metadata, "recovered and closed")


# Delete ----------------------------------------------------------------------------------------


@attrs.frozen
class DeletionCandidate:
    """A ledger that is to be deleted, as it was when that was decided."""

    ledger_id: LedgerId
    stored: Versioned[LedgerMetadata]


def doomed(session: Session, ids: Iterable[LedgerId]) -> list[DeletionCandidate]:
    """Return the ledgers to delete.

    Raises:
        NoSuchLedgerError: one of them is not there; nothing has been deleted then.
    """
    found = []
    for ledger_id in dict.fromkeys(ids):
        session.about = f"ledger {ledger_id}"
        found.append(
            DeletionCandidate(ledger_id, session.call(operations.read_metadata, ledger_id))
        )
    if not found:
        raise NothingFoundError("no ledger ids on stdin")
    return found


def refuse_open(found: Sequence[DeletionCandidate], *, forced: bool) -> None:
    """Refuse ledgers that may have a writer.

    Raises:
        RefusedError: one is not closed, and the check is not overridden.
    """
    alive = [one.ledger_id for one in found if not one.stored.value.is_closed]
    if alive and not forced:
        raise RefusedError(
            f"ledger {', '.join(map(str, alive[:10]))}: not closed, so a writer may be at work",
            next_step=f"`bkctl ledger recover {alive[0]}` first, or --force open-ledger",
        )


def refuse_of_logs(found: Sequence[DeletionCandidate], *, forced: bool) -> None:
    """Refuse ledgers that a log is made of.

    Raises:
        RefusedError: there is one, and the check is not overridden.
    """
    logs = {one.ledger_id: one.stored.value.custom.get(LOG_KEY) for one in found}
    ids = [ledger_id for ledger_id, name in logs.items() if name is not None]
    if ids and not forced:
        name = (logs[ids[0]] or b"").decode(errors="backslashreplace")
        raise RefusedError(
            f"ledger {', '.join(map(str, ids[:10]))}: part of log {name}, which cannot be read "
            "without it",
            next_step=f"`bkctl log trim {name} --before INDEX:0` drops its oldest ledgers, or "
            "--force log-ledger",
        )


def loss(one: DeletionCandidate) -> str:
    """Return one line about a ledger that would be deleted."""
    metadata = one.stored.value
    age = "" if metadata.ctime_ms is None else f", {human_duration(_age_s(metadata))} old"
    custom = "".join(
        f", {key}={value.decode(errors='backslashreplace')}"
        for key, value in metadata.custom.items()
    )
    holds = (
        f"{counted(metadata.last_entry_id + 1, 'entry')}, {human_bytes(metadata.length)}"
        if metadata.last_entry_id is not None
        else f"{metadata.state.name.lower().replace('_', '-')}, length not known"
    )
    return f"ledger {one.ledger_id}: {holds}{age}{custom}"


def _age_s(metadata: LedgerMetadata) -> float:
    assert metadata.ctime_ms is not None
    return max(0.0, time.time() - metadata.ctime_ms / 1000)


def proof_of(session: Session, found: Sequence[DeletionCandidate]) -> str:
    """Return what has to be typed: the id of one ledger; for several the cluster's instance id."""
    if len(found) == 1:
        return format_ledger_id(found[0].ledger_id, session.options.ledger_id_format)
    proof: str = session.call(instance_id)
    return proof


async def instance_id(client: Client) -> str:
    """Return the cluster's instance id, which is typed to confirm a loss."""
    found = await client.store.instance_id()
    return found or client.store.uri


def delete(session: Session, found: Sequence[DeletionCandidate]) -> None:
    """Delete ledgers one by one, printing each.

    Raises:
        PartlyDoneError: some could not be deleted.
        BookKeeperError: the only one could not be.
    """
    failures: list[tuple[LedgerId, BookKeeperError]] = []

    def work() -> Iterator[LedgerDeleted]:
        for one in found:
            session.about = f"ledger {one.ledger_id}"
            try:
                session.call(_delete, one)
            except BookKeeperError as error:
                if len(found) == 1:
                    raise
                failures.append((one.ledger_id, error))
            else:
                yield _deleted(one)

    session.emit_all(work(), LedgerDeleted)
    session.about = ""
    if failures:
        first = "; ".join(f"ledger {ledger_id}: {error}" for ledger_id, error in failures[:3])
        raise PartlyDoneError(f"{len(failures)} of {len(found)} were not deleted: {first}")


async def _delete(client: Client, one: DeletionCandidate) -> None:
    try:
        await client.store.remove_ledger(one.ledger_id, one.stored.version)
    except MetadataVersionError as error:
        raise ConflictError(
            "it has changed since it was looked at, and was not deleted", next_step="look again"
        ) from error


def _deleted(one: DeletionCandidate) -> LedgerDeleted:
    metadata = one.stored.value
    return LedgerDeleted(
        one.ledger_id,
        metadata.state.name.lower().replace("_", "-"),
        metadata.last_entry_id,
        metadata.length if metadata.is_closed else None,
    )
