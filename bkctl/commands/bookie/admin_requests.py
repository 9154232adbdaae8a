"""The bodies of the commands that use a running bookie's HTTP admin API.

Settings are changed over ``/api/v1``, also on bookied: this path accepts many settings, and changes
all of them or none.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import attrs
import click

from bkclient.config.declaration import declared
from bkctl.bookies.http import addresses, bookie_metrics, bookie_settings, bookie_state, garbage
from bkctl.bookies.http.admin_client import AdminClient
from bkctl.bookies.http.bookie_settings import all_settings, masked
from bkctl.cli.parameter_types import BOOKIE_ID, KEY_VALUE
from bkctl.errors import ConflictError, NothingFoundError, PartlyDoneError, UsageError
from bkctl.output.units import counted
from bkctl.output.views import BOOKIE, evolve, field, shown
from bkctl.session.session import Session
from bkctl.suggest import keys_like
from wire.errors import BookKeeperError
from wire.ids import BookieId

T = TypeVar("T")

_POLL_EVERY_S: Final = 0.2


def _admin(session: Session, bookie_id: BookieId, where: dict[str, Any]) -> Any:
    session.about = f"bookie {bookie_id}"
    return addresses.connect(session, bookie_id, **where)


def state(session: Session, bookie_id: BookieId, **where: Any) -> None:
    """Show the state of a running bookie."""
    session.emit(bookie_state.state(_admin(session, bookie_id, where), bookie_id))


def ready(session: Session, bookie_id: BookieId, **where: Any) -> None:
    """Check that a bookie is registered and ready."""
    session.emit(bookie_state.ready(_admin(session, bookie_id, where), bookie_id))


def readonly(session: Session, bookie_id: BookieId, wanted: str, **where: Any) -> None:
    """Make a bookie read-only or writable, or show its mode."""
    step = f"turn read-only mode of bookie {bookie_id} {wanted}"
    if wanted != "status" and session.plans_only([step]):
        return
    shift = None if wanted == "status" else wanted == "on"
    admin = _admin(session, bookie_id, where)
    mode = bookie_state.mode(admin, bookie_id, shift)
    session.emit(mode)
    if shift is None:
        session.finish()
        other = "off" if mode.read_only else "on"
        session.note(f"to change that: bkctl bookie readonly {bookie_id} {other}")
    if shift and not bookie_state.keeps_mode(admin):
        session.finish()
        session.note("a restart makes it writable: persistBookieStatusEnabled is off")


def gc(
    session: Session, bookie_id: BookieId, *, major: bool, minor: bool, wait: bool, **where: Any
) -> None:
    """Start a bookie's garbage collection; with ``wait`` return when it has ended."""
    if session.plans_only([f"collect garbage on bookie {bookie_id}"]):
        return
    admin = _admin(session, bookie_id, where)
    before = garbage.collections(admin) if wait else []
    asked = garbage.collect(admin, bookie_id, major=major, minor=minor)
    if not wait:
        session.emit(asked)
        return
    with session.progress(f"space freed on bookie {bookie_id}") as progress:

        def pause(since: Sequence[garbage.GarbageRun]) -> None:
            progress.update(sum(one.freed_bytes or 0 for one in since))
            time.sleep(_POLL_EVERY_S)

        found = garbage.wait_collected(admin, before, pause)
    _show(session, _of(bookie_id, found))


def gc_status(session: Session, bookie_id: BookieId | None, **where: Any) -> None:
    """Show the state of the garbage collection of a bookie, or of every registered bookie."""
    named = () if bookie_id is None else (bookie_id,)
    bookies, _ = _bookies(session, named, every=not named, **where)
    asked = _BookieRequests(session, bookies, where)
    found = asked.of_each(lambda admin, one: _of(one, garbage.collections(admin)))
    _show(session, [run for some in found for run in some])
    asked.finish()


