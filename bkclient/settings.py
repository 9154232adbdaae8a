"""Settings: one typed declaration of a key feeds the parser, the sample file and the man page.

A settings class is an ``attrs.frozen(kw_only=True)`` class whose attributes are made by
``setting()``. ``load`` fills one from properties and says what it found odd; ``describe`` and
``sample`` read the same declarations. Keys and meanings are Java's (BookKeeper 4.18.0,
ServerConfiguration and ClientConfiguration), so that existing files load.

A class may also have

* ``other_keys``, a ``ClassVar`` of ``OtherKey``: keys it knows and does not use;
* ``cross_check()``, giving a ``Finding`` for each pair of values that do not go together.
"""

from __future__ import annotations

import difflib
import enum
import fnmatch
import math
import re
import types
import typing
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar, cast

import attrs

from bkclient.properties import (
    Origin,
    Properties,
    PropertiesError,
    Property,
    Value,
    java_system_properties,
    parse_properties,
    read_properties,
)
from wire.errors import BookKeeperError

__all__ = [
    "ConfigError",
    "Finding",
    "FindingKind",
    "Findings",
    "Origin",
    "OtherKey",
    "Properties",
    "PropertiesError",
    "SettingInfo",
    "Severity",
    "changed",
    "describe",
    "environment",
    "java_system_properties",
    "known_keys",
    "load",
    "parse_properties",
    "read_properties",
    "sample",
    "setting",
    "value_text",
]

T = TypeVar("T")

_METADATA: Final = "bkclient.setting"
_TRUE: Final = frozenset({"true", "yes", "on", "t", "y"})
_FALSE: Final = frozenset({"false", "no", "off", "f", "n"})
_MASKED: Final = "********"
_INT64_MAX: Final = 2**63 - 1


class Severity(enum.Enum):
    """How much a finding matters."""

    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"
    """The settings are refused."""


class FindingKind(enum.Enum):
    """What is odd about a key."""

    UNKNOWN = "unknown"
    IGNORED = "ignored"
    """Accepted without effect."""
    RISKY = "risky"
    CUT = "cut"
    """Only the first of several values counts, as in Java."""
    REFERENCE = "reference"
    """A ``${…}`` that means nothing."""
    INVALID = "invalid"
    REFUSED = "refused"
    """A legal value we cannot provide, where going on without would lose safety."""


@attrs.frozen
class Finding:
    """One thing to tell the operator about one key. ``value`` is the text as it was given."""

    severity: Severity
    kind: FindingKind
    key: str
    message: str
    origin: Origin | None = None
    value: str | None = attrs.field(default=None, repr=False)
    allowed: str = ""

    def __str__(self) -> str:
        where = "" if self.origin is None else f"{self.origin}: "
        allowed = f"; allowed: {self.allowed}" if self.allowed else ""
        return f"{where}{self.key}: {self.message}{allowed}"


Findings = tuple[Finding, ...]


class ConfigError(BookKeeperError):
    """The settings cannot be used as they are.

    ``finding`` is the first reason, with its key, value, origin and what is allowed; ``findings``
    are all that were found, warnings included.
    """

    exit_status: ClassVar[int] = 2

    def __init__(self, findings: Findings) -> None:
        errors = [found for found in findings if found.severity is Severity.ERROR]
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        super().__init__(f"{errors[0]}{more}")
        self.finding = errors[0]
        self.findings = findings


@attrs.frozen
class OtherKey:
    """Keys by name or ``fnmatch`` pattern that a settings class knows and does not use.

    ``doc`` says why they have no effect; not even that is said of an empty or ``harmless`` value.
    With ``instead``, a name nobody reads, and the right one. With ``refused``, any other value
    stops the start; with ``risky``, it is warned about.
    """

    pattern: str
    doc: str
    refused: bool = False
    harmless: tuple[str, ...] = ()
    instead: str = ""
    risky: bool = False


@attrs.frozen(kw_only=True)
class _Spec:
    key: str
    doc: str
    unit: str
    group: str
    aliases: tuple[str, ...]
    minimum: float | None
    maximum: float | None
    choices: tuple[str, ...]
    default_text: str | None
    without_effect: str
    secret: bool
    parse: Callable[[str], Any] | None
    risky: Callable[[Any], str | None] | None
    refuse: Callable[[Any], str | None] | None


