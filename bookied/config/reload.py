"""Settings that a running bookie can change: a rule, no effects.

Java's bookie takes any key into its memory and says that all went well (BookKeeper 4.18.0,
ConfigurationService); of most it never looks at the value again. Here only what takes effect can be
changed, all that is asked or none of it, until the settings are read again: what SIGHUP takes as
well (see ``reload``), except who may log in.
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
    """Where a bookie's settings come from."""

    read: Callable[[], BookieConfig]
    """Return the settings as they are now; blocks."""
    file: Path | None = None
    """The settings file, if the process was given one."""
    origins: Callable[[], Mapping[str, str]] = dict
    """Return where each value that is not a default comes from, by its key; blocks."""


_LOCKED: Final = frozenset({"authorizedRoles", "saslJaasClientAllowedIds"})
"""Who may log in is decided by those who may write the settings file."""


class SettingsRefusedError(BookKeeperError):
    """A setting cannot be changed while the bookie runs, or not to this value."""


class InvalidValueError(SettingsRefusedError):
    """A setting cannot have this value."""


class ContradictionError(InvalidValueError):
    """A setting cannot have this value beside the values of other settings."""


def changeable() -> dict[str, DeclaredSetting]:
    """Return the settings that can be, by their Java keys."""
    return {
        one.spec.key: one
        for one in declared(BookieConfig)
        if one.spec.reloads and one.spec.key not in _LOCKED
    }


def changed_settings(config: BookieConfig, given: Mapping[str, object]) -> BookieConfig:
    """Return the settings with new values, by their Java keys.

    Args:
        config: as the bookie runs.
        given: values as JSON has them; texts are read as in a settings file.

    Raises:
        SettingsRefusedError: at least one cannot be; it says why, and none is changed.
        ContradictionError: the new values contradict each other, or values of other settings.
    """
    changed = attrs.evolve(config, **read_settings(given))
    before = set(_errors(config))
    for error in _errors(changed):
        if error not in before:
            raise ContradictionError(f"{error.key}: {error.message}")
    return changed


def read_settings(given: Mapping[str, object]) -> dict[str, Any]:
    """Return values by their names in ``BookieConfig``, each looked at by itself.

    Raises:
        SettingsRefusedError: one cannot be changed.
        InvalidValueError: one cannot have this value.
    """
    by_key = changeable()
    fixed = sorted(given.keys() - by_key.keys())
    if fixed:
        raise SettingsRefusedError(
            f"not while the bookie runs: {', '.join(fixed)}; these can be changed: "
            f"{', '.join(sorted(by_key))}"
        )
    return {by_key[key].argument: _value(by_key[key], value) for key, value in given.items()}


def _value(one: DeclaredSetting, given: object) -> object:
    text = given if isinstance(given, str) else json.dumps(given)
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
    """Return where each value of ``now`` comes from, by its key.

    ``fresh`` is what the sources say at the moment, and ``origins`` where they say it. A value that
    the next start would not take was set at run time, or its source has changed since.
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
    """What comes of settings that were read again."""

    config: BookieConfig
    """What holds from now on."""
    taken: tuple[tuple[str, str], ...] = ()
    """Key and text of what is obeyed at once; secrets are masked."""
    later: tuple[str, ...] = ()
    """Keys whose other values hold from the next start on."""


def reloaded(now: BookieConfig, fresh: BookieConfig) -> Reload:
    """Return what becomes of ``now`` where the settings say ``fresh``."""
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
