"""What the commands that ask a running bookie do: the steps between options and printed values.

To change settings, ``/api/v1`` is asked, of a bookie of ours as well: it takes many settings, all
of them or none.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from bkctl.bookies import admin_api
from bkctl.bookies.admin_api import all_settings, masked
from bkctl.bookies.admin_client import AdminClient
from bkctl.errors import ConflictError, NothingFoundError, UsageError
from bkctl.output.views import BOOKIE, field, shown
from bkctl.session.session import Session
from bkctl.suggest import did_you_mean
from wire.ids import BookieId

_POLL_EVERY_S: Final = 0.2


def _admin(session: Session, bookie_id: BookieId, where: dict[str, Any]) -> Any:
    session.about = f"bookie {bookie_id}"
    return admin_api.connect(session, bookie_id, **where)


def state(session: Session, bookie_id: BookieId, **where: Any) -> None:
    """Show the state of a running bookie."""
    session.emit(admin_api.state(_admin(session, bookie_id, where), bookie_id))


def ready(session: Session, bookie_id: BookieId, **where: Any) -> None:
    """Check that a bookie is registered and serves."""
    session.emit(admin_api.ready(_admin(session, bookie_id, where), bookie_id))


def readonly(session: Session, bookie_id: BookieId, wanted: str, **where: Any) -> None:
    """Make a bookie read-only or writable, or show which it is."""
    if session.dry_run and wanted != "status":
        session.plan([f"turn read-only mode of bookie {bookie_id} {wanted}"])
        return
    shift = None if wanted == "status" else wanted == "on"
    admin = _admin(session, bookie_id, where)
    mode = admin_api.mode(admin, bookie_id, shift)
    session.emit(mode)
    if shift is None:
        session.finish()
        other = "off" if mode.read_only else "on"
        session.note(f"to change that: bkctl bookie readonly {bookie_id} {other}")
    if shift and not admin_api.keeps_mode(admin):
        session.finish()
        session.note("a restart makes it writable: persistBookieStatusEnabled is off")


def gc(
    session: Session, bookie_id: BookieId, *, major: bool, minor: bool, wait: bool, **where: Any
) -> None:
    """Start a bookie's garbage collection now; with ``wait`` return when it has ended."""
    if session.dry_run:
        session.plan([f"collect garbage on bookie {bookie_id}"])
        return
    admin = _admin(session, bookie_id, where)
    before = admin_api.collections(admin) if wait else []
    asked = admin_api.collect(admin, bookie_id, major=major, minor=minor)
    if not wait:
        session.emit(asked)
        return
    with session.messages.waiting(f"waiting for the collection of bookie {bookie_id}"):
        found = admin_api.wait_collected(admin, before, lambda: time.sleep(_POLL_EVERY_S))
    _show(session, found)


def gc_status(session: Session, bookie_id: BookieId, **where: Any) -> None:
    """Show the state of a bookie's garbage collection."""
    _show(session, admin_api.collections(_admin(session, bookie_id, where)))


def _show(session: Session, found: Sequence[admin_api.GarbageRun]) -> None:
    session.emit_all(found, admin_api.GarbageRun)
    if any(one.logs == 0 for one in found):
        session.finish()
        session.note("LOGS, TOTAL and LIVE leave out the entry log that is written to")
    if damaged := sum(one.unreadable_logs or 0 for one in found):
        session.finish()
        session.warn(damaged_logs(damaged))


def damaged_logs(count: int) -> str:
    """Return what a collection does with damaged entry logs, and what helps."""
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
    if session.dry_run and wanted != "status":
        session.plan([f"{wanted} compaction on bookie {bookie_id}"])
        return
    suspend = None if wanted == "status" else wanted == "suspend"
    admin = _admin(session, bookie_id, where)
    found = admin_api.compactions(admin, bookie_id, suspend=suspend, major=major, minor=minor)
    session.emit(found)


def config(session: Session, bookie_id: BookieId, keys: tuple[str, ...], **where: Any) -> None:
    """Show the settings that a bookie runs with."""
    if "set" in {bookie_id, *keys[:1]} or any("=" in key for key in keys):
        raise UsageError(
            "this only shows settings",
            next_step="`bkctl bookie config-set BOOKIE_ID KEY=VALUE` changes them",
        )
    found = admin_api.settings(_admin(session, bookie_id, where), bookie_id, keys)
    session.emit_all(found, admin_api.BookieSetting)


def config_set(
    session: Session, bookie_id: BookieId, pairs: Sequence[tuple[str, str]], **where: Any
) -> None:
    """Change settings of a running bookie."""
    admin = _admin(session, bookie_id, where)
    if not admin.speaks_v2:
        session.warn("a Java bookie takes any key and value, and looks at most of them no more")
    if session.dry_run:
        session.plan(
            f"set {one.key} of bookie {bookie_id} to {one.value}; it is "
            f"{'not set' if one.was is None else one.was}"
            for one in planned(admin, bookie_id, pairs)
        )
        return
    changes = change(admin, bookie_id, pairs)
    session.emit_all(changes, ChangedSetting)
    session.finish()
    session.note(how_to_keep(admin, changes))


