"""Errors of a metadata store, with their texts and hints."""

from __future__ import annotations

from typing import ClassVar, Final

from bkclient.errors import ClientError, MetadataStoreError
from wire.errors import FormatError


class MetadataUnavailableError(MetadataStoreError):
    """The metadata service cannot be reached, or the connection was lost during the operation.

    A write that fails with this error may have been applied: read again before repeating it.
    """

    outcome_unknown = True
    hint: ClassVar[str] = "check the metadata service URI, and that the service runs"

    @classmethod
    def no_answer(cls, uri: str, timeout_s: float, why: str = "") -> MetadataUnavailableError:
        """Return the error of a session that no server has started in time."""
        return cls(f"{uri}: no ZooKeeper answered within {timeout_s:g} s{why}")


class MetadataAccessError(MetadataStoreError):
    """The metadata service does not allow this user to perform the operation."""

    exit_status: ClassVar[int] = 4
    hint: ClassVar[str] = "check the credentials for the metadata service"

    @classmethod
    def denied(cls, node: str) -> MetadataAccessError:
        """Return the error of a node whose ACL denies the request."""
        return cls(f"{node}: access denied by the ACL of the node")


UNREADABLE: Final = (FormatError, MetadataAccessError)
"""Errors of a single node. A listing continues without the node."""


class NotInitializedError(MetadataStoreError):
    """The metadata root does not exist, or has no layout."""

    hint: ClassVar[str] = "check the service URI; for a new cluster: `bkctl cluster init`"


class IncompatibleLayoutError(MetadataStoreError):
    """The layout in the store is unknown, or is not the requested layout."""

    exit_status: ClassVar[int] = 7


class AlreadyInitializedError(MetadataStoreError):
    """The metadata root exists already."""

    exit_status: ClassVar[int] = 7


class ClusterInUseError(MetadataStoreError):
    """The cluster still has registered bookies, or its root has nodes of other programs."""

    exit_status: ClassVar[int] = 7


class CookieNotFoundError(ClientError):
    """The bookie has no cookie."""

    exit_status: ClassVar[int] = 3
    hint: ClassVar[str] = "`bkctl cookie list` lists the stored cookies"


class CookieExistsError(ClientError):
    """The bookie has a cookie already."""

    exit_status: ClassVar[int] = 7


class RegistrationExistsError(ClientError):
    """Another live session has registered this bookie id: the bookie may be running twice."""

    exit_status: ClassVar[int] = 7


class AlreadySetError(ClientError):
    """The switch already has the requested value."""

    exit_status: ClassVar[int] = 7


class NoSuchLogError(ClientError):
    """No log has this name."""

    exit_status: ClassVar[int] = 3
    hint: ClassVar[str] = (
        "`bkctl log list` lists the existing logs, `bkctl log create NAME` makes a log"
    )


class LogExistsError(ClientError):
    """A log of this name exists already."""

    exit_status: ClassVar[int] = 7


class NotFoundError(ClientError):
    """The metadata store has no such object."""

    exit_status: ClassVar[int] = 3
