"""The settings of DbLedgerStorage, by Java's keys (BookKeeper 4.18.0): memory and RocksDB.

Only Java's DbLedgerStorage reads these keys. A share of the direct memory in Java is a fixed budget
here, divided by the ledger directories.
"""

from __future__ import annotations

from typing import Final

import attrs

from bkclient.config.declaration import setting

_MB: Final = 1024 * 1024
_WRITE_BUFFER_BYTES: Final = 16 * _MB
_BLOCK_CACHE_BYTES: Final = 32 * _MB
_FEWEST_FILES: Final = 16


@attrs.frozen(kw_only=True, slots=False)  # One of several base classes.
class DbStorageConfig:
    """The settings of DbLedgerStorage's write cache and of its index in RocksDB."""

    db_write_cache_mb: int | None = setting(
        None,
        key="dbStorage_writeCacheMaxSizeMb",
        unit="MiB",
        group="DbLedgerStorage",
        minimum=1,
        doc="Memory for entries that are not yet in an entry log; skipListSizeLimit if not set.",
    )
    rocks_write_buffer_mb: int | None = setting(
        None,
        key="dbStorage_rocksDB_writeBufferSizeMB",
        unit="MiB",
        minimum=1,
        doc="RocksDB's memory for new entry locations, in each ledger directory. If not set, all "
        "directories share 16 MiB. RocksDB uses up to four times as much while it writes "
        "tables.",
    )
    rocks_block_cache_bytes: int | None = setting(
        None,
        key="dbStorage_rocksDB_blockCacheSize",
        minimum=_MB,
        doc="RocksDB's cache of entry locations, in each ledger directory. If not set, all "
        "directories share 32 MiB.",
    )
    rocks_block_bytes: int = setting(
        65_536,
        key="dbStorage_rocksDB_blockSize",
        minimum=1024,
        doc="Block size of RocksDB's tables of entry locations.",
    )
    rocks_table_mb: int = setting(
        64,
        key="dbStorage_rocksDB_sstSizeInMB",
        unit="MiB",
        minimum=1,
        doc="File size of RocksDB's tables of entry locations.",
    )
    rocks_bloom_bits: int = setting(
        10,
        key="dbStorage_rocksDB_bloomFilterBitsPerKey",
        minimum=0,
        doc="Bits of RocksDB's bloom filter for each entry location; 0 switches the filter off.",
    )
    rocks_lz4: bool = setting(
        True,
        key="dbStorage_rocksDB_lz4CompressionEnabled",
        doc="Compress entry locations with LZ4.",
    )
    rocks_level0_files: int = setting(
        4,
        key="dbStorage_rocksDB_numFilesInLevel0",
        minimum=1,
        doc="Number of tables in level 0 at which RocksDB starts a compaction.",
    )
    rocks_level1_mb: int = setting(
        256,
        key="dbStorage_rocksDB_maxSizeInLevel1MB",
        unit="MiB",
        minimum=1,
        doc="Size of RocksDB's first sorted level.",
    )

    def rocks_settings(self, *, directories: int, open_files_max: int) -> RocksSettings:
        """Return the settings of each database of a bookie with ``directories`` ledger directories.

        All databases together, two a directory, may have ``open_files_max`` files open.
        """
        return RocksSettings(
            write_buffer_bytes=(self.rocks_write_buffer_mb or 0) * _MB
            or max(_MB, _WRITE_BUFFER_BYTES // directories),
            block_cache_bytes=self.rocks_block_cache_bytes
            or max(_MB, _BLOCK_CACHE_BYTES // directories),
            block_bytes=self.rocks_block_bytes,
            table_bytes=self.rocks_table_mb * _MB,
            bloom_bits=self.rocks_bloom_bits,
            lz4=self.rocks_lz4,
            level0_files=self.rocks_level0_files,
            level1_bytes=self.rocks_level1_mb * _MB,
            open_files_max=max(_FEWEST_FILES, open_files_max // (2 * directories)),
        )


@attrs.frozen(kw_only=True)
class RocksSettings:
    """The layout and memory of a database; each field names its Java key.

    ``locations`` gets ``block_cache_bytes`` and, while its tables are written, up to four times
    ``write_buffer_bytes``. ``ledgers`` is small: it has RocksDB's defaults, as in Java, except for
    a smaller write buffer.
    """

    write_buffer_bytes: int = 16 * 1024 * 1024
    """``dbStorage_rocksDB_writeBufferSizeMB``."""
    block_cache_bytes: int = 32 * 1024 * 1024
    """``dbStorage_rocksDB_blockCacheSize``."""
    block_bytes: int = 64 * 1024
    """``dbStorage_rocksDB_blockSize``."""
    table_bytes: int = 64 * 1024 * 1024
    """``dbStorage_rocksDB_sstSizeInMB``."""
    bloom_bits: int = 10
    """``dbStorage_rocksDB_bloomFilterBitsPerKey``; 0 for no filter."""
    lz4: bool = True
    """``dbStorage_rocksDB_lz4CompressionEnabled``."""
    level0_files: int = 4
    """``dbStorage_rocksDB_numFilesInLevel0``."""
    level1_bytes: int = 256 * 1024 * 1024
    """``dbStorage_rocksDB_maxSizeInLevel1MB``."""
    open_files_max: int = 256
    """Table files kept open; Java has no limit."""
