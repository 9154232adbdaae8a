"""``bkctl ledger read`` and ``tail``: entries to a terminal, a pipe or a file."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from bkctl.environment_and_streams import Host
from bkctl.errors import UsageError
from bkctl.output.atomic_file import replacing_file

if TYPE_CHECKING:
    from bkctl.commands.ledger.columns import EntryRecord
    from bkctl.commands.ledger.entry_output import Form
    from bkctl.session.session import Session
    from wire.digest import Entry
    from wire.ids import BookieId, LedgerId
    from wire.ledger_metadata import LedgerMetadata

_RECORD_FORMS = frozenset({"table", "wide", "json", "jsonl", "yaml", "csv", "id"})


def read(
    session: Session,
    *,
    ledger_id: LedgerId,
    entries: tuple[int, int | None] | None,
    first: int | None,
    last: int | None,
    unconfirmed: bool,
    recover: bool,
    bookie: BookieId | None,
    out: str | None,
    password_file: str | None,
    form: str | None,
    delimiter: str | None,
    pattern: str | None,
) -> None:
    """Print the payloads of LEDGER_ID's entries."""
    from bkctl.commands.ledger import entry_ranges
    from bkctl.commands.ledger.list_and_show import metadata_of

    session.about = f"ledger {ledger_id}"
    if entries is not None and (first is not None or last is not None):
        raise UsageError("a range, and --first or --last: only one of them can be given")
    if entries is not None:
        first, last = entries
    metadata = metadata_of(session, ledger_id)
    if recover and not metadata.is_closed:
        from bkctl.commands.ledger.close import confirm_fencing

        if session.plans_only([f"recover and close ledger {ledger_id}", "print its entries"]):
            return
        question = f"Recover and close ledger {ledger_id}?"
        confirm_fencing(session, ledger_id, metadata, question)
    if session.dry_run and out is not None:
        session.plan([f"write the entries of ledger {ledger_id} to {out}"])
        return
    password = session.questions.password(password_file) if password_file else None
    reading = session.call(entry_ranges.open_ledger, ledger_id, recover=recover, password=password)
    chosen = entry_ranges.range_of(reading, first or 0, last, unconfirmed=unconfirmed)
    if last and first is None and last < entry_ranges.confirmed_end(reading):
        session.note(
            f"entries 0 to {last}; `bkctl ledger tail {ledger_id} -n {last}` prints the last {last}"
        )
    if first and last is None and entries is None:
        session.note(
            f"from entry {first} on; `bkctl ledger read {ledger_id} 0-{first - 1}` prints the first"
            f" {first}"
        )
    forms = choose_form(session, form, delimiter, pattern, metadata, to_file=out is not None)
    if bookie is None:
        found = entry_ranges.entries(session, reading, chosen)
        _print(session, ledger_id, found, forms, out, chosen.size)
        if last is None and not unconfirmed:
            entry_ranges.note_open_end(session, reading)
        return
    if chosen.last is None:
        raise UsageError(
            "--bookie with --unconfirmed needs the last entry", next_step="give --last as well"
        )
    from bkctl.commands.ledger.replicas.bookie_copies import CopiesOfBookie, print_compared

    if bookie == "all":
        others = (delimiter, pattern, out)
        if form not in {None, "hexdump"} or any(one is not None for one in others):
            raise UsageError(
                "--bookie all prints a table, or the bytes of each copy with --hexdump",
                next_step="--bookie ID prints the entries of one bookie in any form",
            )
        as_hexdump = form is not None
        print_compared(session, ledger_id, chosen.first, chosen.last, as_hexdump=as_hexdump)
        return
    copies = CopiesOfBookie(session, ledger_id, reading.metadata, bookie)
    _print(session, ledger_id, copies.entries(chosen.first, chosen.last), forms, out, None)
    copies.require_whole()


def _print(
    session: Session,
    ledger_id: LedgerId,
    found: Iterator[Entry],
    forms: Form,
    out: str | None,
    size: int | None,
) -> None:
    """Print entries as records or in a form, to stdout or to a file."""
    with session.progress(f"reading ledger {ledger_id}", total=size) as progress:
        as_records = session.options.output in _RECORD_FORMS
        if as_records and out is None:
            session.emit_all(_records(session, found), _record_kind())
            return
        counted = _counted(found, progress if _may_draw(session, out) else None)
        with _output(session, out) as stream:
            if as_records:
                _write_records(session, stream, counted)
            else:
                print_entries(stream, ledger_id, counted, forms)


def tail(
    session: Session,
    *,
    ledger_id: LedgerId,
    count: int,
    last: int | None,
    follow: bool,
    password_file: str | None,
    form: str | None,
    delimiter: str | None,
    pattern: str | None,
) -> None:
    """Print the last entries of a ledger; with ``follow``, also entries that are confirmed later.

    ``last`` is the older name of ``count``.
    """
    from bkctl.commands.ledger import entry_ranges
    from bkctl.commands.ledger.list_and_show import metadata_of

    session.about = f"ledger {ledger_id}"
    metadata = metadata_of(session, ledger_id)
    password = session.questions.password(password_file) if password_file else None
    reading = session.call(entry_ranges.open_ledger, ledger_id, password=password)
    forms = choose_form(session, form, delimiter, pattern, metadata, to_file=False)
    found = entry_ranges.tail(session, reading, count if last is None else last, follow=follow)
    if session.options.output in _RECORD_FORMS:
        session.emit_all(_records(session, found), _record_kind())
    else:
        print_entries(session.host.stdout.buffer, ledger_id, found, forms, flush_each=True)
    if not follow:
        entry_ranges.note_open_end(session, reading)


