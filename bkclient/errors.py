"""The errors of a client, one class for each result code of the Java client.

The text of an error is written where it is raised: of too few bookies in ``bkclient.placement``,
of a fence in ``connection.add_stream`` and ``metadata.ledger_metadata_updates``.

Agrees with BookKeeper 4.18.0, BKException. ``code`` is Java's number; docs/library.md has them all.
Stricter: limbo (-108) has a class of its own; Java's factory has none and reports -999.
"""

from __future__ import annotations

from typing import ClassVar, Final

from wire.codes import ReturnCode
from wire.errors import BookKeeperError
from wire.ids import LedgerId


class ClientError(BookKeeperError):
    """The client could not complete an operation."""

    outcome_unknown: bool = False
    """True if the operation may have been executed, or may yet be: check before a retry.

    A failed add that was sent to bookies has this set, whatever its class.
    """
    code: ClassVar[int] = -999
    by_code: ClassVar[dict[int, type[ClientError]]] = {}

    def __init_subclass__(cls) -> None:
        if "code" in cls.__dict__:
            assert cls.code not in ClientError.by_code, f"two classes for {cls.code}"
            ClientError.by_code[cls.code] = cls


class ReadFailedError(ClientError):
    """No bookie of the write set returned the entry, or it is after the last add confirmed."""

    code = -1


class QuorumError(ClientError):
    """The quorum sizes do not fit: E >= Qw >= Qa >= 1."""

    code = -2
    exit_status = 2


class NoBookieAvailableError(ClientError):
    """No usable bookie was found."""

    code = -3
    exit_status = 5


class DigestNotInitializedError(ClientError):
    """The ledger's digest cannot be computed here: its algorithm is missing."""

    code = -4


class ClientDigestMismatchError(ClientError):
    """Entries do not match their digest: damage, or another digest type or password."""

    code = -5


class NotEnoughBookiesError(ClientError):
    """There are fewer usable bookies than the ledger needs."""

    code = -6
    exit_status = 5
    hint = "start more bookies, or create the ledger with a smaller ensemble"


class NoSuchLedgerOnBookieError(ClientError):
    """The bookies asked do not know the ledger."""

    code = -7
    exit_status = 3


class BookieUnavailableError(ClientError):
    """A bookie cannot be reached, or the connection was lost before it answered."""

    hint = "`bkctl doctor` shows which bookies are down"
    code = -8
    outcome_unknown = True
    exit_status = 5


CHECK_LOGIN: Final = (
    "check user and password: saslJaasConfigFile names the file, saslJaasClientSectionName its "
    "section; the bookie's log says why it refused"
)
"""The hint after a refused login."""


class LoginCutOffError(BookieUnavailableError):
    """The bookie closed the connection during the login: it refused the login, or has ended."""

    hint = CHECK_LOGIN


class LoginsCutOffError(NotEnoughBookiesError):
    """The bookies of the ensemble refuse the login, and no other bookie is left."""

    hint = ""  # The text has the hint: a command may have a hint of its own, about the ledger.


class MetadataStoreError(ClientError):
    """The metadata service failed."""

    code = -9
    exit_status = 5


class LedgerRecoveryError(ClientError):
    """The ledger could not be recovered now; trying again is safe."""

    code = -10


class LedgerClosedError(ClientError):
    """The writer or the ledger is closed; it accepts no more entries."""

    code = -11
    exit_status = 7
    hint = "`bkctl ledger create` makes a new ledger"


class WriteFailedError(ClientError):
    """An add failed, or could not be forced to disk."""

    code = -12
    outcome_unknown = True


class NoSuchEntryInLedgerError(ClientError):
    """The ledger has no such entry."""

    code = -13
    exit_status = 3


class IncorrectParameterError(ClientError):
    """An argument is out of its range."""

    code = -14
    exit_status = 2


class InterruptedOperationError(ClientError):
    """The operation was cancelled."""

    code = -15
    outcome_unknown = True
    exit_status = 130


class ProtocolVersionError(ClientError):
    """The bookie does not support the protocol version of the request."""

    code = -16


class MetadataVersionError(ClientError):
    """The ledger's metadata was changed by another client in a way that cannot be merged."""

    code = -17
    exit_status = 7


class MetaStoreListError(ClientError):
    """Listing the metadata failed part way."""

    code = -18
    exit_status = 5


