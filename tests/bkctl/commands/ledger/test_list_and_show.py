from __future__ import annotations

from typing import Any

import attrs
import pytest

from bkclient.metadata.versions_and_watches import Versioned
from bkctl.commands.ledger.columns import LedgerSummary
from bkctl.commands.ledger.delete import DeletionCandidate, loss
from bkctl.commands.ledger.list_and_show import LedgerFilter
from bkctl.output.views import view_of
from tests.bkctl.output.test_emitter import METADATA
from wire.codes import LedgerState
from wire.ids import LedgerId


@pytest.mark.parametrize(
    ("given", "passes"),
    [
        ({}, True),
        ({"state": LedgerState.CLOSED}, True),
        ({"state": LedgerState.IN_RECOVERY}, False),
        ({"bookie": "10.0.0.2:3181"}, True),
        ({"bookie": "10.0.0.9:3181"}, False),
        ({"created_before_ms": METADATA.ctime_ms + 1}, True),
        ({"created_before_ms": METADATA.ctime_ms}, False),
        ({"custom": {"owner": b"me"}}, True),
        ({"custom": {"owner": b"you"}}, False),
    ],
)
def test_filters_look_at_what_they_name(given: dict[str, Any], *, passes: bool) -> None:
    assert LedgerFilter(**given).passes(METADATA) is passes
    assert LedgerFilter(**given).is_open is (not given)


def test_what_a_closed_ledger_stores_is_its_length_in_all_copies() -> None:
    stored = view_of(LedgerSummary).named("stored")
    assert stored is not None
    closed = LedgerSummary(LedgerId(7), METADATA)
    assert stored.get(closed) == METADATA.length * METADATA.write_quorum
    is_open = attrs.evolve(METADATA, state=LedgerState.OPEN, last_entry_id=None, length=0)
    assert stored.get(LedgerSummary(LedgerId(7), is_open)) is None


def test_a_loss_is_told_with_entries_bytes_age_and_owner() -> None:
    one = DeletionCandidate(LedgerId(7), Versioned(METADATA, 0))
    line = loss(one)
    assert line.startswith("ledger 7: 10 entries, 4.9 KiB, ")
    assert "owner=me" in line
    assert METADATA.state is LedgerState.CLOSED


def test_a_loss_shows_a_few_custom_keys_cut_and_printable() -> None:
    custom = {"\x1b[2Jkey": b"\x1b]0;title\n\x07", "long": b"v" * 1_000_000, "k" * 500: b"\xff"}
    custom |= {f"key-{number}": b"value" for number in range(1000)}
    metadata = attrs.evolve(METADATA, custom=custom)
    line = loss(DeletionCandidate(LedgerId(7), Versioned(metadata, 0)))
    assert line.isprintable()
    assert r"\x1b[2Jkey=\x1b]0;title\x0a\x07, long=vvv" in line
    assert line.endswith(r"...=\xff, and 1000 more")
    assert "key-0" not in line
    assert len(line) < 250
