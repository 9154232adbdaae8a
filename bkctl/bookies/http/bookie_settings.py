"""The settings of a running bookie, with their origins; secrets are masked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from bkclient.config.declaration import MASKED, declared, is_secret_key
from bkctl.bookies.http.admin_client import AdminClient
from bkctl.bookies.http.answers import require_known_form
from bkctl.errors import NothingFoundError
from bkctl.output.views import BOOKIE, field, shown
from bkctl.suggest import did_you_mean, keys_like

if TYPE_CHECKING:
    from wire.ids import BookieId


@shown("settings", id="key")
class BookieSetting:
    """One setting of a running bookie."""

    bookie_id: BookieId = field(BOOKIE)
    key: str = field("The setting.")
    value: str = field("The value in effect; secrets are masked.")
    origin: str | None = field(
        "Origin of the value: a line of a file, a variable, an option, the "
        "default, or a change at run time. Empty if the bookie does not report it.",
        optional=True,
        default=None,
    )


def settings(admin: AdminClient, bookie_id: BookieId, keys: tuple[str, ...]) -> list[BookieSetting]:
    """Return the bookie's settings: all, or matches of ``keys``: names, parts, patterns with ``*``.

    A setting without its own value has the value of the setting that is its default.

    Raises:
        NothingFoundError: a key matches no setting of the bookie.
    """
    from bookied.config.bookie import BookieConfig

    found = all_settings(admin)
    matches = {key: keys_like(key, sorted(found)) for key in keys}
    missing = [key for key, matched in matches.items() if not matched]
    if missing:
        raise unknown_settings(missing, found)
    named = dict.fromkeys(key for matched in matches.values() for key in matched)
    chosen = named if keys else sorted(found)
    defaults = {one.spec.key: one.default_text for one in declared(BookieConfig)}

    def in_effect(key: str) -> str:
        default = defaults.get(key)
        return found[key] or (in_effect(default) if default in found else "")

    origins = _origins(admin)
    return [
        BookieSetting(bookie_id, key, masked(key, in_effect(key)), origins.get(key))
        for key in chosen
    ]


def unknown_settings(keys: Sequence[str], known: Iterable[str]) -> NothingFoundError:
    """Return the error for settings that a bookie does not report."""
    from bkclient.config.client import ClientConfig

    of_clients = {
        key for one in declared(ClientConfig) for key in (one.spec.key, *one.spec.aliases)
    }
    for key in keys:
        if key in of_clients:
            return NothingFoundError(
                f"{key} is a setting of clients, which autorecovery reads from the bookie's "
                "settings file when it starts: a running bookie neither shows nor changes it",
                next_step=f"`bkctl config show {key} -c FILE` shows the value in a settings file",
            )
        if ":" in key:
            return NothingFoundError(
                f"there is no setting {key}", next_step="separate several bookies by commas: B1,B2"
            )
    meant = did_you_mean(keys[0], known) if len(keys) == 1 else ""
    return NothingFoundError(
        f"no such setting, or it is not set: {', '.join(keys)}{meant}",
        next_step="`bkctl config show --keys` lists all settings",
    )


@require_known_form
def _origins(admin: AdminClient) -> dict[str, str]:
    """Return the origins of the values; empty if the bookie does not report them."""
    answer = admin.request("GET", "/api/v2/config/origins") if admin.speaks_v2 else None
    return dict(answer.json) if answer is not None and answer.ok else {}


@require_known_form
def all_settings(admin: AdminClient) -> dict[str, str]:
    """Return the bookie's settings by key, including the secrets that it reports."""
    path = "/api/v2/config" if admin.speaks_v2 else "/api/v1/config/server_config"
    return {key: str(value) for key, value in admin.ask("GET", path).json.items()}


def masked(key: str, value: str) -> str:
    """Mask a secret: bookied does so itself, Java's bookie returns secrets to every client."""
    return MASKED if value and is_secret_key(key) else value
