"""The settings that a running bookie can change: a rule without effects.

Java's bookie accepts any key and reports success (BookKeeper 4.18.0, ConfigurationService), but
never reads most values again. bookied changes only settings that take effect: all of a request or
none. The changes last until the settings are read again. They are the settings that SIGHUP reads
again, too (see ``reload``), except the list of clients that may authenticate.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from bkclient.config.declaration import MASKED, DeclaredSetting, declared, value_text
from bkclient.config.findings import SettingFinding, Severity
from bookied.config.bookie import BookieConfig
from wire.errors import BookKeeperError


@attrs.frozen
class SettingsSource:
    """The source of a bookie's settings."""

    read: Callable[[], BookieConfig]
    """Returns the present settings of the source; blocks."""
    file: Path | None = None
    """The settings file, if the process was given one."""
    origins: Callable[[], Mapping[str, str]] = dict
    """Returns the source of each value that is not a default, by its key; blocks."""


_LOCKED: Final = frozenset({"authorizedRoles", "saslJaasClientAllowedIds"})
"""Keys that only the settings file can change: its writers decide who may authenticate."""


class SettingsRefusedError(BookKeeperError):
    """A setting cannot be changed while the bookie runs, or not to this value."""


class InvalidValueError(SettingsRefusedError):
    """A setting cannot have this value."""


class ContradictionError(InvalidValueError):
    """A setting cannot have this value beside the values of other settings."""


def changeable() -> dict[str, DeclaredSetting]:
    """Return the settings that can change at run time, by their Java keys."""
    return {
        one.spec.key: one
        for one in declared(BookieConfig)
        if one.spec.reloads and one.spec.key not in _LOCKED
    }


def changed_settings(config: BookieConfig, wanted: Mapping[str, object]) -> BookieConfig:
    """Return the settings with new values.

    Args:
        config: the settings of the running bookie.
        wanted: new values by Java key, as JSON values; strings are parsed as in a settings file.

    Raises:
        SettingsRefusedError: a setting cannot change, with the reason; no setting is changed.
        ContradictionError: the new values contradict each other, or other settings.
    """
    changed = attrs.evolve(config, **read_settings(wanted))
    before = set(_errors(config))
    for error in _errors(changed):
        if error not in before:
            raise ContradictionError(f"{error.key}: {error.message}")
    return changed


def read_settings(wanted: Mapping[str, object]) -> dict[str, Any]:
    """Return values by their names in ``BookieConfig``, each checked separately.

    Raises:
        SettingsRefusedError: a setting cannot change.
        InvalidValueError: a setting cannot have this value.
    """
    by_key = changeable()
    fixed = sorted(wanted.keys() - by_key.keys())
    if fixed:
        raise SettingsRefusedError(
            f"not while the bookie runs: {', '.join(fixed)}; to change a setting of the bookie's "
            "file, edit the file and restart the bookie; without a restart these can be changed: "
            f"{', '.join(sorted(by_key))}"
        )
    return {by_key[key].argument: _value(by_key[key], value) for key, value in wanted.items()}


def _value(one: DeclaredSetting, wanted: object) -> object:
    text = wanted if isinstance(wanted, str) else json.dumps(wanted)
    try:
        value: object = one.convert(text)
    except ValueError as error:
        raise InvalidValueError(
            f"{one.spec.key}: '{text}' {error}; allowed: {one.allowed}"
        ) from error
    reason = one.spec.refuse(value) if one.spec.refuse else None
    if reason:
        raise InvalidValueError(f"{one.spec.key}: '{text}' {reason}")
    return value


def _errors(config: BookieConfig) -> Iterator[SettingFinding]:
    return (one for one in config.cross_check() if one.severity is Severity.ERROR)


RUN_TIME: Final = "set at run time"
EARLIER: Final = "an earlier settings file"


def origins_in_effect(
    now: BookieConfig, fresh: BookieConfig, origins: Mapping[str, str], set_by_hand: Container[str]
) -> dict[str, str]:
    """Return the source of each value of ``now``, by its key.

    ``fresh`` has the present values of the sources, and ``origins`` their places. A value that
    differs from ``fresh`` was set at run time, or its source has changed since.
    """
    return {
        one.spec.key: origins.get(one.spec.key, "default")
        if getattr(now, one.name) == getattr(fresh, one.name)
        else RUN_TIME
        if one.spec.key in set_by_hand
        else EARLIER
        for one in declared(BookieConfig)
    }


@attrs.frozen
class Reload:
    """The result of reading the settings again."""

    config: BookieConfig
    """The settings from now on."""
    taken: tuple[tuple[str, str], ...] = ()
    """Key and text of each setting that takes effect at once; secrets are masked."""
    later: tuple[str, ...] = ()
    """Keys with new values that take effect at the next start."""


def reloaded(now: BookieConfig, fresh: BookieConfig) -> Reload:
    """Return the result of replacing ``now`` with the values ``fresh`` of the sources."""
    different = [
        one for one in declared(BookieConfig) if getattr(now, one.name) != getattr(fresh, one.name)
    ]
    taken = [one for one in different if one.spec.reloads]
    return Reload(
        attrs.evolve(now, **{one.argument: getattr(fresh, one.name) for one in taken}),
        tuple((one.spec.key, _text(one, fresh)) for one in taken),
        tuple(one.spec.key for one in different if not one.spec.reloads),
    )


def _text(one: DeclaredSetting, config: BookieConfig) -> str:
    return MASKED if one.spec.secret else value_text(getattr(config, one.name))
