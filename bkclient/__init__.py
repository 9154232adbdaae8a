"""A BookKeeper client: ledgers, logs, metadata drivers, placement, repair.

The names of ``__all__`` are public; everything else may change without notice. A name is loaded at
its first use, so that a program loads only the names that it uses.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from bkclient.blocking import BlockingClient as BlockingClient
    from bkclient.client import Client as Client
    from bkclient.config.client import ClientConfig as ClientConfig
    from bkclient.errors import AddQuorumTimeoutError as AddQuorumTimeoutError
    from bkclient.errors import BookieUnavailableError as BookieUnavailableError
    from bkclient.errors import ClientClosedError as ClientClosedError
    from bkclient.errors import ClientDigestMismatchError as ClientDigestMismatchError
    from bkclient.errors import ClientError as ClientError
    from bkclient.errors import ClientLedgerFencedError as ClientLedgerFencedError
    from bkclient.errors import ClientUnauthorizedError as ClientUnauthorizedError
    from bkclient.errors import DataUnknownError as DataUnknownError
    from bkclient.errors import DigestNotInitializedError as DigestNotInitializedError
    from bkclient.errors import DuplicateEntryIdError as DuplicateEntryIdError
    from bkclient.errors import IllegalOperationError as IllegalOperationError
    from bkclient.errors import IncorrectParameterError as IncorrectParameterError
    from bkclient.errors import InterruptedOperationError as InterruptedOperationError
    from bkclient.errors import LedgerClosedError as LedgerClosedError
    from bkclient.errors import LedgerExistsError as LedgerExistsError
    from bkclient.errors import LedgerIdOverflowError as LedgerIdOverflowError
    from bkclient.errors import LedgerRecoveryError as LedgerRecoveryError
    from bkclient.errors import MetadataSerializationError as MetadataSerializationError
    from bkclient.errors import MetadataStoreError as MetadataStoreError
    from bkclient.errors import MetadataVersionError as MetadataVersionError
    from bkclient.errors import MetaStoreListError as MetaStoreListError
    from bkclient.errors import NoBookieAvailableError as NoBookieAvailableError
    from bkclient.errors import NoSuchEntryInLedgerError as NoSuchEntryInLedgerError
    from bkclient.errors import NoSuchLedgerError as NoSuchLedgerError
    from bkclient.errors import NoSuchLedgerOnBookieError as NoSuchLedgerOnBookieError
    from bkclient.errors import NotEnoughBookiesError as NotEnoughBookiesError
    from bkclient.errors import ProtocolVersionError as ProtocolVersionError
    from bkclient.errors import QuorumError as QuorumError
    from bkclient.errors import ReadFailedError as ReadFailedError
    from bkclient.errors import ReadOnlyBookieClientError as ReadOnlyBookieClientError
    from bkclient.errors import ReplicationError as ReplicationError
    from bkclient.errors import RequestTimeoutError as RequestTimeoutError
    from bkclient.errors import SecurityError as SecurityError
    from bkclient.errors import TooManyRequestsClientError as TooManyRequestsClientError
    from bkclient.errors import UnclosedFragmentError as UnclosedFragmentError
    from bkclient.errors import UnexpectedConditionError as UnexpectedConditionError
    from bkclient.errors import WriteFailedError as WriteFailedError
    from bkclient.ledger.reader import LedgerReader as LedgerReader
    from bkclient.ledger.writer import LedgerWriter as LedgerWriter
    from bkclient.log.log_manager import LogManager as LogManager
    from bkclient.log.record import EARLIEST as EARLIEST
    from bkclient.log.record import LATEST as LATEST
    from bkclient.log.record import LogOptions as LogOptions
    from bkclient.log.record import Position as Position
    from bkclient.metadata.errors import MetadataUnavailableError as MetadataUnavailableError

__all__ = [
    "EARLIEST",
    "LATEST",
    "AddQuorumTimeoutError",
    "BlockingClient",
    "BookieUnavailableError",
    "Client",
    "ClientClosedError",
    "ClientConfig",
    "ClientDigestMismatchError",
    "ClientError",
    "ClientLedgerFencedError",
    "ClientUnauthorizedError",
    "DataUnknownError",
    "DigestNotInitializedError",
    "DuplicateEntryIdError",
    "IllegalOperationError",
    "IncorrectParameterError",
    "InterruptedOperationError",
    "LedgerClosedError",
    "LedgerExistsError",
    "LedgerIdOverflowError",
    "LedgerReader",
    "LedgerRecoveryError",
    "LedgerWriter",
    "LogManager",
    "LogOptions",
    "MetaStoreListError",
    "MetadataSerializationError",
    "MetadataStoreError",
    "MetadataUnavailableError",
    "MetadataVersionError",
    "NoBookieAvailableError",
    "NoSuchEntryInLedgerError",
    "NoSuchLedgerError",
    "NoSuchLedgerOnBookieError",
    "NotEnoughBookiesError",
    "Position",
    "ProtocolVersionError",
    "QuorumError",
    "ReadFailedError",
    "ReadOnlyBookieClientError",
    "ReplicationError",
    "RequestTimeoutError",
    "SecurityError",
    "TooManyRequestsClientError",
    "UnclosedFragmentError",
    "UnexpectedConditionError",
    "WriteFailedError",
]

_HOMES: Final = {
    "BlockingClient": "bkclient.blocking",
    "Client": "bkclient.client",
    "ClientConfig": "bkclient.config.client",
    "EARLIEST": "bkclient.log.record",
    "LATEST": "bkclient.log.record",
    "LedgerReader": "bkclient.ledger.reader",
    "LedgerWriter": "bkclient.ledger.writer",
    "LogManager": "bkclient.log.log_manager",
    "LogOptions": "bkclient.log.record",
    "MetadataUnavailableError": "bkclient.metadata.errors",
    "Position": "bkclient.log.record",
}
"""The module of each name; names that are not here are in ``bkclient.errors``."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES.get(name, "bkclient.errors")), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
