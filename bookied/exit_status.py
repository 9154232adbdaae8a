"""How ``bookied`` ends: exit statuses, and the errors that stop it from starting or running.

The statuses are those of Java's bookie where it has one (BookKeeper 4.18.0, ExitCode), with two of
our own for what a restart cannot mend. A unit file may restart on 2 to 5 and must not on 1, 6, 7.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import ClassVar, Final

import attrs

from wire.errors import BookKeeperError


class ExitStatus(enum.IntEnum):
    """What the process returns."""

    OK = 0
    """Stopped because it was asked to."""
    INVALID_CONFIGURATION = 1
    """A bad option, settings file, address or directory."""
    CANNOT_START_NOW = 2
    """A passing cause: metadata service out of reach, port or directories in use."""
    SESSION_LOST = 3
    """The metadata session was lost, and the service stayed out of reach."""
    NOT_REGISTERED = 4
    """The bookie could not register, or another one holds its registration."""
    FATAL = 5
    """Something failed for good while it ran: a journal, a disk, a part of ours."""
    WRONG_IDENTITY = 6
    """Cookie or instance id do not fit; a restart will not help."""
    DAMAGED = 7
    """What is on the disks is broken or missing; a restart will not help."""


MEANING: Final = {
    ExitStatus.OK: "stopped as asked",
    ExitStatus.INVALID_CONFIGURATION: "bad configuration or directory",
    ExitStatus.CANNOT_START_NOW: "cannot start now (metadata out of reach, port or directories in "
    "use)",
    ExitStatus.SESSION_LOST: "metadata session lost for good",
    ExitStatus.NOT_REGISTERED: "not registered",
    ExitStatus.FATAL: "failed while running",
    ExitStatus.WRONG_IDENTITY: "cookie or instance id do not fit",
    ExitStatus.DAMAGED: "damaged or missing data",
}
"""As help and manual say it."""

OF_AUTORECOVERY: Final = (
    ExitStatus.OK,
    ExitStatus.INVALID_CONFIGURATION,
    ExitStatus.CANNOT_START_NOW,
    ExitStatus.SESSION_LOST,
    ExitStatus.FATAL,
)
"""What ``bookied autorecovery`` can end with; it is to be started again after a lost session."""


class BookieStopError(BookKeeperError):
    """A reason for the process to end with ``exit_status``."""

    exit_status: ClassVar[int] = ExitStatus.FATAL


class AddressError(BookieStopError):
    """The bookie's own address cannot be found, or must not be used."""

    exit_status = ExitStatus.INVALID_CONFIGURATION


class SecurityStartError(BookieStopError):
    """Keys, certificates or passwords that the settings ask for cannot be used."""

    exit_status = ExitStatus.INVALID_CONFIGURATION


class DirectoryError(BookieStopError):
    """A configured directory cannot be used: it is no directory, or not readable and writable."""

    exit_status = ExitStatus.INVALID_CONFIGURATION


class DirectoryInUseError(BookieStopError):
    """Another bookie runs on this directory."""

    exit_status = ExitStatus.CANNOT_START_NOW


class PortInUseError(BookieStopError):
    """The bookie's port cannot be bound."""

    exit_status = ExitStatus.CANNOT_START_NOW


class MetadataStartError(BookieStopError):
    """The metadata service cannot be reached, or holds no cluster."""

    exit_status = ExitStatus.CANNOT_START_NOW


class WrongLayoutError(BookieStopError):
    """The metadata service is not of the kind that was configured."""

    exit_status = ExitStatus.INVALID_CONFIGURATION


class SessionLostError(BookieStopError):
    """The metadata session was lost and could not be made anew in time."""

    exit_status = ExitStatus.SESSION_LOST


class RegistrationError(BookieStopError):
    """The bookie could not register, or lost its registration for good."""

    exit_status = ExitStatus.NOT_REGISTERED


@attrs.frozen
class Difference:
    """One thing that does not fit: where it is, what it says, and what was expected."""

    place: str
    field: str
    found: str
    expected: str

    def __str__(self) -> str:
        return f"{self.place}: {self.field} is {self.found}, expected {self.expected}"


class WrongIdentityError(BookieStopError):
    """The cookies do not fit the configuration or the cluster; ``differences`` says where."""

    exit_status = ExitStatus.WRONG_IDENTITY

    def __init__(self, message: str, differences: Iterable[Difference] = ()) -> None:
        self.differences = tuple(differences)
        super().__init__("; ".join([message, *map(str, self.differences)]))


class DamagedError(BookieStopError):
    """What is on the disks is broken or missing, and no start can mend it."""

    exit_status = ExitStatus.DAMAGED


class NoSpaceError(BookieStopError):
    """There is no room on the disks, and the bookie may not go read-only."""

    exit_status = ExitStatus.FATAL


class RunTimeError(BookieStopError):
    """Something failed for good while the bookie ran."""

    exit_status = ExitStatus.FATAL


class StopTimeoutError(BookieStopError):
    """The bookie did not come to its end in time: a disk hangs, or is very slow."""

    exit_status = ExitStatus.FATAL
