"""Findings about settings, disks and clusters, and the error that refuses settings."""

from __future__ import annotations

import enum
from typing import ClassVar, Final

import attrs

from bkclient.config.properties import Origin
from wire.control_characters import printable
from wire.errors import BookKeeperError

MESSAGE_CHARS_MAX: Final = 1000
"""A longer message about a setting is cut in output."""


class Severity(enum.Enum):
    """The severity of a finding, the worst first; the value is the word in output.

    A cluster's findings are losses, risks, troubles and notes; those of settings are errors,
    warnings and notes; those of a bookie's disks are problems, warnings and notes.
    """

    LOSS = "loss"
    """Entries cannot be read now, or are about to be deleted."""
    RISK = "risk"
    """One more failure can lose something, or nothing would repair a failure."""
    TROUBLE = "trouble"
    """The cluster works, but not as it should."""
    ERROR = "error"
    """The settings are refused."""
    PROBLEM = "problem"
    """Something is lost or cannot be read, or the bookie will not start."""
    WARNING = "warning"
    """Everything can be read and used, but not as it should be."""
    NOTE = "note"
    """No action is needed now."""

    @property
    def rank(self) -> int:
        """The place in the order: 0 is the worst."""
        return _ORDER[self]


_ORDER = {severity: place for place, severity in enumerate(Severity)}


@attrs.frozen
class Finding:
    """One finding; its subclasses add its subject.

    ``kind`` is a stable word for programs, ``fix`` the command or advice that repairs it.
    """

    severity: Severity
    kind: str
    message: str
    fix: str = attrs.field(default="", kw_only=True)


class FindingKind(str, enum.Enum):
    """The kind of a finding about a key."""

    UNKNOWN = "unknown"
    IGNORED = "ignored"
    """The key is accepted without effect."""
    RISKY = "risky"
    CUT = "cut"
    """Only the first of several values counts, as in Java."""
    REFERENCE = "reference"
    """A ``${…}`` cannot be resolved."""
    INVALID = "invalid"
    REFUSED = "refused"
    """A valid value is not supported, and ignoring it would lose safety."""


@attrs.frozen
class SettingFinding(Finding):
    """A finding about one key. ``value`` is its text as given."""

    key: str
    origin: Origin | None = None
    value: str | None = attrs.field(default=None, repr=False)
    allowed: str = ""

    def __str__(self) -> str:
        where = "" if self.origin is None else f"{self.origin}: "
        allowed = f"; allowed: {self.allowed}" if self.allowed else ""
        message = self.message
        if len(message) > MESSAGE_CHARS_MAX:
            message = f"{message[:MESSAGE_CHARS_MAX]}... ({len(message)} characters)"
        return printable(f"{where}{self.key[:MESSAGE_CHARS_MAX]}: {message}{allowed}")


Findings = tuple[SettingFinding, ...]


def invalid(key: str, message: str) -> SettingFinding:
    """Return the finding that a key's value is refused."""
    return SettingFinding(Severity.ERROR, FindingKind.INVALID, message, key)


def risky(key: str, message: str, origin: Origin | None = None) -> SettingFinding:
    """Return the warning that a key's value is allowed, and may do harm."""
    return SettingFinding(Severity.WARNING, FindingKind.RISKY, message, key, origin)


class ConfigError(BookKeeperError):
    """The settings cannot be used.

    ``finding`` is the first reason, with key, value, origin and allowed values; ``findings`` are
    all findings, including warnings.
    """

    exit_status: ClassVar[int] = 2

    def __init__(self, findings: Findings) -> None:
        errors = [found for found in findings if found.severity is Severity.ERROR]
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        super().__init__(f"{errors[0]}{more}")
        self.finding = errors[0]
        self.findings = findings