def setting(
    default: T,
    *,
    key: str,
    doc: str,
    unit: str = "",
    group: str = "",
    aliases: tuple[str, ...] = (),
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
    default_text: str | None = None,
    without_effect: str = "",
    secret: bool = False,
    parse: Callable[[str], Any] | None = None,
    risky: Callable[[Any], str | None] | None = None,
    refuse: Callable[[Any], str | None] | None = None,
) -> T:
    """Declare one attribute of a settings class.

    Args:
        default: used where the key is not set; its type is the attribute's annotation, one of
            bool, int, float, str, an ``enum.Enum`` by value, ``tuple[str, ...]``, or one of
            these or ``None``.
        key: the name in a file.
        doc: one or two sentences for the operator.
        unit: as printed: ``ms``, ``bytes``, ``entries/s``.
        group: the heading it is listed under; the last one given goes on when empty.
        aliases: older names, used where ``key`` is not set.
        minimum: the least number allowed.
        maximum: the greatest number allowed.
        choices: the only texts allowed.
        default_text: how to print a default that depends on something else.
        without_effect: why setting it changes nothing now; said once when it is set to
            something else than the default.
        secret: never print the value.
        parse: text to value where the annotation's type cannot say it; raises ``ValueError``.
        risky: the reason to warn about a value, or ``None``.
        refuse: the reason not to start with a value, or ``None``.
    """
    spec = _Spec(
        key=key,
        doc=doc,
        unit=unit,
        group=group,
        aliases=aliases,
        minimum=minimum,
        maximum=maximum,
        choices=choices,
        default_text=default_text,
        without_effect=without_effect,
        secret=secret,
        parse=parse,
        risky=risky,
        refuse=refuse,
    )
    field: T = attrs.field(default=default, metadata={_METADATA: spec}, repr=not secret)
    return field


@attrs.frozen(kw_only=True)
class SettingInfo:
    """A declared setting as documentation: what man pages and ``bkctl config`` print."""

    name: str
    key: str
    aliases: tuple[str, ...]
    kind: str
    unit: str
    default: str
    allowed: str
    doc: str
    group: str
    without_effect: str
    secret: bool


def describe(cls: type) -> tuple[SettingInfo, ...]:
    """Return the settings of ``cls`` in order of declaration."""
    infos: list[SettingInfo] = []
    group = ""
    for one in _declared(cls):
        group = one.spec.group or group
        infos.append(
            SettingInfo(
                name=one.argument,
                key=one.spec.key,
                aliases=one.spec.aliases,
                kind=one.kind,
                unit=one.spec.unit,
                default=one.default_text,
                allowed=one.allowed,
                doc=one.spec.doc,
                group=group,
                without_effect=one.spec.without_effect,
                secret=one.spec.secret,
            )
        )
    return tuple(infos)


def sample(cls: type) -> str:
    """Return a settings file with every key commented out at its default."""
    lines: list[str] = []
    group = None
    for info in describe(cls):
        if info.group != group:
            group = info.group
            lines += ["", f"## {group}" if group else "##", ""]
        unit = f" [{info.unit}]" if info.unit else ""
        effect = f" No effect yet: {info.without_effect}." if info.without_effect else ""
        lines += [f"# {info.doc}{unit}{effect}", f"#{info.key}={info.default}", ""]
    return "\n".join(lines).lstrip("\n")


def known_keys(cls: type) -> frozenset[str]:
    """Return the keys and older names of the settings of ``cls``."""
    return frozenset(
        key for one in _declared(cls) for key in (one.spec.key, *one.spec.aliases)
    ) | frozenset(other.pattern for other in _other_keys(cls) if "*" not in other.pattern)


def environment(environ: Mapping[str, str], *classes: type) -> dict[str, str]:
    """Return what ``BK_<key>`` variables set, as the Java container scripts have it.

    ``BK_`` and a word in capitals (``BK_HOME``) is not a setting; any other name that no class
    knows is passed on, so that ``load`` can warn about it.
    """
    known = frozenset().union(*(known_keys(cls) for cls in classes))
    found = {name[3:]: text for name, text in environ.items() if name.startswith("BK_")}
    return {
        key: text for key, text in found.items() if key in known or re.match(r"[a-z]+[A-Z_.]", key)
    }


def load(
    cls: type[T], properties: Properties, *, also: Iterable[type] = (), strict: bool = False
) -> tuple[T, Findings]:
    """Return the settings and what is odd about them.

    Args:
        cls: the settings class.
        properties: what is set; the last word (command line over environment over file) is
            ``Properties.override``'s business.
        also: other settings classes whose keys may stand in the same file.
        strict: an unknown key is an error.

    Raises:
        ConfigError: at least one value is refused; all findings are in it.
    """
    loading = _Loading(cls, properties)
    values = {one.argument: value for one in _declared(cls) for value in loading.value_of(one)}
    loading.look_at_other_keys(tuple(also), strict=strict)
    loading.stop_if_refused()
    config = cls(**values)
    cross_check: Callable[[], Iterable[Finding]] | None = getattr(config, "cross_check", None)
    if cross_check is not None:
        loading.add_placed(cross_check())
    loading.stop_if_refused()
    return config, loading.findings()


