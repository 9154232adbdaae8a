"""A bookie's storage on a simulated disk, with a model of what has to be there after a crash."""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Coroutine, Generator
from pathlib import Path
from random import Random
from typing import Any

import attrs

from bookied.errors import StorageError
from bookied.storage.entrylog.log_file import LogSettings
from bookied.storage.index.index_files.index import IndexFiles
from bookied.storage.index.key_value_store import KeyValues
from bookied.storage.index.ledger_pages import CachedLedger
from bookied.storage.index.rocks.index import RocksIndex
from bookied.storage.index.store import IndexStore
from bookied.storage.journal.format import entry_record, explicit_lac_record, fence_record
from bookied.storage.journal.journal_settings import JournalEvents, JournalSettings
from bookied.storage.journal.mark import LastMark
from bookied.storage.journal.writer import Journal
from bookied.storage.ledger_storage.reads import NeedsDisk
from bookied.storage.ledger_storage.storage import LedgerStorage
from bookied.storage.ledger_storage.storage_limits import StorageEvents, StorageLimits
from bookied.storage.replay import recover
from bookied.storage.storages import Storages
from tests.sim.world.disk import SimFiles
from tests.sim.world.key_values import SimKeyValues
from tests.support.stored_entries import stored_entries

LIMITS = StorageLimits(
    cache_bytes=2000,
    unwritten_bytes_max=100_000,
    dirty_pages_max=4,
    clean_pages_max=2,
    ledgers_max=2,
    checkpoint_bytes=10_000,
    open_logs_max=2,
    open_indexes_max=2,
)


class JournalPosition:
    """A journal as a checkpoint sees it."""

    def __init__(self, synced: LastMark) -> None:
        self.synced = synced
        self.removed: list[LastMark] = []

    def remove_old(self, mark: LastMark) -> None:
        self.removed.append(mark)


class Blocking(Awaitable[Any]):
    """A blocking call of a checkpoint that waits for its turn; see ``Turns``."""

    def __init__(self, action: Callable[[], Any]) -> None:
        self.action = action
        self.value: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.value = self.action()
        except Exception as error:  # noqa: BLE001  # it comes out where it is awaited
            self.error = error

    def __await__(self) -> Generator[Any, None, Any]:
        yield self
        if self.error is not None:
            raise self.error
        return self.value