class ClientClosedError(ClientError):
    """The client is closed; requests in flight failed."""

    code = -19
    outcome_unknown = True


class LedgerExistsError(ClientError):
    """A ledger with this id exists."""

    code = -20
    exit_status = 7
    hint = "leave the id out: the cluster then chooses a new id"


class AddQuorumTimeoutError(ClientError):
    """An add waited too long for its ack quorum."""

    code = -21
    outcome_unknown = True
    exit_status = 6


class DuplicateEntryIdError(ClientError):
    """An entry with this id was added already."""

    code = -22
    exit_status = 7


class RequestTimeoutError(ClientError):
    """A bookie did not answer in time."""

    code = -23
    outcome_unknown = True
    exit_status = 6


class SecurityError(ClientError):
    """TLS could not be set up."""

    code = -24


class NoSuchLedgerError(ClientError):
    """The ledger does not exist."""

    code = -25
    exit_status = 3
    hint = "`bkctl ledger list` shows the existing ledgers"

    @classmethod
    def of(cls, ledger_id: LedgerId) -> NoSuchLedgerError:
        """Return the error that names this ledger."""
        return cls(f"there is no ledger {ledger_id}")


class IllegalOperationError(ClientError):
    """This handle, or the protocol version in use, does not allow the operation."""

    code = -100
    exit_status = 2


class ClientLedgerFencedError(ClientError):
    """Another client has fenced the ledger; open it again to see where it ended."""

    code = -101
    exit_status = 7


class ClientUnauthorizedError(ClientError):
    """Wrong password for this ledger, or the bookie refused the connection."""

    code = -102
    exit_status = 4
    hint = (
        "the ledger's password is another, or the bookie requires TLS or a login: its log says "
        "which (docs/security.md)"
    )


class LoginRefusedError(ClientUnauthorizedError):
    """Bookies refused the login: wrong password, unknown or refused user, or they require TLS."""

    hint = CHECK_LOGIN


class UnclosedFragmentError(ClientError):
    """The fragment may still grow and cannot be copied."""

    code = -103


class ReadOnlyBookieClientError(ClientError):
    """The bookie is read-only."""

    code = -104


class TooManyRequestsClientError(ClientError):
    """The bookie, or the client's connection to it, is overloaded."""

    code = -105


class LedgerIdOverflowError(ClientError):
    """This layout has no ledger ids left."""

    code = -106


class MetadataSerializationError(ClientError):
    """A ledger's metadata cannot be read."""

    code = -107


class DataUnknownError(ClientError):
    """A bookie may have lost entries of this ledger and can promise nothing about it."""

    code = -108


class ReplicationError(ClientError):
    """Re-replication could not proceed."""

    code = -200


class UnexpectedConditionError(ClientError):
    """A condition that should not occur."""

    code = -999
    outcome_unknown = True


BY_RETURN_CODE: Final[dict[ReturnCode, type[ClientError]]] = {
    ReturnCode.ENOLEDGER: NoSuchLedgerOnBookieError,
    ReturnCode.ENOENTRY: NoSuchEntryInLedgerError,
    ReturnCode.EUA: ClientUnauthorizedError,
    ReturnCode.EBADVERSION: ProtocolVersionError,
    ReturnCode.EFENCED: ClientLedgerFencedError,
    ReturnCode.EREADONLY: ReadOnlyBookieClientError,
    ReturnCode.ETOOMANYREQUESTS: TooManyRequestsClientError,
    ReturnCode.EUNKNOWNLEDGERSTATE: DataUnknownError,
}
"""The error of each refusal; any other code becomes the operation's default."""


def refusal(rc: ReturnCode, default: type[ClientError], text: str) -> ClientError:
    """Return the error for a bookie's return code; ``default`` is -12 for adds, -1 for reads.

    Agrees with BookKeeper 4.18.0, CompletionValue.
    """
    why = " (another password, no TLS or no login)" if rc is ReturnCode.EUA else ""
    return BY_RETURN_CODE.get(rc, default)(f"{text}: {rc.name}{why}")


MORE_THREADS: Final = "raise `ulimit -u` (and `-v` if set), or TasksMax of its unit"
"""The advice for a process that can start no more threads."""


def lacks_threads(error: BaseException) -> bool:
    """Return whether an error says that the process can start no more threads."""
    return isinstance(error, RuntimeError) and "start new thread" in str(error)
