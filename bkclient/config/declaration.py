"""The declaration of a setting: its key, type, allowed values, and parser.

``setting()`` makes an attribute of a settings class (see ``bkclient.config.settings``);
``declared`` returns the declarations of a class, with the types of their annotations resolved.
"""

from __future__ import annotations

import enum
import math
import re
import types
import typing
from collections.abc import Callable, Hashable
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import attrs

T = TypeVar("T")

MASKED: Final = "********"
"""The text shown in place of a secret."""

_SECRET_WORDS: Final = re.compile(r"pas+(w|phr)|pwd|secr|tok[en]|cred", re.IGNORECASE)
_METADATA: Final = "bkclient.setting"
_UNIT_IN_NAME: Final = re.compile(r"_(ms|s|bytes)(?:_max|_min)?$")
_TRUE: Final = frozenset({"true", "yes", "on", "t", "y"})
_FALSE: Final = frozenset({"false", "no", "off", "f", "n"})
_INT64_MAX: Final = 2**63 - 1


def is_secret_key(key: str) -> bool:
    """Return whether a key's name marks its value as a secret.

    The path of a secret's file is not a secret. For keys that are not declared here: Java's bookies
    show all their settings.
    """
    names_a_file = re.search(r"(path|file)$", key, re.IGNORECASE)
    return not names_a_file and bool(_SECRET_WORDS.search(key))


@attrs.frozen
class OtherKey:
    """Keys, by name or ``fnmatch`` pattern, that a settings class knows and does not use.

    ``doc`` is the reason. An empty value is not reported, nor is Java's ``default``. ``instead`` is
    the right name of a key that is not read. With ``risky``, the finding is a warning.
    """

    pattern: str
    doc: str
    instead: str = ""
    risky: bool = False
    default: str = ""


def ignored(doc: str, *patterns: str) -> tuple[OtherKey, ...]:
    """Return keys without effect; ``key=value`` is a key with Java's default."""
    split = (pattern.partition("=") for pattern in patterns)
    return tuple(OtherKey(key, doc, default=default) for key, _, default in split)


@attrs.frozen(kw_only=True)
class Spec:
    """The properties of a setting, except its default."""

    key: str
    """The name in a file."""
    doc: str
    """One or two sentences for the operator."""
    unit: str = ""
    """The unit in print, such as ``entries/s``.

    By default the end of the attribute's name (``ms``, ``s``,
    ``bytes``, also before ``_max`` or ``_min``).
    """
    group: str = ""
    """The heading in lists; if empty, the heading of the setting before."""
    aliases: tuple[str, ...] = ()
    """Older names, used if ``key`` is not set."""
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    """The only allowed texts."""
    default_text: str | None = None
    """The text of a default that depends on other settings."""
    secret: bool = False
    """Never print the value."""
    reloads: bool = False
    """A running process applies a new value when it reads its settings again."""
    parse: Callable[[str], Any] | None = None
    """Parses the text if the annotation's type is not enough; raises ``ValueError``."""
    risky: Callable[[Any], str | None] | None = None
    """Returns the reason to warn about a value, or ``None``."""
    refuse: Callable[[Any], str | None] | None = None
    """Returns the reason not to start with a value, or ``None``."""


def setting(default: T, **attributes: Any) -> T:
    """Declare one attribute of a settings class; ``attributes`` are those of its ``Spec``.

    ``default`` applies if the key is not set. The type is the attribute's annotation: bool, int,
    float, str, an ``enum.Enum`` by value, ``tuple[str, ...]``, or one of these or ``None``.
    """
    spec = Spec(**attributes)
    field: T = attrs.field(default=default, metadata={_METADATA: spec}, repr=not spec.secret)
    return field