def _of(bookie_id: BookieId, found: Sequence[garbage.GarbageRun]) -> Sequence[garbage.GarbageRun]:
    return [evolve(one, bookie_id=bookie_id) for one in found]


def _show(session: Session, found: Sequence[garbage.GarbageRun]) -> None:
    session.emit_all(found, garbage.GarbageRun)
    if any(one.logs == 0 or one.freed_bytes == 0 for one in found):
        session.finish()
        session.note(
            "LOGS, TOTAL and LIVE leave out the entry log that the bookie writes to; its space is "
            "freed after the log is full (logSizeLimit) or the bookie was restarted, and by `bkctl "
            "bookie gc` if most of it is of deleted ledgers"
        )
    if damaged := sum(one.unreadable_logs or 0 for one in found):
        session.finish()
        session.warn(damaged_logs(damaged))


def damaged_logs(count: int) -> str:
    """Return a warning about damaged entry logs, with the command that helps."""
    kept = "1 damaged entry log is" if count == 1 else f"{count} damaged entry logs are"
    return (
        f"{kept} kept, without freeing space; on the bookie's host `bkctl disk check --deep` names "
        "the damaged entries and says how to write them again"
    )


def compaction(
    session: Session, bookie_id: BookieId, wanted: str, *, major: bool, minor: bool, **where: Any
) -> None:
    """Suspend or resume a bookie's compaction, or show its state."""
    if wanted != "status" and not (major or minor):
        raise UsageError("--no-major and --no-minor together leave nothing to do")
    if wanted != "status" and session.plans_only([f"{wanted} compaction on bookie {bookie_id}"]):
        return
    suspend = None if wanted == "status" else wanted == "suspend"
    admin = _admin(session, bookie_id, where)
    found = garbage.compactions(admin, bookie_id, suspend=suspend, major=major, minor=minor)
    session.emit(found)


def config(session: Session, words: tuple[str, ...], *, every: bool, **where: Any) -> None:
    """Show the current settings of bookies."""
    if "set" in words[:2] or any("=" in word for word in words):
        raise UsageError(
            "this only shows settings",
            next_step="`bkctl bookie config-set BOOKIE_ID KEY=VALUE` changes them",
        )
    every = every or not words or _names_setting(session, words[0], where["address"])
    bookies, keys = _bookies(session, words, every=every, **where)
    asked = _BookieRequests(session, bookies, where)
    found = asked.of_each(lambda admin, one: bookie_settings.settings(admin, one, keys))
    session.emit_all((one for some in found for one in some), bookie_settings.BookieSetting)
    asked.finish()


def _names_setting(session: Session, word: str, address: str | None) -> bool:
    """Return whether a word is a setting, or a part of one, and not a registered bookie.

    With the ``address`` of a bookie the metadata is not read.
    """
    from bkclient.config.client import ClientConfig
    from bookied.config.bookie import BookieConfig

    keys = [one.spec.key for cls in (BookieConfig, ClientConfig) for one in declared(cls)]
    is_setting = bool(keys_like(word, keys))
    return is_setting and (
        address is not None
        or word not in session.call(lambda client: client.store.registered_bookies())
    )


