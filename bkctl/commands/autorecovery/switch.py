"""The switch of autorecovery: `enable`, `disable`, `status`."""

from __future__ import annotations

import getpass
import shlex
import socket
import time
from typing import TYPE_CHECKING, Final

from bkclient.replication import autorecovery_admin
from bkclient.replication.autorecovery_admin import Pause
from bkctl.bookies.http.addresses import published
from bkctl.bookies.http.admin_client import AdminClient, HttpAddress
from bkctl.commands.autorecovery.unmarked_ledgers import unmarked_ledgers
from bkctl.errors import ConflictError, NothingFoundError, ProblemsError
from bkctl.output.autorecovery_pause import pause_text
from bkctl.output.units import human_duration, human_time
from bkctl.output.views import field, shown
from wire.errors import BookKeeperError

if TYPE_CHECKING:
    from bkclient.client import Client
    from bkctl.session.session import Session


_ASK_S: Final = 3.0


def pause(for_s: float | None, reason: str | None) -> Pause:
    """Return the record of a pause from now on, by this user of this host."""
    now_ms = int(time.time() * 1000)
    until_ms = None if for_s is None else now_ms + int(for_s * 1000)
    return Pause(
        since_ms=now_ms, until_ms=until_ms, reason=reason, user=_user(), host=socket.gethostname()
    )


def _user() -> str | None:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # The user of a container may have no name.
        return None


def note_end_of_pause(session: Session, until_ms: int) -> None:
    """Say which program switches autorecovery on again at the end of a pause.

    Java's auditors and workers ignore the end. Unless the auditor is known to be bookied, show a
    line for cron.
    """
    where = session.call(_http_of_auditor)
    ours = f"bookied enables autorecovery again at {human_time(until_ms, utc=session.options.utc)}"
    if where is not None and _is_ours(where):
        session.note(ours)
        return
    at = time.localtime(until_ms / 1000)
    line = shlex.join(["bkctl", "-u", session.uri, "autorecovery", "enable"])
    session.note(
        f"{ours}; Java's bookies do not. If only Java's bookies run autorecovery, use this line "
        f"of cron:\n  {at.tm_min} {at.tm_hour} {at.tm_mday} {at.tm_mon} *  {line}"
    )


async def _http_of_auditor(client: Client) -> HttpAddress | None:
    """Return the HTTP address of the elected auditor; None if it is unknown."""
    auditor = await client.store.current_auditor()
    if auditor is None:
        return None
    try:
        return await published(client, auditor)
    except (ConflictError, NothingFoundError):
        return None


def _is_ours(where: HttpAddress) -> bool:
    try:
        return AdminClient(*where, token="", timeout_s=_ASK_S).speaks_v2
    except BookKeeperError:
        return False


def _switched(v: AutorecoverySwitch) -> str:
    word = "enabled" if v.enabled else "disabled"
    return f"autorecovery {word}" if v.changed else f"autorecovery was {word} before"


@shown("switches", sentence=_switched)
class AutorecoverySwitch:
    """The state of autorecovery, and whether the command changed it."""

    enabled: bool = field("Whether autorecovery is enabled now.")
    changed: bool = field("Whether the command changed the state.")


def status(session: Session) -> None:
    """Show autorecovery's switch, its auditor, and the number of marked ledgers.

    Raises:
        ProblemsError: with `--until done` or `--until healthy`, a ledger lacks a mark.
    """
    session.reminds = False
    found = session.call(autorecovery_admin.status)
    session.emit(found)
    for why in found.unreadable:
        session.warn(why)
    if session.options.until in {"done", "healthy"} and not found.marked:
        unmarked = unmarked_ledgers(session)
        if unmarked.lost:
            raise ProblemsError(unmarked.sentence)


def enable(session: Session) -> None:
    """Switch autorecovery on for the cluster; marked ledgers are repaired at once."""
    _switch(session, enabled=True)


def disable(session: Session, *, for_s: float | None, reason: str | None) -> None:
    """Switch autorecovery off for the cluster."""
    _switch(session, enabled=False, for_s=for_s, reason=reason)


def _switch(
    session: Session, *, enabled: bool, for_s: float | None = None, reason: str | None = None
) -> None:
    session.reminds = False  # The result reports the new state.
    former = session.call(autorecovery_admin.current_pause)
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
            enabled, session.call(autorecovery_admin.set_enabled, enabled=enabled, pause=why)
        )
    )
    if replaced:
        session.note(replaced)
    if why is not None and why.until_ms is not None:
        note_end_of_pause(session, why.until_ms)
