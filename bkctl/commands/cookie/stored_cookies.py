"""The bodies of the other cookie commands."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from bkclient.admin import cookies
from bkclient.admin.cookies import DependentLedgers, StoredCookie
from bkclient.metadata.errors import CookieNotFoundError
from bkclient.metadata.versions_and_watches import NEW
from bkctl.errors import RefusedError, UsageError, file_errors
from bkctl.exit_status import Effect
from bkctl.output.atomic_file import write_atomically
from bkctl.output.units import counted
from bkctl.output.views import BOOKIE, NEVER, WIDE, Column, Kind, declare_view, field, shown
from bkctl.session import safety_checks
from bkctl.session.safety_check_names import CONTENT, ONLY_COPIES, OPEN_LEDGERS, REGISTERED
from bkctl.session.safety_checks import Objection
from bkctl.session.session import Session
from bkctl.suggest import similar_bookie
from wire.errors import FormatError
from wire.ids import BookieId
from wire.records.cookie import (
    Cookie,
    CookieDifference,
    cookie_differences,
    decode_cookie,
    encode_cookie,
)


def _of_cookie(name: str, doc: str, **more: Any) -> Column:
    return Column(name, doc, f"cookie.{name}", **more)


COOKIE_COLUMNS: Final = (
    _of_cookie("journal_dirs", "Journal directories of the bookie, joined by commas."),
    _of_cookie("ledger_dirs", "Ledger directories of the bookie.", kind=Kind.NESTED, rank=1),
    _of_cookie(
        "index_dirs",
        "Index directories of the bookie, if the cookie names them.",
        kind=Kind.NESTED,
        rank=WIDE,
    ),
    _of_cookie("instance_id", "Instance id of the cluster.", rank=2),
    _of_cookie("layout_version", "Version of the cookie's format.", kind=Kind.COUNT, rank=WIDE),
)


declare_view(
    StoredCookie,
    "cookies",
    BOOKIE,
    *COOKIE_COLUMNS,
    Column(
        "problem",
        "The error, if the cookie cannot be read.",
        lambda v: v.problem or None,
        rank=WIDE,
    ),
    Column(
        "version",
        "Number of times that the cookie was replaced.",
        "stored.version",
        Kind.COUNT,
        rank=WIDE,
    ),
)

declare_view(
    CookieDifference,
    "problems",
    Column("place", "The metadata service, or a VERSION file."),
    Column("field", "The field that differs."),
    Column("configured", "The value in the settings."),
    Column("found", "The value in the cookie."),
)


@shown(
    "cookies",
    BOOKIE,
    *COOKIE_COLUMNS,
    Column("version", "Number of times that the cookie was replaced."),
    Column("text_b64", "The cookie in base64.", "text", rank=NEVER),
    sentence=lambda v: v.text.decode(errors="backslashreplace").removesuffix("\n"),
)
class CookieText:
    """A cookie as it is stored, or would be stored."""

    bookie_id: BookieId
    text: bytes
    cookie: Cookie | None
    version: int | None = None


@shown("cookies", sentence=lambda v: f"cookie of {v.bookie_id} {v.change}")
class CookieChanged:
    """A change to a cookie: created, updated, unchanged or deleted."""

    bookie_id: BookieId = field(BOOKIE)
    change: str = field("The change that was made.")
    version: int | None = field("The new version of the cookie.", optional=True, default=None)


# Display ----------------------------------------------------------------------------------------


def list_stored(session: Session) -> None:
    """Print the cookies that the metadata service stores."""
    session.emit_all(session.call(cookies.list_cookies), cookies.StoredCookie)


def print_cookie(session: Session, bookie_id: BookieId) -> None:
    """Print a cookie as it is stored."""
    session.about = f"bookie {bookie_id}"
    found = _stored(session, bookie_id)
    if found.cookie is None:
        session.warn(f"no bookie can read this cookie: {found.problem}")
    session.emit(CookieText(bookie_id, found.stored.value, found.cookie, found.stored.version))


def generate(
    session: Session,
    bookie_id: BookieId | None,
    *,
    journal_dirs: Sequence[str],
    ledger_dirs: Sequence[str],
    index_dirs: Sequence[str],
    instance_id: str | None,
    out: str | None,
) -> None:
    """Print the cookie of a bookie with these directories, or of the bookie of the settings.

    Raises:
        UsageError: the id or some of the directories are missing.
    """
    has_directories = bool(journal_dirs or ledger_dirs or index_dirs)
    if has_directories and not (bookie_id and journal_dirs and ledger_dirs):
        raise UsageError(
            "the bookie is named only in part",
            next_step="give its id, --journal-dir and --ledger-dir, or only its settings with -c "
            "FILE",
        )
    cluster = instance_id or session.call(lambda client: client.store.instance_id())
    if has_directories:
        made = Cookie(
            bookie_id or "",
            ",".join(journal_dirs),
            tuple(ledger_dirs),
            tuple(index_dirs) or None,
            cluster,
        )
    else:
        made = _of_settings(session, bookie_id, cluster)
    text = CookieText(BookieId(made.bookie_id), encode_cookie(made), made)
    if out is None:
        session.emit(text)
        return
    if session.plans_only([f"write the cookie of {text.bookie_id} to {out}"]):
        return
    write_atomically(out, text.text)
    session.emit(CookieChanged(text.bookie_id, f"written to {out}"))


def _of_settings(session: Session, bookie_id: BookieId | None, cluster: str | None) -> Cookie:
    """Return the cookie that bookied would write, with bookied's own code."""
    from bkctl.bookies.stopped_bookie import stopped_bookie
    from bookied.directories.cookie_check import master_cookie

    bookie = stopped_bookie(session)
    return master_cookie(bookie.config, bookie_id or bookie.bookie_id, cluster)