class Turns:
    """Runs a coroutine step by step, so that other things can happen in between."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine
        self._waiting: Blocking | None = None
        self.is_done = False
        self.error: Exception | None = None
        self._resume()

    def step(self) -> None:
        if self._waiting is not None:
            self._waiting.run()
            self._waiting = None
        else:
            self._resume()

    def _resume(self) -> None:
        try:
            self._waiting = self._coroutine.send(None)
        except StopIteration:
            self.is_done = True
        except Exception as error:  # noqa: BLE001  # it comes out of ``finish``
            self.is_done, self.error = True, error

    def abandon(self) -> None:
        self._coroutine.close()

    def finish(self) -> None:
        while not self.is_done:
            self.step()
        if self.error is not None:
            raise self.error


@attrs.define
class Submitted:
    """All that was ever asked of a ledger, and what of it was acknowledged."""

    master_key: bytes
    packets: dict[int, list[bytes]] = attrs.field(factory=dict)
    acked: dict[int, int] = attrs.field(factory=dict)
    """Index of the newest acknowledged packet, by entry."""
    fence_asked: bool = False
    fence_acked: bool = False
    lacs: list[bytes] = attrs.field(factory=list)
    lac_acked: int = -1


class World:
    """One bookie's disk and storage. Operations are chosen by the caller, or by ``act``."""

    def __init__(
        self,
        seed: int,
        *,
        journals: int = 1,
        directories: int = 1,
        db: bool = False,
        root: Path = Path("/"),
    ) -> None:
        """Make an empty bookie; with ``db`` one storage for each directory, as DbLedgerStorage."""
        self.rng, self.db = Random(seed), db
        self.files = self.make_files()
        self.model: dict[int, Submitted] = {}
        self.journal_dirs = [root / f"j{n}/current" for n in range(journals)]
        self.ledger_dirs = [root / f"l{n}/current" for n in range(directories)]
        for directory in [*self.journal_dirs, *self.ledger_dirs]:
            self.files.make_durable(directory)
        self.files.sync_dir(root)
        self.fatal: list[object] = []
        self.checkpoint: Turns | None = None
        self.serial = 0
        self.start()

    # The bookie -----------------------------------------------------------------------------------

    def make_files(self) -> Any:
        return SimFiles(self.rng)

    def open_key_values(self, path: Path) -> KeyValues:
        return SimKeyValues(self.files, path)

    def start(self) -> None:
        self.checkpoint, self.is_up = None, False
        self.storages = Storages(self.files, self.make_storages())
        self.storages.open()
        self.replayed = recover(self.files, self.storages, self.journal_dirs)
        self.journals = [
            Journal(
                self.files,
                directory,
                call_from_thread=lambda function, *args: function(*args),
                events=JournalEvents(on_synced=self._acknowledge, on_fatal=self.fatal.append),
                now_ms=lambda: 1000,
                settings=JournalSettings(
                    size_bytes_max=self.rng.choice([16_000, 60_000]),
                    backups_max=self.rng.randrange(2),
                    preallocate=self.rng.choice([0, 4096, 65_536]),
                    remove_from_page_cache=self.rng.random() < 0.5,
                ),
                new_generation=lambda: self.rng.getrandbits(63),
            )
            for directory in self.journal_dirs
        ]
        for journal in self.journals:
            journal.open()
        self.is_up = True

    def make_storages(self) -> list[LedgerStorage]:
        if self.db:
            indexes = [RocksIndex(one, self.open_key_values) for one in self.ledger_dirs]
            return [
                self.make_storage([one], index)
                for one, index in zip(self.ledger_dirs, indexes, strict=True)
            ]
        index = IndexFiles(self.files, self.ledger_dirs, rng=self.rng)
        return [self.make_storage(self.ledger_dirs, index)]

    def make_storage(self, directories: list[Path], index: IndexStore) -> LedgerStorage:
        return LedgerStorage(
            self.files,
            directories,
            index,
            events=StorageEvents(on_fatal=self.fatal.append),
            rng=self.rng,
            limits=LIMITS,
            log_settings=LogSettings(size_bytes_max=6000),
        )

    def stop(self) -> None:
        if self.checkpoint is not None:
            self.checkpoint.finish()
        for journal in self.journals:
            journal.stop()
        Turns(self.storages.stop(self.journals, Blocking)).finish()

    def crash(self) -> None:
        if self.checkpoint is not None:
            self.checkpoint.abandon()
        self.files.crash()
        self.start()

    def die(self) -> None:
        """Be killed, be it with the power or without, and start again on a sound disk."""
        self.files.fault = self.files.bytes_max = None
        if self.checkpoint is not None:
            self.checkpoint.abandon()
        if self.rng.random() < 0.5:
            self.files.kill()
        else:
            self.files.crash()
        self.fatal.clear()
        self.start()

    def journal(self, ledger_id: int) -> Journal:
        return self.journals[ledger_id % len(self.journals)]

    def _acknowledge(self, dones: list[Callable[[], None]]) -> None:
        for done in dones:
            done()

    # What clients ask -----------------------------------------------------------------------------

    def ledger(self, ledger_id: int) -> tuple[CachedLedger, bytes]:
        """Return the ledger and the key record to journal, if any."""
        storage = self.storages.of(ledger_id)
        state = storage.ledgers.lookup(ledger_id)
        if state is None:
            key = b"%020d" % ledger_id
            state = storage.ledgers.create(ledger_id, key)
        self.model.setdefault(ledger_id, Submitted(state.master_key))
        record = b"" if state.key_logged else storage.ledgers.key_record(state)
        state.key_logged = True
        return state, record

    def add(self, ledger_id: int, entry_id: int, size: int) -> None:
        self.serial += 1
        state, key_record = self.ledger(ledger_id)
        body = b"%d." % self.serial * (size // 4 + 1) + bytes(self.serial % 3 * 5)
        packet = struct.pack(">qqqq", ledger_id, entry_id, entry_id - 1, 0) + body
        asked = self.model[ledger_id]
        versions = asked.packets.setdefault(entry_id, [])
        versions.append(packet)
        number = len(versions) - 1

        def acked() -> None:
            asked.acked[entry_id] = max(number, asked.acked.get(entry_id, -1))

        self.storages.of(ledger_id).adds.add(state, entry_id, packet)
        self.journal(ledger_id).append(key_record + entry_record(packet), acked)

    def fence(self, ledger_id: int) -> None:
        state, key_record = self.ledger(ledger_id)
        asked = self.model[ledger_id]
        asked.fence_asked = True

        def acked() -> None:
            asked.fence_acked = True

        self.storages.of(ledger_id).ledgers.set_fenced(state)
        self.journal(ledger_id).append(key_record + fence_record(ledger_id), acked)

    def explicit_lac(self, ledger_id: int) -> None:
        self.serial += 1
        state, key_record = self.ledger(ledger_id)
        asked = self.model[ledger_id]
        packet = struct.pack(">qqi", ledger_id, self.serial, self.serial)
        asked.lacs.append(packet)
        number = len(asked.lacs) - 1

        def acked() -> None:
            asked.lac_acked = max(number, asked.lac_acked)

        self.storages.of(ledger_id).ledgers.set_explicit_lac(state, packet)
        self.journal(ledger_id).append(key_record + explicit_lac_record(ledger_id, packet), acked)

    def delete(self, ledger_id: int) -> None:
        """Garbage collection: what was deleted may come back with a replay, but need not."""
        asked = self.model.get(ledger_id)
        self.storages.of(ledger_id).ledgers.delete(ledger_id)
        if asked is not None:
            packets = {entry: list(versions) for entry, versions in asked.packets.items()}
            self.model[ledger_id] = Submitted(
                asked.master_key, packets, fence_asked=asked.fence_asked, lacs=list(asked.lacs)
            )

    # Random life ----------------------------------------------------------------------------------

    def act(self) -> None:
        choice = self.rng.random()
        ledger_id = self.rng.choice([0, 1, 2, 300, 2**40 + 7])
        if choice < 0.5:
            self.add(ledger_id, self._entry_id(ledger_id), self.rng.choice([0, 40, 400, 1500]))
        elif choice < 0.7:
            self.rng.choice(self.journals).step()
        elif choice < 0.78:
            storage = self.storages.of(ledger_id)
            storage._log.hand_over()
            storage._log.step()
        elif choice < 0.93:
            self._act_on_checkpoint()
        elif choice < 0.95:
            self.fence(ledger_id)
        elif choice < 0.98:
            self.explicit_lac(ledger_id)
        elif choice < 0.985:
            self._restart()
        elif choice < 0.99:
            self.delete(ledger_id)
        else:
            self.check()

    def _restart(self) -> None:
        try:
            self.stop()
            self.start()
        except (StorageError, OSError) as error:
            self.fatal.append(error)

    def _entry_id(self, ledger_id: int) -> int:
        held = self.model.get(ledger_id)
        last = max(held.packets, default=-1) if held else -1
        if self.rng.random() < 0.1:
            return self.rng.randrange(last + 1) if last >= 0 else 0
        return last + self.rng.choice([1, 1, 1, 1, 1, 2, 700])

    def _act_on_checkpoint(self) -> None:
        if self.checkpoint is None:
            self.checkpoint = Turns(self.storages.checkpoint(self.journals, Blocking))
        for _ in range(self.rng.randrange(6)):
            if not self.checkpoint.is_done:
                self.checkpoint.step()
        if self.checkpoint.is_done:
            if self.checkpoint.error is not None:
                assert isinstance(self.checkpoint.error, StorageError | OSError), self.checkpoint
            self.checkpoint = None

    # What has to hold -----------------------------------------------------------------------------

    def read(self, ledger_id: int, entry_id: int) -> bytes | None:
        storage = self.storages.of(ledger_id)
        state = storage.ledgers.lookup(ledger_id)
        if state is None:
            return None
        found = storage.reads.read_memory(state, entry_id)
        if isinstance(found, NeedsDisk):
            return storage.reads.fetch(found, entry_id)
        return found

    def check(self) -> None:
        """Everything acknowledged is there; everything there was asked for."""
        if not self.is_up:
            return  # The disk did not let it start: it serves nothing, and is started again.
        for ledger_id, asked in self.model.items():
            self._check_ledger(ledger_id, asked)
        held = [ledger_id for storage in self.storages for ledger_id in storage.ledgers.ids()]
        assert len(held) == len(set(held))
        assert set(held) <= set(self.model)

    def _check_ledger(self, ledger_id: int, asked: Submitted) -> None:
        storage = self.storages.of(ledger_id)
        state = storage.ledgers.lookup(ledger_id)
        if state is None:
            assert not asked.acked, f"ledger {ledger_id} is gone"
            assert not asked.fence_acked
            assert asked.lac_acked < 0
            return
        assert state.master_key == asked.master_key
        held = stored_entries(storage, ledger_id)
        assert state.last_entry == max(held, default=-1)
        for entry_id in asked.acked:
            assert entry_id in held, f"entry {entry_id} of ledger {ledger_id} is gone"
        for entry_id in held:
            packet = self.read(ledger_id, entry_id)
            assert packet is not None
            versions = asked.packets.get(entry_id, [])
            assert packet in versions, f"entry {entry_id} of ledger {ledger_id} was never sent"
            assert versions.index(packet) >= asked.acked.get(entry_id, 0)
        assert asked.fence_asked if state.fenced else not asked.fence_acked
        if state.explicit_lac is not None:
            assert asked.lacs.index(state.explicit_lac) >= asked.lac_acked
        else:
            assert asked.lac_acked < 0

    def forget_what_was_lost(self) -> None:
        """After a power cut: what is not there will not come back, what is there has to stay."""
        for ledger_id, asked in list(self.model.items()):
            storage = self.storages.of(ledger_id)
            state = storage.ledgers.lookup(ledger_id)
            if state is None:
                del self.model[ledger_id]
                continue
            held = set(stored_entries(storage, ledger_id))
            for entry_id in list(asked.packets):
                if entry_id not in held:
                    del asked.packets[entry_id]
                else:
                    packet = self.read(ledger_id, entry_id)
                    assert packet is not None
                    asked.packets[entry_id] = [packet]
                    asked.acked[entry_id] = 0
            asked.fence_asked = asked.fence_acked = state.fenced
            asked.lacs = [state.explicit_lac] if state.explicit_lac is not None else []
            asked.lac_acked = len(asked.lacs) - 1