def changed(config: object) -> tuple[tuple[str, str], ...]:
    """Return key and text of every setting that has not its default; secrets are masked."""
    return tuple(
        (one.spec.key, _MASKED if one.spec.secret else value_text(getattr(config, one.name)))
        for one in _declared(type(config))
        if getattr(config, one.name) != one.default
    )


def value_text(value: object) -> str:
    """Return ``value`` as it would stand in a file."""
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
class _Declared:
    """A setting with its attribute and resolved type.

    An attribute ``_x`` is given as ``x`` to the constructor; a property ``x`` then gives the
    value in effect.
    """

    name: str
    argument: str
    spec: _Spec
    type: Any
    optional: bool
    default: Any

    @property
    def is_list(self) -> bool:
        return typing.get_origin(self.type) is tuple

    @property
    def kind(self) -> str:
        if self.is_list:
            return "list"
        if isinstance(self.type, type) and issubclass(self.type, enum.Enum):
            return "choice"
        return {bool: "true or false", int: "whole number", float: "number"}.get(self.type, "text")

    @property
    def default_text(self) -> str:
        given = self.spec.default_text
        return value_text(self.default) if given is None else given

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
        """Return the value ``text`` stands for; raise ``ValueError`` with the reason."""
        if self.spec.choices and text not in self.spec.choices:
            raise ValueError("is none of the values allowed")
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
        number = _int(text) if self.type is int else _float(text)
        low, high = self.spec.minimum, self.spec.maximum
        if (low is not None and number < low) or (high is not None and number > high):
            raise ValueError("is out of range")
        return number


def _declared(cls: type) -> tuple[_Declared, ...]:
    return _read_declarations(cast("Hashable", cls))


@cache
def _read_declarations(cls: type) -> tuple[_Declared, ...]:
    hints = typing.get_type_hints(cls)
    found = []
    for field in attrs.fields(cls):
        spec = field.metadata.get(_METADATA)
        if spec is None:
            continue
        hint, optional = _without_none(hints[field.name])
        found.append(_Declared(field.name, field.alias, spec, hint, optional, field.default))
    return tuple(found)


def _without_none(hint: Any) -> tuple[Any, bool]:
    if typing.get_origin(hint) not in {typing.Union, types.UnionType}:
        return hint, False
    arguments = [part for part in typing.get_args(hint) if part is not types.NoneType]
    assert len(arguments) == 1, f"a setting of type {hint}"
    return arguments[0], True


def _other_keys(cls: type) -> tuple[OtherKey, ...]:
    other: tuple[OtherKey, ...] = getattr(cls, "other_keys", ())
    return other