# Creation and update ----------------------------------------------------------------------------


def create(session: Session, bookie_id: BookieId, *, path: str, force: Collection[str]) -> None:
    """Store a new cookie."""
    session.about = f"bookie {bookie_id}"
    text = _given(session, bookie_id, path, check=CONTENT not in force)
    if session.plans_only([f"store a cookie of {bookie_id}"]):
        return
    version = session.call(lambda client: client.store.write_cookie(bookie_id, text, NEW))
    session.emit(CookieChanged(bookie_id, "created", version))


def update(session: Session, bookie_id: BookieId, *, path: str, force: Collection[str]) -> None:
    """Show the changes of a cookie, ask, and replace the cookie if it is still the same version."""
    session.about = f"bookie {bookie_id}"
    found = _stored(session, bookie_id)
    text = _given(session, bookie_id, path, check=CONTENT not in force)
    lines = difference(found, text)
    if session.plans_only([f"change the {line}" for line in lines]):
        return
    if not lines:
        session.emit(CookieChanged(bookie_id, "unchanged", found.stored.version))
        return
    session.confirm(
        [f"The cookie of {bookie_id} changes:", *(f"  {line}" for line in lines)],
        f"Update the cookie of {bookie_id}?",
    )
    version = session.call(
        lambda client: client.store.write_cookie(bookie_id, text, found.stored.version)
    )
    session.emit(CookieChanged(bookie_id, "updated", version))


def difference(found: StoredCookie, text: bytes) -> list[str]:
    """Return the changes that a new cookie makes, one line a field."""
    if found.stored.value == text:
        return []
    try:
        new = decode_cookie(text)
    except FormatError:
        return ["the text, which will not be a valid cookie"]
    if found.cookie is None:
        return ["the text, which is not a valid cookie now"]
    fields = cookie_differences(new, found.cookie)
    return [f"{one.field}: {one.found} becomes {one.configured}" for one in fields] or ["form only"]


def _given(session: Session, bookie_id: BookieId, path: str, *, check: bool) -> bytes:
    """Return the cookie in a file.

    Raises:
        NothingFoundError: the file does not exist.
        RefusedError: with ``check``, the text is not a cookie of this bookie and this cluster.
    """
    if path == "-":
        text = session.input.bytes.read()
    else:
        with file_errors(path):
            text = Path(path).read_bytes()
    wrong = _wrong(text, bookie_id, session.call(lambda client: client.store.instance_id()))
    if wrong and check:
        raise RefusedError(wrong, next_step="no bookie would start with it; --force content")
    if wrong:
        session.warn(f"overridden: {wrong}")
    return text


def _wrong(text: bytes, bookie_id: BookieId, cluster: str | None) -> str:
    """Return the reason why the bookie cannot start with this cookie, or ""."""
    try:
        new = decode_cookie(text)
    except FormatError as error:
        return f"the text is not a valid cookie: {error}"
    if new.bookie_id != bookie_id:
        return f"this is the cookie of {new.bookie_id}, not of {bookie_id}"
    if new.instance_id != cluster:
        return f"this is a cookie of cluster {new.instance_id}, not of this cluster, {cluster}"
    return ""


# Removal ----------------------------------------------------------------------------------------


def delete(
    session: Session, bookie_id: BookieId | None, *, local: bool, force: Collection[str]
) -> None:
    """Remove a cookie; with ``local`` the cookie and the VERSION files of the settings' bookie.

    Raises:
        UsageError: no bookie is named.
    """
    if local:
        _delete_with_files(session, bookie_id, force)
    elif bookie_id is None:
        raise UsageError(
            "no bookie is named", next_step="give its id, or --local for the bookie of -c"
        )
    else:
        _delete(session, bookie_id, force)


