"""What simulated bookies are made of: their settings, their blocking work, what they hold."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any, Final

import attrs
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from bookied.config.bookie import BookieConfig, StorageClass
from bookied.directories.lock import DirectoryLocks
from tests.sim.world.disk import PowerCut

STEPS_MAX: Final = 2000
"""More turns than anything the bookie does by itself takes; beyond, it hangs."""

_DEAD: Final = OSError(errno.EIO, "the process is gone")


class BrokenPromiseError(AssertionError):
    """The bookie lost what it acknowledged, or made something up."""


@attrs.frozen(kw_only=True)
class SmallFiles(BookieConfig):
    """Settings with journals smaller than an operator can ask for."""

    small_journal_bytes: int
    small_step_bytes: int

    @property
    def journal_bytes_max(self) -> int:
        return self.small_journal_bytes

    @property
    def journal_prealloc_bytes(self) -> int:
        return self.small_step_bytes


class Jobs:
    """Blocking work that waits for its turn, one at a time and in order, as one thread would."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], Any], Deferred[Any]]] = []

    def __len__(self) -> int:
        return len(self.waiting)

    def put(self, function: Callable[[], Any]) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()
        self.waiting.append((function, done))
        return done

    def run_one(self) -> None:
        """Do the oldest job; a power cut in it comes out here."""
        if not self.waiting:
            return
        function, done = self.waiting.pop(0)
        try:
            value = function()
        except PowerCut:
            self.waiting.insert(0, (function, done))  # For ``fail_all``: it is not over yet.
            raise
        except Exception:  # noqa: BLE001  # it belongs to whoever asked
            done.errback(Failure())
        else:
            done.callback(value)

    def fail_all(self) -> None:
        """The process died: nobody's work is ever done."""
        for _ in range(STEPS_MAX):
            if not self.waiting:
                return
            self.waiting.pop(0)[1].errback(Failure(_DEAD))
        raise AssertionError("a dead bookie goes on for ever")


class NoLocks(DirectoryLocks):
    """Nobody else is there."""

    def take(self, roots: Any) -> None:
        pass


def held_packet(storage: Any, state: Any, ledger_id: int, entry_id: int) -> bytes:
    """Return an entry that a storage has, from memory or disk."""
    found = storage.reads.read_memory(state, entry_id)
    if isinstance(found, bytes):
        return found
    return bytes(storage.reads.read_disk(found.location, ledger_id, entry_id))


def with_databases(config: BookieConfig) -> BookieConfig:
    """Return the settings of a bookie with DbLedgerStorage: an index directory for each other."""
    indexes = directory_names("i", len(config.ledger_directories))
    return attrs.evolve(
        config,
        storage_class=StorageClass.DB,
        index_directories=indexes if config.named_index_directories else (),
    )


def with_directories(
    config: BookieConfig,
    *,
    ledgers: int = 1,
    journals: int = 1,
    databases: int = 0,
    heals: int = 0,
    collects: int = 0,
) -> BookieConfig:
    """Return the settings of a bookie with so many directories.

    ``databases``: with DbLedgerStorage. ``heals``: it fetches back what it has lost.
    ``collects``: it looks every second for ledgers that the metadata does not have.
    """
    config = attrs.evolve(
        config,
        ledger_directories=directory_names("l", ledgers),
        journal_directories=directory_names("j", journals),
        check_integrity=bool(heals),
        stamp_missing_cookies=bool(heals),
    )
    if collects:
        config = attrs.evolve(config, gc_wait_ms=1000)
    return with_databases(config) if databases else config


def directory_names(prefix: str, count: int) -> tuple[str, ...]:
    return tuple(f"/{prefix}{number}" for number in range(count))
