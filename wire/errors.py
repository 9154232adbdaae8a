"""The root of the error tree, and the errors of bytes from a peer or a disk.

Callers match the class; its docstring is shown to users; ``exit_status`` is the status of
``bkctl``.
"""

from __future__ import annotations

from typing import ClassVar

from wire.codes import ReturnCode


class BookKeeperError(Exception):
    """Something went wrong."""

    exit_status: ClassVar[int] = 1
    hint: ClassVar[str] = ""
    """The next thing to try, as a sentence or a command; may be empty."""


class ProtocolError(BookKeeperError):
    """The rules of the protocol were broken."""


class LocalProtocolError(ProtocolError):
    """This side requested something that the protocol cannot express: a bug or a bad argument."""


class RemoteProtocolError(ProtocolError):
    """The peer sent bytes that are not a valid message; the connection cannot go on."""


class TlsOrderError(RemoteProtocolError):
    """Bytes arrived that START_TLS and the handshake do not allow."""


class FormatError(BookKeeperError):
    """Stored bytes (metadata, cookie, registration) are not in a valid form."""


class MetadataFormatError(FormatError):
    """A ledger's metadata cannot be read, or may not be written as it is."""


class DigestMismatchError(BookKeeperError):
    """An entry does not match its digest or its ids; another replica may be intact."""


class BookieError(BookKeeperError):
    """A bookie answered with a return code other than EOK."""

    rc: ClassVar[ReturnCode]
    by_rc: ClassVar[dict[ReturnCode, type[BookieError]]] = {}

    def __init_subclass__(cls) -> None:
        assert cls.rc not in BookieError.by_rc, f"two classes for {cls.rc!r}"
        BookieError.by_rc[cls.rc] = cls


class NoSuchLedgerError(BookieError):
    """The bookie does not know the ledger."""

    rc = ReturnCode.ENOLEDGER
    exit_status = 3


class NoSuchEntryError(BookieError):
    """The bookie does not have the entry."""

    rc = ReturnCode.ENOENTRY
    exit_status = 3


class BadRequestError(BookieError):
    """The bookie could not understand the request."""

    rc = ReturnCode.EBADREQ


class UnauthorizedError(BookieError):
    """Wrong ledger password, or this connection has not been authenticated."""

    rc = ReturnCode.EUA
    exit_status = 4


class BadVersionError(BookieError):
    """The bookie does not speak this version of the protocol."""

    rc = ReturnCode.EBADVERSION


class LedgerFencedError(BookieError):
    """Another client fenced this ledger; open it again to see where it ended."""

    rc = ReturnCode.EFENCED
    exit_status = 7


class ReadOnlyBookieError(BookieError):
    """The bookie is read-only: its disks are full, or an operator made it read-only."""

    rc = ReturnCode.EREADONLY


class TooManyRequestsError(BookieError):
    """The bookie has more to do than it accepts; try again later."""

    rc = ReturnCode.ETOOMANYREQUESTS


class UnknownLedgerStateError(BookieError):
    """The bookie may have lost entries of this ledger and can promise nothing about it."""

    rc = ReturnCode.EUNKNOWNLEDGERSTATE
