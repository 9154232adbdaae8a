"""A user's preferences for the shell: the table ``shell`` of the user's file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from bkctl.errors import UsageError
from bkctl.session.profiles import profile_path, read_profiles
from bkctl.suggest import did_you_mean

KEYS: Final = ("emacs", "vi")


def preferences(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return what the user's file says of the shell, as the shell takes it.

    Raises:
        UsageError: the file cannot be read, or has an invalid value.
    """
    file = read_profiles(environ)
    try:
        return dict(_preference(name, value) for name, value in file.shell.items())
    except ValueError as error:
        raise UsageError(f"{file.path}: shell.{error}") from error


def write_first(environ: Mapping[str, str]) -> Path | None:
    """Write a file with nothing but comments where the user has none; return its path if so."""
    path = profile_path(environ)
    if path is None or path.exists():
        return None
    from bkctl.commands.settings.profile_file import HEAD, write_profiles

    try:
        write_profiles(path, HEAD)
    except OSError:  # A home that cannot be written to is no reason to stay outside.
        return None
    return path


def _preference(name: str, value: Any) -> tuple[str, Any]:
    """Return one line of the table as the shell takes it.

    Raises:
        ValueError: there is no such name, or the value cannot be.
    """
    if name == "keys" and value in KEYS:
        return "vi", value == "vi"
    if name == "bar" and isinstance(value, bool):
        return name, value
    if name == "timing" and _is_seconds(value):
        return "timing_s", _seconds(value)
    if name == "bell" and _is_seconds(value):
        return "bell_s", _seconds(value)
    if name == "audit" and isinstance(value, str):
        return name, os.path.expanduser(value)  # noqa: PTH111 -- it may be no path
    if name not in _MAY_BE:
        raise ValueError(f"{name}: unknown{did_you_mean(name, _MAY_BE)}")
    raise ValueError(f"{name} is {_MAY_BE[name]}")


_MAY_BE: Final = {
    "keys": "emacs or vi",
    "bar": "true or false",
    "timing": "true, false or seconds",
    "bell": "true, false or seconds",
    "audit": "a file, or syslog",
}


def _is_seconds(value: Any) -> bool:
    return isinstance(value, (bool, int, float)) and value >= 0


def _seconds(value: float) -> float | None:
    """Return the seconds that a value stands for: true is always, and false is never."""
    if isinstance(value, bool):
        return 0.0 if value else None
    return float(value)
