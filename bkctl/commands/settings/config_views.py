"""How settings are shown: findings, keys, differences, values in effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bkctl.commands.settings.config_keys import KeyInfo
from bkctl.commands.settings.config_work import (
    Setting,
    SettingDifference,
    SettingFinding,
    SettingFrom,
)
from bkctl.output.emit import WIDE, Field, Kind, View

_FINDING: Final = (
    Field("severity", "error, warning or note.", lambda v: v.finding.severity.value, Kind.STATE),
    Field("key", "The key.", lambda v: v.finding.key),
    Field("kind", "A stable word for what is odd.", lambda v: v.finding.kind.value, rank=WIDE),
    Field("message", "What is odd.", lambda v: v.finding.message),
    Field(
        "origin",
        "The file and its line.",
        lambda v: None if v.finding.origin is None else str(v.finding.origin),
        rank=2,
    ),
    Field("allowed", "What the value may be.", lambda v: v.finding.allowed or None, rank=WIDE),
)


def _default(v: KeyInfo) -> str:
    """Return a default value; of a Java class its own name, which is what tells it apart."""
    text = str(v.default) if v.default not in {None, ""} else "-"
    return text.rpartition(".")[2] if text.startswith("org.apache.") else text


_KEY: Final = (
    Field("key", "Its name in a file, or a pattern of names.", lambda v: v.key),
    Field("uses", "honoured, no effect, warned, refused.", lambda v: list(v.uses), Kind.NESTED),
    Field("default", "The value where it is not set.", lambda v: v.default, rank=2, cell=_default),
    Field("unit", "The unit of the value.", lambda v: v.unit or None, rank=3),
    Field("doc", "What it does.", lambda v: v.doc, rank=1),
    Field("kind", "What the value is.", lambda v: v.kind or None, rank=WIDE),
    Field("allowed", "What the value may be.", lambda v: v.allowed or None, rank=WIDE),
    Field(
        "aliases",
        "Older names.",
        lambda v: list(v.aliases),
        Kind.NESTED,
        rank=WIDE,
        cell=lambda v: " ".join(v.aliases) or "-",
    ),
    Field("instead", "The name that is meant.", lambda v: v.instead or None, rank=WIDE),
    Field("read_by", "bookie, client.", lambda v: list(v.read_by), Kind.NESTED, rank=WIDE),
    Field("note", "Where Java's files say something else.", lambda v: v.note, rank=WIDE),
)

_SETTING: Final = (
    Field("key", "The key, or an option of every command.", lambda v: v.key),
    Field("value", "The value in effect.", lambda v: v.value),
    Field("origin", "Flag, variable, profile, line of a file, or default.", lambda v: v.origin),
)

CONFIG_VIEWS: Final[Mapping[type, View]] = {
    SettingFinding: View(
        "findings", _FINDING, "key", sentence=lambda v: f"{v.finding.severity.value}: {v.finding}"
    ),
    KeyInfo: View("keys", _KEY, "key"),
    SettingDifference: View(
        "differences",
        (
            Field("key", "The key.", lambda v: v.key),
            Field("first", "What the first file sets.", lambda v: v.first),
            Field("second", "What the second file sets.", lambda v: v.second),
            Field("default", "What holds where it is not set.", lambda v: v.default, rank=1),
        ),
        "key",
    ),
    Setting: View("settings", _SETTING, "key", sentence=lambda v: f"{v.key}={v.value}"),
    SettingFrom: View("settings", _SETTING, "key"),
}