def config_set(session: Session, words: tuple[str, ...], *, every: bool, **where: Any) -> None:
    """Change settings of running bookies."""
    if words and "=" in words[0] and not every:
        raise UsageError(
            "no bookie is named", next_step="name a BOOKIE_ID first, or all with --all"
        )
    bookies, texts = _bookies(session, words, every=every, **where)
    if not texts:
        raise UsageError("no setting is named", next_step="name it, as in gcWaitTime=600000")
    pairs = [KEY_VALUE.convert(one, None, click.get_current_context()) for one in texts]
    asked = _BookieRequests(session, bookies, where)

    def plan(admin: AdminClient, bookie_id: BookieId) -> list[ChangedSetting]:
        if not admin.speaks_v2:
            session.warn(
                "a Java bookie accepts any key and value, but does not read most of them again"
            )
        return planned(admin, bookie_id, pairs)

    plans = {some[0].bookie_id: some for some in asked.of_each(plan)}
    steps = [
        f"set {one.key} of bookie {one.bookie_id} from "
        f"{'no value' if one.was is None else one.was} to {one.value}"
        for some in plans.values()
        for one in some
    ]
    if session.dry_run:
        session.plan(steps)
        asked.finish()
        return
    if len(bookies) > 1 and steps:
        session.confirm(steps, f"Change {counted(len(asked.bookies), 'bookie')}?")
    changes = asked.of_each(lambda admin, one: change(admin, pairs, plans[one]))
    session.emit_all((one for some in changes for one in some), ChangedSetting)
    if changes:
        session.finish()
        session.note(how_to_keep(asked.admins[asked.bookies[0]], changes[0], len(asked.bookies)))
    asked.finish()


def _bookies(
    session: Session, words: tuple[str, ...], *, every: bool, address: str | None, **_where: Any
) -> tuple[list[BookieId], tuple[str, ...]]:
    """Return the named bookies, and the words after them.

    Raises:
        UsageError: no bookie is named, or an address is combined with several bookies.
        NothingFoundError: no bookie is registered.
    """
    if every and address is not None:
        bookies = [BookieId(address.removeprefix("https://"))]
    elif every:
        bookies = sorted(session.call(lambda client: client.store.registered_bookies()))
        if not bookies:
            raise NothingFoundError("no bookie is registered")
    elif words:
        ctx = click.get_current_context()
        ids = (BOOKIE_ID.convert(one, None, ctx) for one in words[0].split(","))
        bookies, words = list(dict.fromkeys(ids)), words[1:]
    else:
        raise UsageError("no bookie is named", next_step="name a BOOKIE_ID, or all with --all")
    if address is not None and len(bookies) > 1:
        raise UsageError("--http is the address of one bookie")
    return bookies, words


class _BookieRequests:
    """Bookies that are asked one after another. A bookie that fails is not asked again."""

    def __init__(self, session: Session, bookies: list[BookieId], where: dict[str, Any]) -> None:
        self.bookies = bookies
        self.admins: dict[BookieId, AdminClient] = {}
        self._session, self._where, self._count = session, where, len(bookies)
        self._errors: list[BookKeeperError] = []

    def of_each(self, ask: Callable[[AdminClient, BookieId], T]) -> list[T]:
        """Return the answer of each bookie.

        Raises:
            BookKeeperError: no bookie answers. Of several bookies, a warning names those that
                failed.
        """
        found, left = [], []
        failed: dict[str, list[BookieId]] = {}
        for one in self.bookies:
            try:
                if one not in self.admins:
                    self.admins[one] = _admin(self._session, one, self._where)
                found.append(ask(self.admins[one], one))
                left.append(one)
            except BookKeeperError as error:
                if self._count == 1:
                    raise
                self._errors.append(error)
                failed.setdefault(str(error), []).append(one)
        if self._count > 1:
            self._session.about = ""
        self.bookies = left
        if failed and not left and len(failed) == 1:
            raise self._errors[-1]  # All bookies failed with one error.
        for why, some in failed.items():
            about = f"bookie {', '.join(some)}"
            self._session.warn(why if why.startswith(about) else f"{about}: {why}")
        if self._errors and not left:
            raise self._errors[0]
        return found

    def finish(self) -> None:
        """Report the number of bookies that failed.

        Raises:
            PartlyDoneError: a bookie failed.
        """
        if self._errors:
            failed = f"{len(self._errors)} of {counted(self._count, 'bookie')} failed"
            raise PartlyDoneError(failed, next_step="the warnings say why")