def _delete_with_files(
    session: Session, bookie_id: BookieId | None, force: Collection[str]
) -> None:
    """Remove the cookie of the settings' stopped bookie, from its directories and the cluster.

    Raises:
        UsageError: another bookie is named.
        RefusedError: the bookie runs, or data that must not be lost relies on the bookie.
    """
    from bkctl.bookies.stopped_bookie import lock_existing, stopped_bookie
    from bookied.directories.roots import VERSION

    bookie = stopped_bookie(session)
    if bookie_id not in {None, bookie.bookie_id}:
        raise UsageError(
            f"the settings are those of {bookie.bookie_id}", next_step="leave the id out"
        )
    with lock_existing(session, bookie.found, bookie.config):
        files = [directory / VERSION for directory in bookie.found.all_dirs]
        _delete(session, bookie.bookie_id, force, files=[one for one in files if one.exists()])


def _delete(
    session: Session, bookie_id: BookieId, force: Collection[str], *, files: Sequence[Path] = ()
) -> None:
    """Show the ledgers on a bookie, ask, and remove its cookie; ``files`` are its VERSION files.

    The files are removed first, as in Java: while the stored cookie exists,
    no new bookie can use the id.

    Raises:
        CookieNotFoundError: neither a stored cookie nor a file exists.
        RefusedError: data that must not be lost relies on the bookie.
    """
    session.about = f"bookie {bookie_id}"
    found = _if_stored(session, bookie_id, needed=not files)
    reliance = session.call(cookies.reliance_on, bookie_id)
    safety_checks.refuse_unless_forced(session, _objections(reliance), force)
    if session.dry_run:
        for line in _remarks(reliance):
            session.note(line)
        stored = [f"remove the cookie of {bookie_id}"] if found else []
        session.plan([*(f"remove {path}" for path in files), *stored])
        return
    session.confirm(
        [
            f"The cookie of {bookie_id} will be removed. Its directories cannot start again:",
            *(f"  {line}" for line in (_held(found) if found else ["(none is stored)"])),
            *(f"  {line}" for line in _remarks(reliance)),
            *(f"  {path}" for path in files),
        ],
        f"Remove the cookie of {bookie_id}?",
        proof=bookie_id,
    )
    # While the question waited, the bookie may have started or received ledgers.
    now = _objections(session.call(cookies.reliance_on, bookie_id))
    safety_checks.refuse_unless_forced(session, (one for one in now if one.check not in force), ())
    for path in files:
        path.unlink()
    if found is not None:
        session.call(lambda client: client.store.remove_cookie(bookie_id, found.stored.version))
    session.emit(CookieChanged(bookie_id, "deleted"))


def _if_stored(session: Session, bookie_id: BookieId, *, needed: bool) -> StoredCookie | None:
    try:
        return _stored(session, bookie_id)
    except CookieNotFoundError:
        if needed:
            raise
        return None


def _stored(session: Session, bookie_id: BookieId) -> StoredCookie:
    """Return a stored cookie; the error of a command that only reads names the most similar id."""
    try:
        found = session.call(cookies.read, bookie_id)
    except CookieNotFoundError as error:
        if session.effect is not Effect.READ:
            raise
        others = [one.bookie_id for one in session.call(cookies.list_cookies)]
        raise CookieNotFoundError(f"{error}{similar_bookie(bookie_id, others)}") from error
    return found


def _held(found: StoredCookie) -> list[str]:
    if found.cookie is None:
        return ["(it cannot be read)"]
    return [
        f"journals {found.cookie.journal_dirs}",
        f"ledgers {', '.join(found.cookie.ledger_dirs)}",
    ]


def _remarks(reliance: DependentLedgers) -> list[str]:
    if not reliance.ledgers:
        return []
    return [f"listed by {counted(reliance.ledgers, 'ledger')}"]


def _objections(reliance: DependentLedgers) -> Iterator[Objection]:
    """Yield the objections to the removal of a cookie."""
    bookie_id = reliance.bookie_id
    if reliance.registered:
        yield from safety_checks.while_registered([bookie_id], REGISTERED)
    if reliance.not_closed:
        count = len(reliance.not_closed)
        what = (
            "ledger that is not closed lists" if count == 1 else "ledgers that are not closed list"
        )
        yield Objection(
            OPEN_LEDGERS,
            f"{count} {what} it, and a new bookie with this id would not know which ledgers are "
            f"fenced: {safety_checks.some_names(reliance.not_closed)}",
            f"close them first (`bkctl ledger recover {reliance.not_closed[0]}`)",
        )
    if reliance.unreadable:
        yield Objection(
            OPEN_LEDGERS,
            f"the metadata of {counted(len(reliance.unreadable), 'ledger')} cannot be read, and "
            f"may list {bookie_id}: {safety_checks.some_names(reliance.unreadable)}",
            "repair or delete them first",
        )
    if reliance.only_here:
        yield Objection(
            ONLY_COPIES,
            f"entries of {counted(len(reliance.only_here), 'ledger')} have no other copy in "
            f"service: {safety_checks.some_names(reliance.only_here)}",
            "start it, and wait until its entries are copied",
        )
