"""Settings: one typed declaration of a key for the parser and the man page.

A settings class is an ``attrs.frozen(kw_only=True)`` class whose attributes are made by
``setting()``. ``load`` makes an instance from properties, with findings; the man page reads the
same declarations. Keys and meanings are Java's (BookKeeper 4.18.0, ServerConfiguration and
ClientConfiguration), so that existing files load.

A class may also have

* ``other_keys``, a ``ClassVar`` of ``OtherKey``: keys that it knows and does not use;
* ``cross_check()``, which yields a ``SettingFinding`` for values that contradict each other.
"""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final, TypeVar

import attrs

from bkclient.config.declaration import (
    MASKED,
    DeclaredSetting,
    OtherKey,
    Spec,
    declared,
    other_keys,
    value_text,
)
from bkclient.config.findings import ConfigError, FindingKind, Findings, SettingFinding, Severity
from bkclient.config.properties import Properties, Property, Value

T = TypeVar("T")

HINTS_MAX: Final = 50
"""Unknown keys for which a similar key is searched; each search takes a millisecond."""

KEY_CHARS_MAX: Final = 200
"""A longer key has no similar key."""

_NOT_SET: Final = "null"
"""The text for a value that is not set, in the sample files of BookKeeper and Pulsar."""


@cache
def known_keys(cls: Any) -> frozenset[str]:
    """Return the keys and older names of the settings of ``cls``."""
    return frozenset(
        key for one in declared(cls) for key in (one.spec.key, *one.spec.aliases)
    ) | frozenset(other.pattern for other in other_keys(cls) if "*" not in other.pattern)


def load(
    cls: type[T], properties: Properties, *, also: Iterable[type] = (), strict: bool = False
) -> tuple[T, Findings]:
    """Return the settings and the findings about them.

    Args:
        cls: the settings class.
        properties: the set values; ``Properties.override`` decides between command line,
            environment and file.
        also: other settings classes whose keys may be in the same file.
        strict: an unknown key is an error.

    Raises:
        ConfigError: at least one value is refused; it has all findings.
    """
    loading = _Loading(cls, properties)
    values = {one.argument: value for one in loading.settings for value in loading.value_of(one)}
    loading.check_other_keys(tuple(also), strict=strict)
    loading.stop_if_refused()
    config = cls(**values)
    cross_check: Callable[[], Iterable[SettingFinding]] | None = getattr(
        config, "cross_check", None
    )
    if cross_check is not None:
        loading.add_placed(cross_check())
    loading.stop_if_refused()
    return config, loading.findings()


def non_default_settings(config: object) -> tuple[tuple[str, str], ...]:
    """Return key and text of every setting that is not the default; secrets are masked."""
    return tuple(
        (one.spec.key, MASKED if one.spec.secret else value_text(getattr(config, one.name)))
        for one in declared(type(config))
        if getattr(config, one.name) != one.default
    )


def setting_origins(cls: type, properties: Properties) -> dict[str, str]:
    """Return the origin of each setting that is set, by its key."""
    found = {}
    for one in declared(cls):
        if (prop := _property(one.spec, properties)) is not None:
            found[one.spec.key] = str(prop.origin)
    return found


def _property(spec: Spec, properties: Properties) -> Property | None:
    """Return the property that sets a key, by its name or else by an older name."""
    found = (properties.entries.get(name) for name in (spec.key, *spec.aliases))
    return next(filter(None, found), None)


def settings_text(config: object) -> dict[str, str]:
    """Return every setting as text, by its key; secrets that are set are masked."""
    return {
        one.spec.key: MASKED
        if one.spec.secret and getattr(config, one.name)
        else value_text(getattr(config, one.name))
        for one in declared(type(config))
    }


class _Patterns:
    """A search for the pattern that a key matches, for all patterns together."""

    def __init__(self, patterns: Iterable[str]) -> None:
        each = [f"({fnmatch.translate(one)})" for one in patterns]
        self._any = re.compile("|".join(each) or "(?!)")

    def first(self, key: str) -> int | None:
        """Return the number of the first pattern that a key matches."""
        found = self._any.match(key)
        return None if found is None or found.lastindex is None else found.lastindex - 1


@cache
def _patterns(*classes: Any) -> _Patterns:
    return _Patterns(one.pattern for cls in classes for one in other_keys(cls))


