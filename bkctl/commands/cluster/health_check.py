"""Whether clients may quarantine bookies: `cluster health-check`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from bkctl.output.views import column, shown

if TYPE_CHECKING:
    from bkclient.client import Client
    from bkctl.session.session import Session


@shown(
    "switches",
    column("enabled", "Whether they may."),
    column("changed", "Whether it was not so before."),
    sentence=lambda v: f"the health check of bookies is {'enabled' if v.enabled else 'disabled'}",
)
@attrs.frozen
class HealthCheck:
    """Whether clients may quarantine bookies that fail."""

    enabled: bool
    changed: bool


def switch_health_check(session: Session, *, switch: str | None) -> None:
    """Print or switch whether clients may quarantine bookies."""
    if switch is not None and session.dry_run:
        session.plan([f"{switch} the health check"])
        return
    wanted = None if switch is None else switch == "enable"
    session.emit(session.call(health_check, wanted))


async def health_check(client: Client, wanted: bool | None) -> HealthCheck:  # noqa: FBT001  # a value
    """Return whether clients may quarantine bookies, after switching it where that is wanted."""
    store = client.store
    enabled = await store.health_check_enabled()
    if wanted is None or wanted is enabled:
        return HealthCheck(enabled, changed=False)
    await store.set_health_check_enabled(enabled=wanted)
    return HealthCheck(wanted, changed=True)
