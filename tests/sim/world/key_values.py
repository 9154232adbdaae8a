"""A key-value store on a simulated disk: what RocksDB promises, and no more than that.

Writes are records behind each other in one log. What was not synced may be lost from some record
on, or all of it; what was survives. Like RocksDB it takes nothing more once a write has failed, and
is opened anew with the next one: then it has what the log holds, as after a crash.
"""

from __future__ import annotations

import json
import zlib
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from pathlib import Path

from bookied.storage.files.files import Files
from bookied.storage.index.rocks.synced_sequence import (
    SyncedNote,
    check_note,
    encode_note,
    note_path,
)


class SimKeyValues:
    """A ``KeyValues``. ``SimFiles.crash`` is its power cut."""

    def __init__(self, files: Files, directory: Path) -> None:
        self._files, self._path = files, directory / "wal"
        self._is_broken = False
        self._identity, self._changes, self._synced = directory.name, 0, 0
        if not files.exists(directory):
            files.mkdirs(directory)
        files.sync_dir(directory.parent)
        self._open()

    def _open(self) -> None:
        """Take what the log holds, up to the first record that is not whole, into a new one."""
        self._map: dict[bytes, bytes] = {}
        self._keys: list[bytes] = []
        self._changes = 0
        if self._files.exists(self._path):
            for line in self._files.read(self._path).split(b"\n"):
                if not self._replay(line):
                    break
        begin = self._changes - len(self._map)
        records = [_record("begin", self._identity.encode(), b"%d" % begin)]
        records += [_record("put", key, value) for key, value in self._map.items()]
        self._files.write_atomic(self._path, b"".join(records))
        self._file = self._files.open_update(self._path)
        self._end = self._file.size()
        self._is_broken = False

    def _replay(self, line: bytes) -> bool:
        check, _, body = line.partition(b" ")
        if check != b"%08x" % zlib.crc32(body):
            return False
        kind, first, second = json.loads(body)
        self._apply(kind, bytes.fromhex(first), bytes.fromhex(second))
        return True

    def _apply(self, kind: str, first: bytes, second: bytes) -> None:
        self._changes += 1
        if kind == "begin":
            self._identity, self._changes = first.decode(), int(second)
        elif kind == "put":
            if first not in self._map:
                insort(self._keys, first)
            self._map[first] = second
        elif kind == "delete":
            self._remove(first, first + b"\0")
        else:
            self._remove(first, second)

    def _remove(self, begin: bytes, end: bytes) -> None:
        low, high = bisect_left(self._keys, begin), bisect_left(self._keys, end)
        for key in self._keys[low:high]:
            del self._map[key]
        del self._keys[low:high]

    # KeyValues ------------------------------------------------------------------------------------

    def get(self, key: bytes) -> bytes | None:
        return self._map.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self._map.get(key) for key in keys]

    def items(self, begin: bytes, end: bytes, count_max: int) -> list[tuple[bytes, bytes]]:
        low, high = bisect_left(self._keys, begin), bisect_left(self._keys, end)
        return [(key, self._map[key]) for key in self._keys[low : min(high, low + count_max)]]

    def floor(self, key: bytes) -> tuple[bytes, bytes] | None:
        at = bisect_right(self._keys, key)
        return (self._keys[at - 1], self._map[self._keys[at - 1]]) if at else None

    def put(self, items: Iterable[tuple[bytes, bytes]]) -> None:
        for key, value in items:
            self._write("put", key, value)

    def delete(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            self._write("delete", key, b"")

    def delete_ranges(self, ranges: Iterable[tuple[bytes, bytes]]) -> None:
        for begin, end in ranges:
            self._write("delete_range", begin, end)

    def _write(self, kind: str, first: bytes, second: bytes) -> None:
        if self._is_broken:
            self._open()
        record = _record(kind, first, second)
        try:
            self._file.write_at(self._end, record)
        except OSError:
            self._is_broken = True
            raise
        self._end += len(record)
        self._apply(kind, first, second)

    def compact(self) -> None:
        """See ``KeyValues``: every opening does that here."""

    def sync(self) -> None:
        if self._is_broken:
            self._open()
        try:
            self._file.sync()
        except OSError:
            self._is_broken = True
            raise
        self._synced = self._changes

    def note_synced(self) -> None:
        note = SyncedNote(self._identity, self._synced)
        self._files.write_atomic(note_path(self._path.parent), encode_note(note))

    def check_synced(self) -> bool:
        path = note_path(self._path.parent)
        if not self._files.exists(path):
            return False
        found = SyncedNote(self._identity, self._changes)
        check_note(self._files.read(path), found, self._path.parent)
        return True

    def close(self) -> None:
        self._file.close()


def _record(kind: str, first: bytes, second: bytes) -> bytes:
    body = json.dumps([kind, first.hex(), second.hex()]).encode()
    return b"%08x %s\n" % (zlib.crc32(body), body)
