"""Keys of a Java ``bk_server.conf`` that ``bookied`` knows and does not use, and why.

The one list behind "no effect" and "refused": commands.md, sections 5.2 to 5.4. Keys
that are used are attributes of ``BookieConfig``.
"""

from __future__ import annotations

from typing import Final

from bkclient.config.declaration import OtherKey

_THREADS: Final = "one reactor thread serves all connections"
_MEMORY: Final = "belongs to Java's memory"
_NETTY: Final = "belongs to Java's network layer"
_TABLES: Final = "belongs to Java's table service"
_ROCKSDB_CONF: Final = "the dbStorage_rocksDB_ keys configure RocksDB"
_ONE_LOG: Final = "all ledgers share one entry log"


def _ignored(doc: str, *patterns: str) -> tuple[OtherKey, ...]:
    return tuple(OtherKey(pattern, doc) for pattern in patterns)


def _warned(doc: str, *patterns: str) -> tuple[OtherKey, ...]:
    return tuple(OtherKey(pattern, doc, risky=True) for pattern in patterns)


def _misspelt(pattern: str, instead: str) -> OtherKey:
    return OtherKey(pattern, "no version of BookKeeper reads this spelling", instead=instead)


BOOKIE_OTHER_KEYS: Final = (
    _misspelt("journalDir", "journalDirectories"),
    _misspelt("ledgerDir", "ledgerDirectories"),
    _misspelt("indexDir", "indexDirectories"),
    _misspelt("ledgerDirectory", "ledgerDirectories"),
    _misspelt("httpServerKeystorePath", "httpServerKeyStorePath"),
    *_ignored("Java reads it nowhere", "numJournalCallbackThreads"),
    *_ignored("names a Java class", "journalChannelProvider", "registrationManagerClass"),
    *_ignored("names a Java class", "metastoreImplClass"),
    *_ignored("belongs to a Java metadata store", "metastoreMaxEntriesPerScan"),
    *_ignored(
        "bookied compares classes by their simple name", "allowShaded*", "shadedLedgerManager*"
    ),
    *_ignored("bookied compares layouts by name", "ledgerManagerFactoryDisableClassCheck"),
    *_ignored(
        _THREADS,
        "numLongPollWorkerThreads",
        "numHighPriorityWorkerThreads",
        "numAddWorkerThreads",
        "serverNumIOThreads",
        "serverNumAcceptorThreads",
        "readWorkerThreadsThrottlingEnabled",
        "maxPendingReadRequestsPerThread",
        "maxPendingAddRequestsPerThread",
        "enableTaskExecutionStats",
    ),
    *_ignored("belongs to Java's timers", "requestTimerTickDurationMs", "requestTimerNumTicks"),
    *_ignored("bookied has no busy wait", "enableBusyWait"),
    *_ignored(_NETTY, "byteBufAllocatorSize*", "enableLocalTransport", "disableServerSocketBind"),
    *_ignored(_NETTY, "serverTcpLinger", "preserveMdcForTaskExecution"),
    *_ignored(_MEMORY, "allocator*", "skipListArena*"),
    *_ignored("bookied ends at once when one of its parts fails", "bookieDeathWatchInterval"),
    *_ignored(
        _ONE_LOG,
        "numOfMemtableFlushThreads",
        "entrylogMapAccessExpiryTimeInSeconds",
        "maximumNumberOfActiveEntryLogs",
        "entryLogPerLedgerCounterLimitsMultFactor",
    ),
    *_ignored("one write cache and the page cache serve reads", "dbStorage_readAheadCache*"),
    *_ignored("bookied always writes entry logs past the page cache", "dbStorage_directIO*"),
    *_ignored("clients wait without a time limit", "dbStorage_maxThrottleTimeMs"),
    *_ignored("RocksDB writes its log to the directory of the database", "dbStorage_rocksDB_log*"),
    *_ignored("RocksDB has seven levels", "dbStorage_rocksDB_numLevels"),
    *_ignored(
        "RocksDB tables have format 5 and xxHash checksums", "dbStorage_rocksDB_format_version"
    ),
    *_ignored(
        "RocksDB tables have format 5 and xxHash checksums", "dbStorage_rocksDB_checksum_type"
    ),
    *_ignored("bookied's DbLedgerStorage does not need it", "dbStorage_*"),
    *_ignored(_ROCKSDB_CONF, "defaultRocksdbConf", "entryLocationRocksdbConf"),
    *_ignored(_ROCKSDB_CONF, "ledgerMetadataRocksdbConf"),
    *_ignored("RocksDB decides when it compacts", "entryLocationCompactionInterval"),
    *_ignored(
        "bookied always reads a ledger's metadata before it deletes the ledger",
        "verifyMetadataOnGC",
    ),
    *_ignored("bookied keeps the ledgers map of each log in memory", "gcEntryLogMetadataCache*"),
    *_ignored("bookied writes 1000 locations at a time", "maxOperationNumbersInSingleRocksdb*"),
    *_ignored("bookied writes 1000 locations at a time", "rocksDBDeleteEntriesBatchSize"),
    *_ignored(_TABLES, "dlog.*", "storage.*", "storageserver.*"),
    *_ignored("a check waits without a time limit", "auditorAcquireConcurrentOpenLedger*"),
    *_ignored("names a Java class", "httpServerClass"),
    *_ignored("bookied always counts", "enableStatistics"),
    *_ignored("bookied has no JVM", "exposeDefaultJVMMetrics"),
    *_ignored("bookied runs no sanity test by itself", "sanityCheckMetricsEnabled"),
    *_ignored("belongs to Java's statistics", "limitStatsLogging"),
    *_warned("Codahale metrics are not offered", "codahaleStats*"),
)
