"""`ledger metadata dump` and `restore`."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from bkclient.admin import cluster_operations
from bkclient.errors import LedgerExistsError, MetadataVersionError, NoSuchLedgerError
from bkclient.metadata.versions_and_watches import Versioned
from bkctl.commands.ledger.delete import instance_id
from bkctl.errors import ConflictError, RefusedError, file_errors
from bkctl.output.atomic_file import write_atomically
from bkctl.output.views import LEDGER, Kind, field, shown
from bkctl.session.session import Session
from wire.errors import FormatError
from wire.ids import LedgerId
from wire.ledger_metadata import LedgerMetadata, decode_metadata, encode_metadata


@shown(
    "dumps",
    id="file",
    sentence=lambda v: f"metadata of ledger {v.ledger_id}, version {v.version}, in {v.file}",
)
class MetadataDumped:
    """A ledger's metadata in a file."""

    ledger_id: LedgerId = field(LEDGER)
    file: str = field("Path of the file.")
    size: int = field("Size of the file.", kind=Kind.BYTES)
    version: int = field("The version of the metadata.")


def _restored(v: MetadataRestored) -> str:
    if v.how == "unchanged":
        return f"ledger {v.ledger_id}: nothing to change, it has this metadata"
    kept = f"; the old metadata is in {v.backup}" if v.backup else ""
    return f"metadata of ledger {v.ledger_id} {v.how}, version {v.version}{kept}"


@shown("ledgers", sentence=_restored)
class MetadataRestored:
    """A ledger whose metadata was stored from a file.

    ``backup`` is the file with the old metadata.
    """

    ledger_id: LedgerId = field(LEDGER)
    how: str = field("created, replaced or unchanged.")
    version: int = field("The version of the metadata now.")
    backup: str | None = field(
        "Path of the file with the old metadata.", optional=True, default=None
    )


def dump(session: Session, ledger_id: LedgerId, path: str) -> None:
    """Write a ledger's metadata to a file, which appears only when it is complete.

    Raises:
        RefusedError: the output is stdout, and stdout is a terminal.
    """
    session.about = f"ledger {ledger_id}"
    if path == "-" and session.host.stdout.isatty():
        raise RefusedError(
            "the metadata is binary, and contains the ledger's password; it is not shown on a "
            "terminal",
            next_step=f"`bkctl ledger show {ledger_id} -o json` shows it as text",
        )
    stored = session.call(cluster_operations.read_metadata, ledger_id)
    data = encode_metadata(stored.value)
    if path == "-":
        session.host.stdout.buffer.write(data)
        session.host.stdout.buffer.flush()
        return
    if session.plans_only([f"write the metadata of ledger {ledger_id} to {path}"]):
        return
    write_atomically(path, data, private=True)
    session.emit(MetadataDumped(ledger_id, path, len(data), stored.version))


def restore(
    session: Session, ledger_id: LedgerId, path: str, *, replace: bool, backup: str | None
) -> None:
    """Create a ledger's metadata from a file, or replace it after showing the differences.

    Raises:
        NothingFoundError: the file does not exist.
        RefusedError: the file contains no metadata, or the user did not confirm.
        ConflictError: the ledger exists, or its metadata changed meanwhile.
    """
    session.about = f"ledger {ledger_id}"
    new = _read(session, path)
    try:
        stored = session.call(cluster_operations.read_metadata, ledger_id)
    except NoSuchLedgerError:
        _create(session, ledger_id, new)
        return
    changes = list(differences(stored.value, new))
    if not changes:
        session.emit(MetadataRestored(ledger_id, "unchanged", stored.version))
    elif not replace:
        raise ConflictError(
            f"the ledger exists, and differs in {', '.join(c.field for c in changes)}",
            next_step=f"look at it: {session.options.again('--replace', '--dry-run')}",
        )
    else:
        kept = backup or f"{'stdin' if path == '-' else path}.before-{stored.version}"
        _replace(session, ledger_id, stored, new, changes, kept)


