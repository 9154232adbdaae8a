"""What was perhaps meant by a word that is not known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

ELSEWHERE: Final[Mapping[str, tuple[str, ...]]] = {
    "add": ("append",),
    "cat": ("read", "tail", "show"),
    "check": ("verify", "doctor"),
    "count": ("show",),
    "health": ("doctor", "status"),
    "ls": ("list", "tree"),
    "read": ("tail", "show"),
    "config-show": ("config",),
    "drain": ("decommission",),
    "df": ("usage", "map"),
    "dump": ("show", "read"),
    "remove": ("delete", "decommission"),
    "repair": ("recover", "audit"),
    "replace": ("decommission",),
    "rm": ("delete",),
    "info": ("show", "status"),
    "get": ("show",),
    "pause": ("disable",),
    "resume": ("enable",),
    "scrub": ("verify",),
    "set": ("config-set",),
    "size": ("show",),
    "stat": ("show", "status"),
    "usage": ("map",),
    "write": ("append",),
}
"""Words of shells, of `zkCli.sh` and of our other groups, and what a group has for the same."""

LINES: Final[Mapping[str, str]] = {
    "bookie ledgers": "ledger list --bookie BOOKIE_ID",
    "bookie usage": "bookie show",
    "cluster doctor": "doctor",
}
"""Commands that people look for, and the line of another group that does it."""


def nearest(word: str, known: Iterable[str], *, count: int = 1) -> list[str]:
    """Return the known words that are most like ``word``, whatever their case; the best first."""
    import difflib

    by_lower: Mapping[str, str] = {one.lower(): one for one in known}
    near = difflib.get_close_matches(word.lower(), by_lower, n=count, cutoff=0.6)
    return [by_lower[one] for one in near]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean NAME?`` for the end of an error, or nothing."""
    near = nearest(word, known)
    return f"; did you mean {near[0]}?" if near else ""


def meant_elsewhere(word: str, known: Iterable[str]) -> list[str]:
    """Return the known words for what other tools call ``word``."""
    there = frozenset(known)
    return [one for one in ELSEWHERE.get(word, ()) if one in there]