def metrics(
    session: Session, bookie_id: BookieId, pattern: str | None, *, jmx_names: bool, **where: Any
) -> None:
    """Show a bookie's metrics."""
    admin = _admin(session, bookie_id, where)
    if jmx_names:
        session.emit_all(bookie_metrics.jmx(admin), bookie_metrics.JmxSample)
    else:
        found = bookie_metrics.metrics(admin, pattern)
        if session.options.is_for_people:
            found = (one for one in found if not math.isnan(one.value))
        session.emit_all(found, bookie_metrics.MetricSample)


_CONFIG: Final = "/api/v1/config/server_config"


@shown("changes", kw_only=True, id="key")
class ChangedSetting:
    """One setting of a running bookie before and after; ``was`` is None if it was not set."""

    bookie_id: BookieId = field(BOOKIE)
    key: str = field("The setting.")
    was: str | None = field("The old value, if the setting was set; secrets are masked.")
    value: str = field("The new value; secrets are masked.")


def planned(
    admin: AdminClient, bookie_id: BookieId, pairs: Sequence[tuple[str, str]]
) -> list[ChangedSetting]:
    """Return the planned changes. Settings of bookied are checked here, without a request for it.

    Raises:
        UsageError: a setting is given twice, or has an invalid value.
        NothingFoundError: a setting does not exist.
        ConflictError: a setting cannot be changed while the bookie runs.
    """
    wanted = dict(pairs)
    if len(wanted) != len(pairs):
        raise UsageError("give each key only once")
    before = all_settings(admin)
    if admin.speaks_v2:
        _require_known(wanted, before)
        _require_changeable(wanted, before)
    return [
        ChangedSetting(
            bookie_id=bookie_id,
            key=key,
            was=masked(key, before[key]) if key in before else None,
            value=masked(key, value),
        )
        for key, value in wanted.items()
    ]


def change(
    admin: AdminClient, pairs: Sequence[tuple[str, str]], plan: Sequence[ChangedSetting]
) -> list[ChangedSetting]:
    """Change settings as planned; return the values that the bookie then reports.

    Raises:
        ConflictError: a setting cannot be changed while the bookie runs; none is changed then.
    """
    admin.ask("PUT", _CONFIG, dict(pairs))
    after = all_settings(admin)
    return [
        evolve(one, value=masked(one.key, after[one.key])) if one.key in after else one
        for one in plan
    ]


def how_to_keep(admin: AdminClient, changes: Sequence[ChangedSetting], bookies: int = 1) -> str:
    """Return the lines that keep changes over a restart, and the file that needs them."""
    lines = "".join(f"\n  {one.key}={one.value}" for one in changes)
    if bookies > 1:
        return (
            "the next restart ends this change; to keep it, set in the settings file of each "
            f"bookie:{lines}"
        )
    file = admin.ask("GET", "/api/v2/bookie").json.get("settings_file") if admin.speaks_v2 else None
    where = f"{file} on its host" if file else "its settings file"
    return f"the next restart of the bookie ends this change; to keep it, set in {where}:{lines}"


def _require_known(wanted: Mapping[str, str], known: Mapping[str, str]) -> None:
    missing = [key for key in wanted if key not in known]
    if missing:
        raise bookie_settings.unknown_settings(missing, known)


def _require_changeable(wanted: Mapping[str, str], before: Mapping[str, str]) -> None:
    from bookied.config import reload
    from bookied.config.bookie import BookieConfig
    from bookied.config.reload import ContradictionError, InvalidValueError, SettingsRefusedError

    # A setting that is not set is reported as an empty text.
    known = {key: text for key in reload.changeable() if (text := before.get(key))}
    try:
        reload.changed_settings(attrs.evolve(BookieConfig(), **reload.read_settings(known)), wanted)
    except ContradictionError as error:
        hint = "change the settings together, in one command: KEY=VALUE KEY=VALUE"
        raise UsageError(str(error), next_step=hint) from error
    except InvalidValueError as error:
        raise UsageError(str(error)) from error
    except SettingsRefusedError as error:
        raise ConflictError(str(error)) from error
