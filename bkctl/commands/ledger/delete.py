"""`ledger delete`: ledgers are deleted after safety checks and a confirmation."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from bkclient.admin import cluster_operations
from bkclient.client import Client
from bkclient.errors import (
    MetadataSerializationError,
    MetadataVersionError,
    NoSuchLedgerError,
)
from bkclient.log.ledger_list import LOG_KEY
from bkclient.metadata.versions_and_watches import Versioned
from bkctl.cli.ledger_options import LOG_LEDGERS, OPEN_LEDGERS
from bkctl.commands.ledger import id_arguments as ledger_ids
from bkctl.errors import ConflictError, PartlyDoneError, RefusedError
from bkctl.ledger_ids import format_ledger_id
from bkctl.output.units import counted, human_bytes, human_duration
from bkctl.output.views import LEDGER, Kind, field, shown
from bkctl.session.safety_checks import some_names
from bkctl.session.session import Session
from wire.control_characters import printable
from wire.ids import LedgerId
from wire.ledger_metadata import LedgerMetadata

CUSTOM_KEYS_SHOWN: Final = 3
"""Keys of custom metadata in the question about one ledger, at most."""

CUSTOM_CHARS_MAX: Final = 40
"""Characters shown of a key or a value, at most."""


@shown("ledgers", sentence=lambda v: f"ledger {v.ledger_id} deleted")
class LedgerDeleted:
    """A ledger whose metadata was deleted."""

    ledger_id: LedgerId = field(LEDGER)
    state: str | None = field("The ledger's state before the deletion.")
    last_entry: int | None = field("The ledger's last entry.")
    length: int | None = field("Bytes of payload.", kind=Kind.BYTES)


@attrs.frozen
class DeletionCandidate:
    """A ledger to delete, with its metadata before the confirmation.

    ``stored`` is ``None`` if the metadata cannot be read; ``unreadable`` is then the error.
    """

    ledger_id: LedgerId
    stored: Versioned[LedgerMetadata] | None
    unreadable: MetadataSerializationError | None = None


def delete(
    session: Session, words: Sequence[Any], from_file: str | None, force: Sequence[str]
) -> None:
    """Delete ledgers for good; `-` reads ids from stdin.

    Of several ledgers, those that do not exist are named, and the others are deleted: the command
    can be repeated after an interruption.

    Raises:
        NoSuchLedgerError: none of the ledgers exists.
        PartlyDoneError: some of the ledgers do not exist, or could not be deleted.
    """
    chosen = ledger_ids.ids_from_arguments(session, words, from_file)
    wanted, missing = _candidates(session, chosen)
    lines = [*map(loss, wanted), *_together(wanted)]
    if session.dry_run and wanted:  # The plan also lists ledgers that the checks below refuse.
        session.plan(f"delete {line}" for line in lines)
    _refuse_open(wanted, forced=OPEN_LEDGERS in force)
    _refuse_of_logs(wanted, forced=LOG_LEDGERS in force)
    if not wanted:
        session.note("no ledger to delete")
        return
    if session.dry_run:
        return
    session.confirm(
        ["This will be lost for good:", *(f"  {line}" for line in lines)],
        f"Delete {len(wanted)} ledger{'s' if len(wanted) != 1 else ''}?",
        proof=_proof_of(session, wanted),
    )
    if force:
        session.warn(f"overridden: {', '.join(force)}")
    _delete_all(session, wanted)
    if missing:
        raise PartlyDoneError(
            f"{counted(len(missing), 'ledger')} did not exist before: {some_names(missing)}"
        )


def _candidates(
    session: Session, ids: Iterable[LedgerId]
) -> tuple[list[DeletionCandidate], list[LedgerId]]:
    """Return the ledgers to delete, and those that do not exist, with a warning.

    Raises:
        NoSuchLedgerError: none of the ledgers exists.
    """
    found: list[DeletionCandidate] = []
    missing: dict[LedgerId, NoSuchLedgerError] = {}
    for ledger_id in dict.fromkeys(ids):
        session.about = f"ledger {ledger_id}"
        try:
            stored = session.call(cluster_operations.read_metadata, ledger_id)
        except MetadataSerializationError as error:
            found.append(DeletionCandidate(ledger_id, None, error))
        except NoSuchLedgerError as error:
            missing[ledger_id] = error
        else:
            found.append(DeletionCandidate(ledger_id, stored))
    if missing and not found:
        raise next(iter(missing.values()))
    for absent in missing.values():
        session.warn(str(absent))
    if len(found) != 1 or missing:
        session.about = ""
    return found, [*missing]


def _together(found: Sequence[DeletionCandidate]) -> list[str]:
    """Return the line with the total of several ledgers; no line for one ledger."""
    known = [one.stored.value for one in found if one.stored]
    entries = sum(one.last_entry_id + 1 for one in known if one.last_entry_id is not None)
    size = human_bytes(sum(one.length for one in known))
    total = f"{len(found)} ledgers in all, {counted(entries, 'entry')}, {size}"
    return [total] if len(found) > 1 else []


def _refuse_open(found: Sequence[DeletionCandidate], *, forced: bool) -> None:
    """Refuse to delete ledgers that may have a writer.

    Raises:
        RefusedError: a ledger is not closed, or its state is unknown, and the check is not
            overridden.
    """
    unknown = [one for one in found if one.unreadable is not None]
    if unknown and not forced:
        raise RefusedError(
            f"{unknown[0].unreadable}: whether a client still adds to the ledger is unknown"
            f"{_all_kept(found)}",
            next_step="--force open-ledgers deletes it anyway",
        )
    alive = [one.ledger_id for one in found if one.stored and not one.stored.value.is_closed]
    if alive and not forced:
        raise RefusedError(
            f"ledger {', '.join(map(str, alive[:10]))} is not closed: a client may still add to it"
            f"{_all_kept(found)}",
            next_step=f"`bkctl ledger recover {alive[0]}` first, or --force open-ledgers",
        )


def _refuse_of_logs(found: Sequence[DeletionCandidate], *, forced: bool) -> None:
    """Refuse to delete ledgers that belong to a log.

    Raises:
        RefusedError: a ledger belongs to a log, and the check is not overridden.
    """
    logs = {one.ledger_id: one.stored.value.custom.get(LOG_KEY) for one in found if one.stored}
    ids = [ledger_id for ledger_id, name in logs.items() if name is not None]
    if ids and not forced:
        name = (logs[ids[0]] or b"").decode(errors="backslashreplace")
        raise RefusedError(
            f"ledger {', '.join(map(str, ids[:10]))} is a part of log {name}, which cannot be "
            f"read without it{_all_kept(found)}",
            next_step=f"`bkctl log trim {name} --before INDEX:0` drops its oldest ledgers, or "
            "--force log-ledgers",
        )


def _all_kept(found: Sequence[DeletionCandidate]) -> str:
    """Return the end of a refusal: if several ledgers are named, none of them was deleted."""
    ids = [one.ledger_id for one in found]
    return f"; none of these ledgers was deleted: {some_names(ids)}" if len(ids) > 1 else ""


def loss(one: DeletionCandidate) -> str:
    """Return a line that describes a ledger to delete."""
    if one.stored is None:
        return f"ledger {one.ledger_id}: unreadable metadata, entries and size unknown"
    metadata = one.stored.value
    age = "" if metadata.ctime_ms is None else f", {human_duration(_age_s(metadata))} old"
    holds = (
        f"{counted(metadata.last_entry_id + 1, 'entry')}, {human_bytes(metadata.length)}"
        if metadata.last_entry_id is not None
        else f"{metadata.state.word}, length not known"
    )
    return f"ledger {one.ledger_id}: {holds}{age}{_custom(metadata.custom)}"


def _custom(custom: Mapping[str, bytes]) -> str:
    """Return the first keys of custom metadata with their values, printable and shortened."""
    known = [(key, value) for key, value in custom.items() if not key.startswith("bkctl.")]
    shown = known[:CUSTOM_KEYS_SHOWN]
    more = len(known) - len(shown)
    pairs = [f"{shortened(key)}={shortened(value)}" for key, value in shown]
    return "".join(f", {pair}" for pair in pairs) + (f", and {more} more" if more else "")


def shortened(value: str | bytes) -> str:
    """Return a key or a value of custom metadata, printable and not too long."""
    start = value[: CUSTOM_CHARS_MAX + 1]
    text = start.decode(errors="backslashreplace") if isinstance(start, bytes) else start
    text = printable(text)
    return text if len(text) <= CUSTOM_CHARS_MAX else f"{text[: CUSTOM_CHARS_MAX - 3]}..."


def _age_s(metadata: LedgerMetadata) -> float:
    assert metadata.ctime_ms is not None
    return max(0.0, time.time() - metadata.ctime_ms / 1000)


def _proof_of(session: Session, found: Sequence[DeletionCandidate]) -> str:
    """Return the proof to type: one ledger's id, or for several the cluster's instance id."""
    if len(found) == 1:
        return format_ledger_id(found[0].ledger_id, session.options.ledger_id_format)
    return session.call(instance_id)


async def instance_id(client: Client) -> str:
    """Return the cluster's instance id, or the URI of the metadata if it has no instance id.

    The user types it to confirm a loss.
    """
    found = await client.store.instance_id()
    return found or client.store.uri


def _delete_all(session: Session, found: Sequence[DeletionCandidate]) -> None:
    """Delete ledgers one by one, printing each.

    Raises:
        PartlyDoneError: some ledgers could not be deleted.
        BookKeeperError: the only ledger could not be deleted.
        MetadataUnavailableError: the deletion ended at a ledger, without the ledgers that follow.
    """
    by_id = {one.ledger_id: one for one in found}

    def delete_one(session: Session, ledger_id: LedgerId) -> LedgerDeleted:
        session.about = f"ledger {ledger_id}"
        session.call(_delete, by_id[ledger_id])
        return _deleted(by_id[ledger_id])

    if len(found) == 1:
        session.emit(delete_one(session, found[0].ledger_id))
        return
    failures: list[str] = []
    session.emit_all(ledger_ids.outcomes(session, by_id, delete_one, failures), LedgerDeleted)
    ledger_ids.require_no_failures(session, failures)


async def _delete(client: Client, one: DeletionCandidate) -> None:
    if one.stored is None:
        await client.store.remove_ledger(one.ledger_id)
        return
    try:
        await client.store.remove_ledger(one.ledger_id, one.stored.version)
    except MetadataVersionError as error:
        raise ConflictError(
            "the metadata changed after it was read; the ledger was not deleted",
            next_step="run the command again",
        ) from error


def _deleted(one: DeletionCandidate) -> LedgerDeleted:
    if one.stored is None:
        return LedgerDeleted(one.ledger_id, None, None, None)
    metadata = one.stored.value
    return LedgerDeleted(
        one.ledger_id,
        metadata.state.word,
        metadata.last_entry_id,
        metadata.length if metadata.is_closed else None,
    )