class _Loading:
    """One run of ``load``, with its findings so far."""

    def __init__(self, cls: type, properties: Properties) -> None:
        self._cls, self.settings = cls, declared(cls)
        self._properties = properties
        self._by_key = properties.entries
        self._found: list[SettingFinding] = []
        self._unknown_keys = 0

    def findings(self) -> Findings:
        return tuple(self._found)

    def stop_if_refused(self) -> None:
        if any(found.severity is Severity.ERROR for found in self._found):
            raise ConfigError(self.findings())

    def value_of(self, one: DeclaredSetting) -> Iterator[Any]:
        """Yield the set value; nothing if the default applies, or after an error."""
        prop = _property(one.spec, self._properties)
        if prop is None:
            return
        texts = self._texts(one, prop)
        if one.is_list:
            value: Any = tuple(text for text in texts if text)
        else:
            text = texts[0]
            if one.optional and text == "":
                yield None
                return
            if text == _NOT_SET and one.kind in {"text", "choice"} and not one.spec.secret:
                return
            try:
                value = one.convert(text)
            except ValueError as error:
                shown = "" if one.spec.secret else f"'{text}' "
                self._add_error(prop, FindingKind.INVALID, f"{shown}{error}", text, one.allowed)
                return
        self._weigh(one, prop, value)
        yield value

    def check_other_keys(self, also: tuple[type, ...], *, strict: bool) -> None:
        """Report keys that are not settings of the class: known without effect, or unknown."""
        used = {key for one in self.settings for key in (one.spec.key, *one.spec.aliases)}
        others = frozenset().union(*map(known_keys, also))
        for prop in self._by_key.values():
            if prop.key in used:
                continue
            number = _patterns(self._cls).first(prop.key)
            if number is not None:
                self._judge_other(other_keys(self._cls)[number], prop)
            elif prop.key not in others and _patterns(*also).first(prop.key) is None:
                self._unknown(prop, known_keys(self._cls) | others, strict=strict)

    def add_placed(self, findings: Iterable[SettingFinding]) -> None:
        """Add findings of a cross check, with the place of their key."""
        for found in findings:
            prop = self._by_key.get(found.key)
            origin = found.origin or (None if prop is None else prop.origin)
            self._found.append(attrs.evolve(found, origin=origin))

    def _texts(self, one: DeclaredSetting, prop: Property) -> list[str]:
        """Return the texts that count, expanded; report those that Java would drop."""
        if one.is_list:
            return [self._expanded(one.spec, prop, value) for value in prop.values]
        if len(prop.statements) > 1:
            lines = ", ".join(str(statement[0].origin) for statement in prop.statements[1:])
            self._add(
                Severity.WARNING, FindingKind.CUT, prop, f"set again at {lines}; the first counts"
            )
        if len(prop.statements[0]) > 1:
            self._add(
                Severity.WARNING,
                FindingKind.CUT,
                prop,
                "cut at the first comma, as Java does; write \\, for a comma that belongs to it",
            )
        return [self._expanded(one.spec, prop, prop.values[0])]

    def _expanded(self, spec: Spec, prop: Property, value: Value) -> str:
        text = self._properties.expand(value)
        if "${" in text:
            shown = MASKED if spec.secret else text
            message = f"'{shown}' refers to nothing we know"
            self._add(Severity.WARNING, FindingKind.REFERENCE, prop, message)
        return text

    def _weigh(self, one: DeclaredSetting, prop: Property, value: Any) -> None:
        spec = one.spec
        reason = spec.refuse(value) if spec.refuse else None
        if reason:
            text = MASKED if spec.secret else value_text(value)
            allowed = value_text(not value) if isinstance(value, bool) else one.allowed
            self._add_error(prop, FindingKind.REFUSED, f"'{text}' {reason}", text, allowed)
        reason = spec.risky(value) if spec.risky else None
        if reason:
            self._add(Severity.WARNING, FindingKind.RISKY, prop, reason)

    def _judge_other(self, known: OtherKey, prop: Property) -> None:
        text = ",".join(self._properties.expand(value) for value in prop.values)
        if known.instead:
            message = f"{known.doc}; the key is {known.instead}"
            self._add(Severity.WARNING, FindingKind.UNKNOWN, prop, message)
            return
        if text.lower() not in {"", known.default.lower()}:
            severity = Severity.WARNING if known.risky else Severity.NOTE
            self._add(severity, FindingKind.IGNORED, prop, f"no effect: {known.doc}")

    def _unknown(self, prop: Property, known: frozenset[str], *, strict: bool) -> None:
        self._unknown_keys += 1
        hint = ""
        if self._unknown_keys <= HINTS_MAX and len(prop.key) <= KEY_CHARS_MAX:
            lowered = {key.lower(): key for key in known}
            near = difflib.get_close_matches(prop.key.lower(), lowered, n=1, cutoff=0.75)
            hint = f"; did you mean {lowered[near[0]]}?" if near else ""
        severity = Severity.ERROR if strict else Severity.WARNING
        self._add(severity, FindingKind.UNKNOWN, prop, f"unknown key, not used{hint}")

    def _add(self, severity: Severity, kind: FindingKind, prop: Property, message: str) -> None:
        self._found.append(SettingFinding(severity, kind, message, prop.key, prop.origin))

    def _add_error(
        self, prop: Property, kind: FindingKind, message: str, text: str, allowed: str
    ) -> None:
        self._found.append(
            SettingFinding(Severity.ERROR, kind, message, prop.key, prop.origin, text, allowed)
        )


def settings_of_environment(environ: Mapping[str, str], *classes: type) -> dict[str, str]:
    """Return the settings in ``BK_<key>`` variables.

    ``BK_`` and a word in capitals (``BK_HOME``) is not a setting. Any other name that no class
    knows is passed on, so that ``load`` can warn about it.
    """
    known = frozenset().union(*(known_keys(cls) for cls in classes))
    found = {name[3:]: text for name, text in environ.items() if name.startswith("BK_")}
    return {
        key: text for key, text in found.items() if key in known or re.match(r"[a-z]+[A-Z_.]", key)
    }