def value_text(value: object) -> str:
    """Return ``value`` as written in a file."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, enum.Enum):
        return str(value.value)
    if isinstance(value, tuple):
        return ",".join(value_text(element) for element in value)
    if isinstance(value, (str, Path)):
        escaped = str(value).replace("\\", "\\\\").replace(",", "\\,")
        return escaped.replace("\n", "\\n").replace("\r", "\\r")
    return str(value)


@attrs.frozen
class DeclaredSetting:
    """A setting with its attribute and resolved type.

    The constructor takes an attribute ``_x`` as ``x``; a property ``x`` then returns the value in
    effect.
    """

    name: str
    argument: str
    spec: Spec
    type: Any
    is_list: bool
    optional: bool
    default: Any

    @property
    def kind(self) -> str:
        if self.is_list:
            return "list"
        if isinstance(self.type, type) and issubclass(self.type, enum.Enum):
            return "choice"
        return {bool: "true or false", int: "whole number", float: "number"}.get(self.type, "text")

    @property
    def default_text(self) -> str:
        text = self.spec.default_text
        return value_text(self.default) if text is None else text

    @property
    def allowed(self) -> str:
        spec = self.spec
        if spec.choices:
            return ", ".join(spec.choices)
        if self.kind == "choice":
            return ", ".join(str(member.value) for member in self.type)
        if self.type is bool:
            return "true, false, yes, no, on, off"
        if spec.minimum is not None and spec.maximum is not None:
            return f"{spec.minimum} to {spec.maximum}"
        if spec.minimum is not None:
            return f"{spec.minimum} and above"
        if spec.maximum is not None:
            return f"up to {spec.maximum}"
        return {int: "a whole number", float: "a number"}.get(self.type, "")

    def convert(self, text: str) -> Any:
        """Return the value of ``text``; raise ``ValueError`` with the reason."""
        if self.spec.choices and text not in self.spec.choices:
            raise ValueError("is not one of the allowed values")
        if self.spec.parse is not None:
            return self.spec.parse(text)
        if self.type is bool:
            return _bool(text)
        if self.type in {int, float}:
            return self._number(text)
        if self.kind == "choice":
            return _member(self.type, text)
        return text

    def _number(self, text: str) -> float:
        if not text:
            raise ValueError("is empty where a number must be")
        number = _int(text, self.spec.unit) if self.type is int else _float(text)
        low, high = self.spec.minimum, self.spec.maximum
        if (low is not None and number < low) or (high is not None and number > high):
            raise ValueError("is out of range")
        return number


def declared(cls: type) -> tuple[DeclaredSetting, ...]:
    """Return the settings of a class in order of declaration, those of its bases first."""
    return _read_declarations(cast("Hashable", cls))


@cache
def _read_declarations(cls: type) -> tuple[DeclaredSetting, ...]:
    hints = typing.get_type_hints(cls)
    found = []
    group = ""
    for field in attrs.fields(cls):
        own = field.metadata.get(_METADATA)
        if own is None:
            continue
        hint, optional = _without_none(hints[field.name])
        named = _UNIT_IN_NAME.search(field.name)
        unit = named[1] if named and not own.unit and hint is not bool else own.unit
        group = own.group or group
        spec = attrs.evolve(own, unit=unit, group=group)
        is_list = typing.get_origin(hint) is tuple
        found.append(
            DeclaredSetting(field.name, field.alias, spec, hint, is_list, optional, field.default)
        )
    return tuple(found)


def _without_none(hint: Any) -> tuple[Any, bool]:
    if typing.get_origin(hint) not in {typing.Union, types.UnionType}:
        return hint, False
    arguments = [part for part in typing.get_args(hint) if part is not types.NoneType]
    assert len(arguments) == 1, f"a setting of type {hint}"
    return arguments[0], True


def other_keys(cls: type) -> tuple[OtherKey, ...]:
    """Return the keys that a settings class knows and does not use."""
    other: tuple[OtherKey, ...] = getattr(cls, "other_keys", ())
    return other


def _bool(text: str) -> bool:
    lowered = text.lower()
    if lowered in _TRUE:
        return True
    if lowered in _FALSE:
        return False
    raise ValueError("is not a boolean")


def _int(text: str, unit: str) -> int:
    if not re.fullmatch(r"[+-]?(0[xX][0-9a-fA-F]+|[0-9]+)", text):
        raise ValueError(f"is not a whole number{f' of {unit}' if unit else ''}")
    number = int(text, 16) if "x" in text.lower() else int(text)
    if not -_INT64_MAX - 1 <= number <= _INT64_MAX:
        raise ValueError("does not fit into 64 bits")
    return number


def _float(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ValueError("is not a number") from None
    if not math.isfinite(number):
        raise ValueError("is not a number")
    return number


def _member(kind: type[enum.Enum], text: str) -> enum.Enum:
    for member in kind:
        if str(member.value).lower() == text.lower():
            return member
    raise ValueError("is not one of the allowed values")
