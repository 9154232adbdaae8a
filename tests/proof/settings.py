"""Settings of bookies and clients in the proof: short waits and small files, so that much happens.

All traffic to a bookie goes through its proxy, that of other bookies' autorecovery too: the id of a
bookie is the address of its proxy, and nobody looks up where it really listens.
"""

from __future__ import annotations

from typing import Final

SESSION_S: Final = 6.0
PASSWORD: Final = b"proof"

_THROUGH_PROXIES: Final = {"bookieAddressResolverEnabled": "false", "zkTimeout": 6000,
                           "zkRetryBackoffStartMs": 100, "zkRetryBackoffMaxMs": 1000}  # fmt: skip

CLIENT: Final[dict[str, object]] = {
    **_THROUGH_PROXIES,
    "addEntryTimeoutSec": 3,
    "readEntryTimeoutSec": 3,
    "speculativeReadTimeout": 500,
}

JAVA_CLIENT: Final[dict[str, object]] = {**CLIENT, "readTimeout": 3}

BOOKIE: Final[dict[str, object]] = {
    **_THROUGH_PROXIES,
    "addEntryTimeoutSec": 3,
    "readEntryTimeoutSec": 3,
    "readTimeout": 3,
    "journalPreAllocSizeMB": 1,
    "journalMaxSizeMB": 4,
    "journalMaxBackups": 0,
    "flushInterval": 500,
    "diskCheckInterval": 1000,
    "diskUsageThreshold": 0.99,
    "diskUsageWarnThreshold": 0.98,
    "minUsableSizeForIndexFileCreation": 1 << 20,
    "autoRecoveryDaemonEnabled": "true",
    "lostBookieRecoveryDelay": 5,
    "openLedgerRereplicationGracePeriod": 3000,
    "auditorPeriodicBookieCheckInterval": 60,
}

OUR_BOOKIE: Final[dict[str, object]] = {
    **BOOKIE,
    "logSizeLimit": 1_000_000,
    "gcWaitTime": 3000,
    "minorCompactionInterval": 10,
    "minorCompactionThreshold": 0.5,
    "majorCompactionInterval": 20,
    "majorCompactionThreshold": 0.9,
}
