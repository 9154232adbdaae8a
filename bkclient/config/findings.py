"""What is odd about settings: findings by key and place, and the error that refuses them."""

from __future__ import annotations

import enum
from typing import ClassVar

import attrs

from bkclient.config.properties import Origin
from wire.errors import BookKeeperError


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
class SettingFinding:
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


Findings = tuple[SettingFinding, ...]


def invalid(key: str, message: str) -> SettingFinding:
    """Return the finding that a key's value is refused."""
    return SettingFinding(Severity.ERROR, FindingKind.INVALID, key, message)


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
