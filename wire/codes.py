"""Every number of the protocol, once: op codes, return codes, flags, sizes.

Source: BookKeeper 4.18.0, BookieProtocol and BookkeeperProtocol.
"""

from __future__ import annotations

import enum
from typing import Final

FRAME_BYTES_MAX: Final = 5 * 1024 * 1024
"""Default ``nettyMaxFrameSizeBytes``: the longest frame, its 4-byte prefix included."""

MASTER_KEY_BYTES: Final = 20
ENTRY_HEADER_BYTES: Final = 32
"""Ledger id, entry id, last add confirmed, length: the start of every entry packet."""

LAC_HEADER_BYTES: Final = 16

V2_VERSION: Final = 2
V3_VERSION: Final = 3


class ProtocolVersion(enum.Enum):
    """The encoding of a connection."""

    V2 = 2
    V3 = 3


class OpCode(enum.IntEnum):
    """V2 op codes (second byte of the packet header)."""

    ADD_ENTRY = 1
    READ_ENTRY = 2
    AUTH = 3
    READ_LAC = 4
    WRITE_LAC = 5
    GET_BOOKIE_INFO = 6
    BATCH_READ_ENTRY = 7


class Operation(enum.IntEnum):
    """V3 ``OperationType``."""

    READ_ENTRY = 1
    ADD_ENTRY = 2
    RANGE_READ_ENTRY = 3
    RANGE_ADD_ENTRY = 4
    AUTH = 5
    WRITE_LAC = 6
    READ_LAC = 7
    GET_BOOKIE_INFO = 8
    START_TLS = 9
    FORCE_LEDGER = 10
    GET_LIST_OF_ENTRIES_OF_LEDGER = 11
    BATCH_READ_ENTRY = 12


class V2Flag(enum.IntFlag):
    """Flag bits in the low half of a V2 header."""

    NONE = 0
    DO_FENCING = 0x0001
    RECOVERY_ADD = 0x0002
    HIGH_PRIORITY = 0x0004


STRIDE_SHIFT: Final = 8
"""The position of a batch read's stride in the flags of a V2 header: their high byte, ours
alone.
"""

STRIDE_MAX: Final = 255


class ReturnCode(enum.IntEnum):
    """The result of a request, for both versions; the values are V3's ``StatusCode``."""

    EOK = 0
    ENOLEDGER = 402
    ENOENTRY = 403
    EBADREQ = 404
    EIO = 501
    EUA = 502
    EBADVERSION = 503
    EFENCED = 504
    EREADONLY = 505
    ETOOMANYREQUESTS = 506
    EUNKNOWNLEDGERSTATE = 507


V2_BY_RETURN_CODE: Final[dict[ReturnCode, int]] = {
    ReturnCode.EOK: 0,
    ReturnCode.ENOLEDGER: 1,
    ReturnCode.ENOENTRY: 2,
    ReturnCode.EBADREQ: 100,
    ReturnCode.EIO: 101,
    ReturnCode.EUA: 102,
    ReturnCode.EBADVERSION: 103,
    ReturnCode.EFENCED: 104,
    ReturnCode.EREADONLY: 105,
    ReturnCode.ETOOMANYREQUESTS: 106,
    # 107 exists, but the 4.18.0 V2 client cannot map it and drops the connection.
    ReturnCode.EUNKNOWNLEDGERSTATE: 101,
}

RETURN_CODE_BY_V2: Final[dict[int, ReturnCode]] = {
    0: ReturnCode.EOK,
    1: ReturnCode.ENOLEDGER,
    2: ReturnCode.ENOENTRY,
    100: ReturnCode.EBADREQ,
    101: ReturnCode.EIO,
    102: ReturnCode.EUA,
    103: ReturnCode.EBADVERSION,
    104: ReturnCode.EFENCED,
    105: ReturnCode.EREADONLY,
    106: ReturnCode.ETOOMANYREQUESTS,
    107: ReturnCode.EUNKNOWNLEDGERSTATE,
}


class AddFlag(enum.IntFlag):
    """Flags of an add."""

    NONE = 0
    RECOVERY = 1
    """Accepted on a fenced ledger: an add of recovery or re-replication."""
    HIGH_PRIORITY = 2
    """Accepted by a read-only bookie while it has some space."""
    DEFERRED_SYNC = 4
    """Acknowledge before the journal is synced (V3 only)."""


class ReadFlag(enum.IntFlag):
    """Flags of a read."""

    NONE = 0
    FENCE = 1
    """Fence the ledger first; needs the master key."""
    HIGH_PRIORITY = 2
    PIGGYBACK = 4
    """Long poll: send the entry that follows ``previous_lac`` with the answer (V3 only)."""


class DigestType(enum.IntEnum):
    """The digest of a ledger's entries; values as in ledger metadata."""

    CRC32 = 1
    MAC = 2
    CRC32C = 3
    DUMMY = 4


class LedgerState(enum.IntEnum):
    """The state in ledger metadata; it only moves forward."""

    OPEN = 1
    IN_RECOVERY = 2
    CLOSED = 3

    @property
    def word(self) -> str:
        """The state in commands and output: open, in-recovery or closed."""
        return self.name.lower().replace("_", "-")

    @classmethod
    def of_word(cls, word: str) -> LedgerState:
        """Return the state of a word, in any case; ``in_recovery`` is an older spelling.

        Raises:
            KeyError: the word is not a state.
        """
        return cls[word.upper().replace("-", "_")]


class BookieInfoFlag(enum.IntFlag):
    """The figures that a bookie-info request asks for."""

    NONE = 0
    TOTAL_DISK_CAPACITY = 1
    FREE_DISK_SPACE = 2