def _create(session: Session, ledger_id: LedgerId, new: LedgerMetadata) -> None:
    if session.plans_only([f"create ledger {ledger_id}: {_summary(new)}"]):
        return
    try:
        version = session.call(lambda client: client.store.create_ledger(ledger_id, new))
    except LedgerExistsError as error:
        raise ConflictError(
            "another process has created it just now", next_step="run the command again"
        ) from error
    session.emit(MetadataRestored(ledger_id, "created", version))


def _replace(
    session: Session,
    ledger_id: LedgerId,
    stored: Versioned[LedgerMetadata],
    new: LedgerMetadata,
    changes: list[MetadataChange],
    kept: str,
) -> None:
    lines = [f"{one.field}: {one.old} becomes {one.new}" for one in changes]
    if session.plans_only([f"change the {line}" for line in lines]):
        return
    session.confirm(
        [f"The metadata of ledger {ledger_id} changes:", *(f"  {line}" for line in lines)],
        f"Replace it? The present metadata is saved to {kept}.",
        proof=session.call(instance_id),
    )
    write_atomically(kept, encode_metadata(stored.value), only_new=True, private=True)
    try:
        version = session.call(
            lambda client: client.store.write_ledger(ledger_id, new, stored.version)
        )
    except MetadataVersionError as error:
        raise ConflictError(
            "the metadata changed after it was read, and was not replaced",
            next_step="run the command again",
        ) from error
    session.emit(MetadataRestored(ledger_id, "replaced", version, kept))


# Differences ------------------------------------------------------------------------------------


@attrs.frozen
class MetadataChange:
    """One field that differs, as texts to print."""

    field: str
    old: str
    new: str


def differences(old: LedgerMetadata, new: LedgerMetadata) -> Iterator[MetadataChange]:
    """Yield the differences, field by field; of a password only that it differs."""
    for one in attrs.fields(LedgerMetadata):
        before, after = getattr(old, one.name), getattr(new, one.name)
        if before == after or one.name in _NOT_COMPARED:
            continue
        if one.name == "fragments":
            yield from _of_fragments(old, new)
        elif one.name == "password":
            yield MetadataChange("password", "one", "another")
        else:
            yield MetadataChange(one.name, _text(before), _text(after))


_NOT_COMPARED = {"ctime_ms", "store_ctime", "creator_token"}
"""Fields that are ignored. The store knows when a ledger was created, even if its metadata does not
say so. The token belongs to the attempt to create the ledger; no client reads it later.
"""


def _of_fragments(old: LedgerMetadata, new: LedgerMetadata) -> Iterator[MetadataChange]:
    before = {one.first_entry_id: one.ensemble for one in old.fragments}
    after = {one.first_entry_id: one.ensemble for one in new.fragments}
    for first in sorted({*before, *after}):
        if before.get(first) != after.get(first):
            yield MetadataChange(
                f"fragment from entry {first}", _text(before.get(first)), _text(after.get(first))
            )


def _text(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, dict):
        pairs = (f"{k}={v.decode(errors='backslashreplace')}" for k, v in sorted(value.items()))
        return " ".join(pairs) or "none"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return str(getattr(value, "name", value)).lower()


def _summary(new: LedgerMetadata) -> str:
    quorums = f"{new.ensemble_size}/{new.write_quorum}/{new.ack_quorum}"
    return f"{_text(new.state)}, {quorums}, last entry {_text(new.last_entry_id)}"


# Files ------------------------------------------------------------------------------------------


def _read(session: Session, path: str) -> LedgerMetadata:
    if path == "-":
        data = session.input.bytes.read()
    else:
        with file_errors(path), open(path, "rb") as file:  # noqa: PTH123
            data = file.read()
    try:
        return decode_metadata(data)
    except FormatError as error:
        raise RefusedError(f"{path} does not hold the metadata of a ledger: {error}") from error
