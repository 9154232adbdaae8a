"""Autorecovery is switched on and off, and its state shown: `enable`, `disable`, `status`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import attrs

from bkclient.repair import autorecovery
from bkctl.commands.autorecovery.pause import note_end_of_pause, pause
from bkctl.output.autorecovery_pause import pause_text
from bkctl.output.units import human_duration
from bkctl.output.views import column, shown

if TYPE_CHECKING:
    from bkctl.session.session import Session


def _switched(v: AutorecoverySwitch) -> str:
    word = "enabled" if v.enabled else "disabled"
    return f"autorecovery {word}" if v.changed else f"autorecovery was {word} before"


@shown(
    "switches",
    column("enabled", "What it is now."),
    column("changed", "Whether it was not so before."),
    sentence=_switched,
)
@attrs.frozen
class AutorecoverySwitch:
    """What autorecovery is now, and whether it was something else before."""

    enabled: bool
    changed: bool


def status(session: Session) -> None:
    """Show autorecovery's switch, its auditor, and the number of marked ledgers."""
    session.reminds = False
    found = session.call(autorecovery.status)
    session.emit(found)
    for why in found.unreadable:
        session.warn(why)


def enable(session: Session) -> None:
    """Switch autorecovery on, for the whole cluster; marked ledgers are repaired at once."""
    _switch(session, enabled=True)


def disable(session: Session, *, for_s: float | None, reason: str | None) -> None:
    """Switch autorecovery off, for the whole cluster."""
    _switch(session, enabled=False, for_s=for_s, reason=reason)


def _switch(
    session: Session, *, enabled: bool, for_s: float | None = None, reason: str | None = None
) -> None:
    session.reminds = False  # The result says what holds from now on.
    former = session.call(autorecovery.paused)
    why = None if enabled else pause(for_s, reason)
    replaced = ""
    if why is not None and why.is_asked_for and former is not None and former.is_asked_for:
        replaced = f"this replaces the pause{pause_text(former, time.time())}"
    if session.dry_run:
        verb = "enable" if enabled else "disable"
        lasting = "" if for_s is None else f" for {human_duration(for_s)}"
        is_so = (former is None) is enabled and not (why is not None and why.is_asked_for)
        plan = f"{verb} autorecovery{lasting}{'; ' if replaced else ''}{replaced}"
        session.plan([] if is_so else [plan])
        return
    session.emit(
        AutorecoverySwitch(
            enabled, session.call(autorecovery.set_enabled, enabled=enabled, pause=why)
        )
    )
    if replaced:
        session.note(replaced)
    if why is not None and why.until_ms is not None:
        note_end_of_pause(session, why.until_ms)
