"""What ``bookie config-set`` does: settings of a bookie that runs, before and after.

``/api/v1`` is asked, of a bookie of ours as well: it takes many settings, all of them or none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import attrs

from bkctl.bookies.admin_api import (
    all_settings,
    masked,
)
from bkctl.errors import ConflictError, NothingFoundError, UsageError
from bkctl.output.views import column, shown
from bkctl.suggest import did_you_mean

if TYPE_CHECKING:
    from bkctl.bookies.admin_client import AdminClient

_CONFIG: Final = "/api/v1/config/server_config"


@shown(
    "changes",
    column("key", "The setting."),
    column("was", "What it was, if it was set; secrets are masked."),
    column("value", "What it is; secrets are masked."),
)
@attrs.frozen(kw_only=True)
class ChangedSetting:
    """One setting of a running bookie before and after; ``was`` is None where none was set."""

    key: str
    was: str | None
    value: str


def planned(admin: AdminClient, pairs: Sequence[tuple[str, str]]) -> list[ChangedSetting]:
    """Return what would be changed; a bookie of ours need not be asked whether it would.

    Raises:
        UsageError: something is set twice, or to an invalid value.
        NothingFoundError: there is no such setting.
        ConflictError: one cannot be changed while the bookie runs.
    """
    given, before = _given(admin, pairs)
    if admin.speaks_v2:
        _insist_changeable(given, before)
    return _changed(before, given)


def change(admin: AdminClient, pairs: Sequence[tuple[str, str]]) -> list[ChangedSetting]:
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
    return _changed(before, {key: after.get(key, value) for key, value in given.items()})


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


def _changed(before: Mapping[str, str], after: Mapping[str, str]) -> list[ChangedSetting]:
    return [
        ChangedSetting(
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
    except InvalidValueError as error:
        raise UsageError(str(error)) from error
    except SettingsRefusedError as error:
        raise ConflictError(str(error)) from error