def metrics(
    session: Session, bookie_id: BookieId, pattern: str | None, *, jmx_names: bool, **where: Any
) -> None:
    """Show a bookie's metrics."""
    admin = _admin(session, bookie_id, where)
    if jmx_names:
        session.emit_all(admin_api.jmx(admin), admin_api.JmxSample)
    else:
        found = admin_api.metrics(admin, pattern)
        if session.options.is_for_people:
            found = (one for one in found if not math.isnan(one.value))
        session.emit_all(found, admin_api.MetricSample)


_CONFIG: Final = "/api/v1/config/server_config"


@shown("changes", kw_only=True, id="key")
class ChangedSetting:
    """One setting of a running bookie before and after; ``was`` is None where none was set."""

    bookie_id: BookieId = field(BOOKIE)
    key: str = field("The setting.")
    was: str | None = field("What it was, if it was set; secrets are masked.")
    value: str = field("What it is; secrets are masked.")


def planned(
    admin: AdminClient, bookie_id: BookieId, pairs: Sequence[tuple[str, str]]
) -> list[ChangedSetting]:
    """Return what would be changed; a bookie of ours need not be asked whether it would.

    Raises:
        UsageError: something is set twice, or to an invalid value.
        NothingFoundError: there is no such setting.
        ConflictError: one cannot be changed while the bookie runs.
    """
    given, before = _given(admin, pairs)
    if admin.speaks_v2:
        _insist_changeable(given, before)
    return _changed(bookie_id, before, given)


def change(
    admin: AdminClient, bookie_id: BookieId, pairs: Sequence[tuple[str, str]]
) -> list[ChangedSetting]:
    """Change settings; return what they were, and what they are by the bookie's own word.

    Raises:
        UsageError: something is set twice, or to an invalid value.
        NothingFoundError: there is no such setting.
        ConflictError: one cannot be changed while the bookie runs; none is changed then.
    """
    given, before = _given(admin, pairs)
    if admin.speaks_v2:
        _insist_changeable(given, before)
    admin.ask("PUT", _CONFIG, given)
    after = all_settings(admin)
    in_effect = {key: after.get(key, value) for key, value in given.items()}
    return _changed(bookie_id, before, in_effect)


def how_to_keep(admin: AdminClient, changes: Sequence[ChangedSetting]) -> str:
    """Return which lines keep changes over a restart, and in which file."""
    file = admin.ask("GET", "/api/v2/bookie").json.get("settings_file") if admin.speaks_v2 else None
    where = f"{file} on its host" if file else "its settings file"
    lines = "".join(f"\n  {one.key}={one.value}" for one in changes)
    return f"a restart of the bookie loses this; to keep it, set in {where}:{lines}"


def _given(
    admin: AdminClient, pairs: Sequence[tuple[str, str]]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return what is to be set, by existing settings, and what is set now."""
    given = dict(pairs)
    if len(given) != len(pairs):
        raise UsageError("each key once")
    before = all_settings(admin)
    if admin.speaks_v2:
        _insist_known(given, before)
    return given, before


def _changed(
    bookie_id: BookieId, before: Mapping[str, str], after: Mapping[str, str]
) -> list[ChangedSetting]:
    return [
        ChangedSetting(
            bookie_id=bookie_id,
            key=key,
            was=masked(key, before[key]) if key in before else None,
            value=masked(key, value),
        )
        for key, value in after.items()
    ]


def _insist_known(given: Mapping[str, str], known: Mapping[str, str]) -> None:
    for key in given:
        if key not in known:
            raise NothingFoundError(
                f"there is no setting {key}{did_you_mean(key, known)}",
                next_step="`bkctl config show --keys` lists them",
            )


def _insist_changeable(given: Mapping[str, str], before: Mapping[str, str]) -> None:
    from bookied.config.bookie import BookieConfig
    from bookied.config.reload import (
        ContradictionError,
        InvalidValueError,
        SettingsRefusedError,
        changeable,
        changed_settings,
        read_settings,
    )

    # What is not set is told as an empty text.
    known = {key: text for key in changeable() if (text := before.get(key))}
    try:
        changed_settings(attrs.evolve(BookieConfig(), **read_settings(known)), given)
    except ContradictionError as error:
        hint = "change the settings together, in one command: KEY=VALUE KEY=VALUE"
        raise UsageError(str(error), next_step=hint) from error
    except InvalidValueError as error:
        raise UsageError(str(error)) from error
    except SettingsRefusedError as error:
        raise ConflictError(str(error)) from error
