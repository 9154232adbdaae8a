"""The keys of a Java ``bk_server.conf`` that bookied ignores or refuses, with reasons.

The keys are those of commands.md, sections 5.2 to 5.4. Keys that bookied uses are attributes of
``BookieConfig``.
"""

from __future__ import annotations

from typing import Final

from bkclient.config.declaration import OtherKey, ignored
from bkclient.config.shared import SHARED_OTHER_KEYS

_THREADS: Final = "one reactor thread serves all connections"
_MEMORY: Final = "belongs to Java's memory"
_NETTY: Final = "belongs to Java's network layer"
_TABLES: Final = "belongs to Java's table service"
_ROCKSDB_CONF: Final = "the dbStorage_rocksDB_ keys configure RocksDB"
_ONE_LOG: Final = "all ledgers share one entry log"


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
    *ignored("Java reads it nowhere", "numJournalCallbackThreads"),
    *ignored("names a Java class", "journalChannelProvider", "registrationManagerClass"),
    *ignored("names a Java class", "metastoreImplClass"),
    *ignored("belongs to a Java metadata store", "metastoreMaxEntriesPerScan"),
    *ignored(
        "bookied compares classes by their simple name", "allowShaded*", "shadedLedgerManager*"
    ),
    *ignored("bookied compares layouts by name", "ledgerManagerFactoryDisableClassCheck"),
    *ignored(
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
    *ignored("a group of adds is written with one call", "journalWriteBufferSizeKB=64"),
    *ignored("adds that arrive during one fsync share the next", "journalAdaptiveGroupWrites=true"),
    *ignored("the journal's queue is bounded by bytes", "journalQueueSize=10000"),
    *ignored(
        "after a torn write a Java bookie would replay records of the old file; bookied writes "
        "zeros ahead instead",
        "journalReuseFiles=false",
    ),
    *ignored("entry logs begin when they are needed", "entryLogFilePreallocationEnabled=true"),
    *ignored("entry logs are synced every 32 MiB", "flushEntrylogBytes=0"),
    *ignored("entries are read 4 KiB at a time", "readBufferSizeBytes=512"),
    *ignored("entry logs are written 1 MiB at a time", "writeBufferSizeBytes=65536"),
    *ignored("index pages are 8192 bytes", "pageSize=8192"),
    *ignored("the least used index files are closed", "fileInfoMaxIdleTime=0"),
    *SHARED_OTHER_KEYS,
    *ignored("belongs to Java's timers", "requestTimerTickDurationMs", "requestTimerNumTicks"),
    *ignored("bookied has no busy wait", "enableBusyWait"),
    *ignored(_NETTY, "byteBufAllocatorSize*", "enableLocalTransport", "disableServerSocketBind"),
    *ignored(_NETTY, "serverTcpLinger", "preserveMdcForTaskExecution"),
    *ignored(_MEMORY, "allocator*", "skipListArena*", "fileInfoCacheInitialCapacity"),
    *ignored("bookied ends at once when one of its parts fails", "bookieDeathWatchInterval"),
    *ignored(
        _ONE_LOG,
        "numOfMemtableFlushThreads",
        "entrylogMapAccessExpiryTimeInSeconds",
        "maximumNumberOfActiveEntryLogs",
        "entryLogPerLedgerCounterLimitsMultFactor",
    ),
    *ignored("one write cache and the page cache serve reads", "dbStorage_readAheadCache*"),
    *ignored("bookied always writes entry logs past the page cache", "dbStorage_directIO*"),
    *ignored("clients wait without a time limit", "dbStorage_maxThrottleTimeMs"),
    *ignored("RocksDB writes its log to the directory of the database", "dbStorage_rocksDB_log*"),
    *ignored("RocksDB has seven levels", "dbStorage_rocksDB_numLevels"),
    *ignored(
        "RocksDB tables have format 5 and xxHash checksums",
        "dbStorage_rocksDB_format_version",
        "dbStorage_rocksDB_checksum_type",
    ),
    *ignored("bookied's DbLedgerStorage does not need it", "dbStorage_*"),
    *ignored(_ROCKSDB_CONF, "defaultRocksdbConf", "entryLocationRocksdbConf"),
    *ignored(_ROCKSDB_CONF, "ledgerMetadataRocksdbConf"),
    *ignored("RocksDB decides when it compacts", "entryLocationCompactionInterval"),
    *ignored(
        "bookied always reads a ledger's metadata before it deletes the ledger",
        "verifyMetadataOnGC",
    ),
    *ignored("bookied keeps the ledgers map of each log in memory", "gcEntryLogMetadataCache*"),
    *ignored("bookied writes 1000 locations at a time", "maxOperationNumbersInSingleRocksdb*"),
    *ignored("bookied writes 1000 locations at a time", "rocksDBDeleteEntriesBatchSize"),
    *ignored(_TABLES, "dlog.*", "storage.*", "storageserver.*"),
    *ignored("a check waits without a time limit", "auditorAcquireConcurrentOpenLedger*"),
    *ignored("names a Java class", "httpServerClass"),
    *ignored("bookied always counts", "enableStatistics"),
    *ignored("bookied has no JVM", "exposeDefaultJVMMetrics"),
    *ignored("bookied runs no sanity test by itself", "sanityCheckMetricsEnabled"),
    *ignored("belongs to Java's statistics", "limitStatsLogging"),
    *_warned("Codahale metrics are not offered", "codahaleStats*"),
)