# Forms -----------------------------------------------------------------------------------------


def choose_form(
    session: Session,
    form: str | None,
    delimiter: str | None,
    pattern: str | None,
    metadata: LedgerMetadata | None,
    *,
    to_file: bool,
) -> Form:
    """Return the form that the options select, or the default for this ledger and output."""
    from bkctl.commands.ledger import entry_output
    from bkctl.commands.ledger.write import FRAMING_KEY

    if sum(option is not None for option in (form, delimiter, pattern)) > 1:
        raise UsageError(
            "only one of --raw, --lines, --hexdump, --delimiter, --format can be given"
        )
    if pattern is not None:
        return entry_output.formatted(pattern)
    if delimiter is not None:
        return entry_output.delimited(entry_output.unescape(delimiter))
    if form is None:
        form = _entry_form(session.options.entry_format)
    if form is None and not to_file and session.host.stdout.isatty():
        return entry_output.for_terminal
    if form is None:
        written_as = b"" if metadata is None else metadata.custom.get(FRAMING_KEY, b"")
        form = _FORM_OF_FRAMING.get(written_as, "lines")
    elif form == "raw" and not to_file and session.host.stdout.isatty():
        session.note("--raw ends no entry with a newline; --lines does")
    return {
        "raw": entry_output.raw,
        "lines": entry_output.delimited(b"\n"),
        "length-prefixed": entry_output.length_prefixed,
        "hexdump": entry_output.hexdump,
        "base64": lambda _ledger, _entry, payload: base64.b64encode(payload) + b"\n",
        "hex": lambda _ledger, _entry, payload: payload.hex().encode() + b"\n",
    }[form]


_FORM_OF_FRAMING = {b"chunks": "raw", b"whole": "raw"}


def _entry_form(entry_format: str | None) -> str | None:
    """Return the form that ``--entry-format`` means if no records are printed."""
    forms = {"string": "lines", "json": "lines", "hex": "hex", "base64": "base64", "raw": "raw"}
    return forms[entry_format] if entry_format else None


def _record_kind() -> type:
    from bkctl.commands.ledger.columns import EntryRecord

    return EntryRecord


def _records(session: Session, found: Iterable[Entry]) -> Iterator[EntryRecord]:
    from bkctl.commands.ledger.columns import EntryRecord

    for entry in found:
        text = record_text(session, entry.payload)
        yield EntryRecord(entry.ledger_id, entry.entry_id, entry.payload, entry.lac, text)


def record_text(session: Session, payload: bytes) -> Any:
    """Return a payload for a record: its beginning in a table, else see ``payload_value``."""
    from bkctl.commands.ledger.columns import preview

    if session.options.output in {"table", "wide"}:
        return preview(payload)
    return payload_value(payload, session.options.entry_format)


def payload_value(payload: bytes, entry_format: str | None) -> Any:
    """Return a payload in the form of ``--entry-format`` for a record; None for base64."""
    if entry_format == "hex":
        return payload.hex()
    if entry_format in {"string", "raw"}:
        return payload.decode(errors="backslashreplace")
    if entry_format == "json":
        try:
            return json.loads(payload)
        except ValueError:
            return payload.decode(errors="backslashreplace")
    return None


# Output ----------------------------------------------------------------------------------------


def print_entries(
    stream: BinaryIO,
    ledger_id: LedgerId,
    entries: Iterable[Entry],
    form: Form,
    *,
    flush_each: bool = False,
) -> None:
    """Write entries in a form, as they arrive."""
    sys.stdout.flush()
    for entry in entries:
        stream.write(form(ledger_id, entry.entry_id, entry.payload))
        if flush_each:
            stream.flush()
    stream.flush()


def _write_records(session: Session, stream: BinaryIO, entries: Iterable[Entry]) -> None:
    """Write entries to a file in the form of ``-o``."""
    from bkctl.output.emitter import Emitter

    text = io.TextIOWrapper(stream, encoding="utf-8", newline="\n")
    stdin, stderr = session.host.stdin, session.host.stderr
    host = Host(environ=session.host.environ, stdin=stdin, stdout=text, stderr=stderr)
    emitter = Emitter(session.options, host)
    emitter.many(_records(session, entries), _record_kind())
    emitter.finish()
    text.detach()


def _counted(found: Iterable[Entry], progress: Any) -> Iterator[Entry]:
    """Yield the entries, and report them to the progress display."""
    count = size = 0
    for entry in found:
        yield entry
        count, size = count + 1, size + len(entry.payload)
        if progress is not None and count % 256 == 0:
            progress.update(size, count)


def _may_draw(session: Session, out: str | None) -> bool:
    """Return whether a progress bar can be drawn without mixing with payloads."""
    return out is not None or not session.host.stdout.isatty()


@contextlib.contextmanager
def _output(session: Session, out: str | None) -> Iterator[BinaryIO]:
    """Yield stdout, or a file that gets its name only when it is complete."""
    if out is None:
        yield session.host.stdout.buffer
        return
    with replacing_file(Path(out), private=False) as stream:
        yield stream
