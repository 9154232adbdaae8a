"""Journals alone, over power cuts at any step: what ours and what Java's bookie then find.

``BOOKIED_CRASH_SEEDS`` asks for more of them; a failing one is in the test's name.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from random import Random

import pytest

from bookied.storage.journal import format as layout
from bookied.storage.journal.journal_settings import JournalEvents, JournalSettings
from bookied.storage.journal.reader import journal_ids, open_scan
from bookied.storage.journal.writer import Journal
from tests.bookied.storage.journal.java_rules import JavaFailsError, java_scan
from tests.sim.world.disk import PowerCut, SimFiles

SEEDS = int(os.environ.get("BOOKIED_CRASH_SEEDS", "100"))
BASE = Path("/journal")


class Life:
    """One journal directory and what was sent to it, in order, and what of it was acknowledged."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.files = SimFiles(self.rng)
        self.files.make_durable(BASE)
        self.sent: list[bytes] = []
        self.acked = 0
        self.is_syncing = self.rng.random() < 0.7

    def live(self) -> None:
        """Write until the power goes."""
        self.files.cut_at = self.files.operations + self.rng.randrange(2, 60)
        journal = Journal(
            self.files,
            BASE,
            call_from_thread=lambda function, *args: function(*args),
            events=JournalEvents(on_synced=self._acknowledge, on_fatal=pytest.fail),
            now_ms=lambda: 4095,
            seconds=lambda: 0.0,
            settings=JournalSettings(
                size_bytes_max=self.rng.choice([20_000, 100_000]),
                preallocate=self.rng.choice([0, 8192, 65_536]),
                remove_from_page_cache=self.rng.random() < 0.7,
                sync_data=self.is_syncing,
            ),
            new_generation=lambda: self.rng.getrandbits(63),
        )
        try:
            journal.open()
            while True:
                for _ in range(self.rng.randrange(1, 6)):
                    self._send(journal)
                journal.step()
        except PowerCut:
            self.files.crash()

    def _send(self, journal: Journal) -> None:
        head = struct.pack(">qqqq", 7, len(self.sent), len(self.sent) - 1, 0)
        size = self.rng.choice([0, 30, 480, 4000, 9000])
        tail = bytes(self.rng.choice([0, 0, 600]))
        record = layout.entry_record(head + self.rng.randbytes(size) + tail)
        self.sent.append(record)
        journal.append(record, None)
        if self.is_syncing or self.rng.random() < 0.2:
            journal.append(b"", len(self.sent))

    def _acknowledge(self, dones: list[int | None]) -> None:
        self.acked = max([self.acked, *(done for done in dones if done is not None)])

    def ours(self) -> list[bytes]:
        found: list[bytes] = []
        for number in journal_ids(self.files, BASE):
            scan = open_scan(self.files, BASE / layout.file_name(number))
            found += [layout.entry_record(record.body) for record in scan]
        return found

    def javas(self, first_id: int = 0) -> tuple[list[bytes], bool]:
        """Return what Java replays from a journal on, and whether it gets to the end."""
        found: list[tuple[int, bytes]] = []
        for number in journal_ids(self.files, BASE):
            if number < first_id:
                continue
            try:
                found += java_scan(self.files.read(BASE / layout.file_name(number)))
            except JavaFailsError as error:
                found += error.found
                return [layout.entry_record(body) for _, body in found], False
        return [layout.entry_record(body) for _, body in found], True


@pytest.mark.parametrize("seed", range(SEEDS))
def test_replay_finds_all_that_was_acknowledged_and_nothing_that_was_not_sent(seed: int) -> None:
    life = Life(seed)
    for _ in range(life.rng.randrange(1, 4)):
        known, journals = len(life.sent), journal_ids(life.files, BASE)
        life.live()
        found = life.ours()
        assert found == life.sent[: len(found)]
        assert len(found) >= life.acked
        # Replay put the mark behind the journals before: a torn end there is not read again.
        theirs, _ = life.javas(max(journals, default=-1) + 1)
        assert theirs[: life.acked - known] == life.sent[known : life.acked]
        # What is lost stays lost: the next life begins behind what replay found.
        del life.sent[len(found) :]
        life.acked = len(found)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_a_killed_process_wrote_is_there_for_java_too(seed: int) -> None:
    """No power cut: a write is whole, or its first pages are."""
    life = Life(10_000 + seed)
    life.files.crash = life.files.kill  # type: ignore[method-assign]
    life.live()
    theirs, is_whole = life.javas()
    assert is_whole
    assert theirs == life.ours() == life.sent[: len(theirs)]
    assert len(theirs) >= life.acked
