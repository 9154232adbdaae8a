"""The state and the mode of a running bookie: v2 for bookied, v1 for Java's, with equal results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from bkctl.bookies.http.admin_client import AdminClient
from bkctl.bookies.http.answers import require_known_form, value_of_answer
from bkctl.bookies.http.bookie_settings import all_settings
from bkctl.output.views import BOOKIE, Column, field, shown

if TYPE_CHECKING:
    from wire.ids import BookieId


_READ_ONLY: Final = Column("read_only", "Whether the bookie refuses adds.")


@shown("bookies", kw_only=True, healthy=lambda v: v.registered is not False and not v.read_only)
class RunningBookie:
    """The state of a bookie; None for what a Java bookie does not report."""

    bookie_id: str = field(BOOKIE)
    state: str = field("starting, writable, read-only or stopping.")
    read_only: bool = field(_READ_ONLY)
    read_only_by_hand: bool | None = field(
        "Whether an operator made the bookie read-only.", default=None
    )
    takes_recovery_adds: bool = field("Whether the bookie accepts the adds of recovery and repair.")
    registered: bool | None = field(
        "Whether the bookie is registered in the metadata, so that clients find it.", default=None
    )
    uptime_s: float | None = field("Time since the bookie's start.", name="uptime", default=None)


@shown(
    "modes",
    sentence=lambda v: f"bookie {v.bookie_id} is {'read-only' if v.read_only else 'writable'}",
)
class BookieMode:
    """The mode of a bookie: read-only or writable."""

    bookie_id: str = field(BOOKIE)
    read_only: bool = field(_READ_ONLY)


@shown("bookies", sentence=lambda v: f"bookie {v.bookie_id} is ready")
class Ready:
    """A bookie that is ready."""

    bookie_id: str = field(BOOKIE)


@require_known_form
def state(admin: AdminClient, bookie_id: BookieId) -> RunningBookie:
    """Return the bookie's state."""
    if admin.speaks_v2:
        found = admin.ask("GET", "/api/v2/bookie").json
        return value_of_answer(
            RunningBookie,
            found,
            bookie_id=bookie_id,
            takes_recovery_adds=found["takes_high_priority_writes"],
        )
    found = admin.ask("GET", "/api/v1/bookie/state").json
    return RunningBookie(
        bookie_id=bookie_id,
        state=_java_state(found),
        read_only=found["readOnly"],
        takes_recovery_adds=found["availableForHighPriorityWrites"],
    )


def _java_state(found: Mapping[str, bool]) -> str:
    if found["shuttingDown"]:
        return "stopping"
    if not found["running"]:
        return "starting"
    return "read-only" if found["readOnly"] else "writable"


@require_known_form
def mode(admin: AdminClient, bookie_id: BookieId, wanted: bool | None) -> BookieMode:  # noqa: FBT001
    """Return the bookie's mode; ``wanted`` first makes it read-only or writable."""
    method, shift = ("GET", None) if wanted is None else ("PUT", wanted)
    if admin.speaks_v2:
        body = None if shift is None else {"read_only": shift}
        found = admin.ask(method, "/api/v2/bookie/read-only", body).json
        return BookieMode(bookie_id, found["read_only"])
    body = None if shift is None else {"readOnly": shift}
    return BookieMode(
        bookie_id, admin.ask(method, "/api/v1/bookie/state/readonly", body).json["readOnly"]
    )


def keeps_mode(admin: AdminClient) -> bool:
    """Return whether the bookie's settings keep it read-only over a restart."""
    return all_settings(admin).get("persistBookieStatusEnabled", "false").lower() == "true"


def ready(admin: AdminClient, bookie_id: BookieId) -> Ready:
    """Return ``Ready`` if the bookie is ready.

    Raises:
        ConflictError: the bookie is not ready.
    """
    admin.ask("GET", "/api/v1/bookie/is_ready")  # The only probe of both bookied and Java's bookie.
    return Ready(bookie_id)