def _matches(key: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(key, pattern)


def _bool(text: str) -> bool:
    lowered = text.lower()
    if lowered in _TRUE:
        return True
    if lowered in _FALSE:
        return False
    raise ValueError("is neither true nor false")


def _int(text: str) -> int:
    if not re.fullmatch(r"[+-]?(0[xX][0-9a-fA-F]+|[0-9]+)", text):
        raise ValueError("is not a whole number")
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
    raise ValueError("is none of the values allowed")


class _Loading:
    """One run of ``load``: where values are found, and the findings so far."""

    def __init__(self, cls: type, properties: Properties) -> None:
        self._cls = cls
        self._properties = properties
        self._found: list[Finding] = []

    def findings(self) -> Findings:
        return tuple(self._found)

    def stop_if_refused(self) -> None:
        if any(found.severity is Severity.ERROR for found in self._found):
            raise ConfigError(self.findings())

    def value_of(self, one: _Declared) -> Iterator[Any]:
        """Yield the value that is set; nothing where the default holds, or after an error."""
        prop = self._property(one.spec)
        if prop is None:
            return
        texts = self._texts(one, prop)
        if one.is_list:
            value: Any = tuple(text for text in texts if text)
        else:
            text = texts[0]
            if one.optional and text == "" and one.type not in {int, float}:
                yield None
                return
            try:
                value = one.convert(text)
            except ValueError as error:
                shown = "" if one.spec.secret else f"'{text}' "
                self._add_error(prop, FindingKind.INVALID, f"{shown}{error}", text, one.allowed)
                return
        self._weigh(one, prop, value)
        yield value

    def look_at_other_keys(self, also: tuple[type, ...], *, strict: bool) -> None:
        """Find keys that are not settings of the class: known without use, or unknown."""
        own = known_keys(self._cls)
        others = frozenset().union(*(known_keys(cls) for cls in also))
        other_patterns = tuple(one.pattern for cls in also for one in _other_keys(cls))
        used = {key for one in _declared(self._cls) for key in (one.spec.key, *one.spec.aliases)}
        for prop in self._properties:
            if prop.key in used:
                continue
            candidates = (one for one in _other_keys(self._cls) if _matches(prop.key, one.pattern))
            known = next(candidates, None)
            if known is not None:
                self._judge_other(known, prop)
            elif prop.key not in others and not any(
                _matches(prop.key, pattern) for pattern in other_patterns
            ):
                self._unknown(prop, own | others, strict=strict)

    def add_placed(self, findings: Iterable[Finding]) -> None:
        """Add findings of a cross check, with the place where their key was set."""
        for found in findings:
            prop = self._properties.get(found.key)
            origin = found.origin or (None if prop is None else prop.origin)
            self._found.append(attrs.evolve(found, origin=origin))

    def _property(self, spec: _Spec) -> Property | None:
        candidates = (self._properties.get(key) for key in (spec.key, *spec.aliases))
        return next((prop for prop in candidates if prop is not None), None)

    def _texts(self, one: _Declared, prop: Property) -> list[str]:
        """Return the texts that count, expanded; say so when Java would drop some."""
        values = prop.values if one.is_list else prop.values[:1]
        if not one.is_list and len(prop.statements) > 1:
            lines = ", ".join(str(statement[0].origin) for statement in prop.statements[1:])
            self._add(
                Severity.WARNING, FindingKind.CUT, prop, f"set again at {lines}; the first counts"
            )
        if not one.is_list and len(prop.statements[0]) > 1:
            self._add(
                Severity.WARNING,
                FindingKind.CUT,
                prop,
                "cut at the first comma, as Java does; write \\, for a comma that belongs to it",
            )
        return [self._expanded(prop, value) for value in values]

    def _expanded(self, prop: Property, value: Value) -> str:
        text = self._properties.expand(value)
        if "${" in text:
            self._add(
                Severity.WARNING, FindingKind.REFERENCE, prop, f"'{text}' refers to nothing we know"
            )
        return text

    def _weigh(self, one: _Declared, prop: Property, value: Any) -> None:
        spec = one.spec
        reason = spec.refuse(value) if spec.refuse else None
        if reason:
            text = _MASKED if spec.secret else value_text(value)
            self._add_error(prop, FindingKind.REFUSED, f"'{text}' {reason}", text, one.allowed)
        reason = spec.risky(value) if spec.risky else None
        if reason:
            self._add(Severity.WARNING, FindingKind.RISKY, prop, reason)
        if spec.without_effect and value != one.default:
            self._add(Severity.NOTE, FindingKind.IGNORED, prop, f"no effect: {spec.without_effect}")

    def _judge_other(self, known: OtherKey, prop: Property) -> None:
        text = ",".join(self._properties.expand(value) for value in prop.values)
        if known.instead:
            message = f"{known.doc}; the key is {known.instead}"
            self._add(Severity.WARNING, FindingKind.UNKNOWN, prop, message)
            return
        if not text or text in known.harmless:
            return
        if known.refused:
            allowed = ", ".join(known.harmless) or "leave it out"
            message = f"'{text}' {known.doc}; remove the key"
            self._add_error(prop, FindingKind.REFUSED, message, text, allowed)
        else:
            severity = Severity.WARNING if known.risky else Severity.NOTE
            self._add(severity, FindingKind.IGNORED, prop, f"no effect: {known.doc}")

    def _unknown(self, prop: Property, known: frozenset[str], *, strict: bool) -> None:
        lowered = {key.lower(): key for key in known}
        near = difflib.get_close_matches(prop.key.lower(), lowered, n=1, cutoff=0.75)
        hint = f"; did you mean {lowered[near[0]]}?" if near else ""
        severity = Severity.ERROR if strict else Severity.WARNING
        self._add(severity, FindingKind.UNKNOWN, prop, f"unknown key, not used{hint}")

    def _add(self, severity: Severity, kind: FindingKind, prop: Property, message: str) -> None:
        self._found.append(Finding(severity, kind, prop.key, message, prop.origin))

    def _add_error(
        self, prop: Property, kind: FindingKind, message: str, text: str, allowed: str
    ) -> None:
        self._found.append(
            Finding(Severity.ERROR, kind, prop.key, message, prop.origin, text, allowed)
        )
