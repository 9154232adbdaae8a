"""Ids for Tab: asked in a process of its own, and nobody waits for long."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from bkctl.cli.completion.candidate_order import Values
from bkctl.commands.tool.completion_process import answer_of
from tests.support.waiting import until

LEDGERS = [("17", "closed"), ("12", "open"), ("5", "open")]
WAIT_S = 60.0


def test_an_answer_of_any_length_is_given_whole() -> None:
    many = [(str(number), "open") for number in range(20_000)]
    for values in ([], LEDGERS, many):
        assert answer_of(lambda values=values: values, WAIT_S) == values  # type: ignore[misc]


def test_a_cluster_that_does_not_answer_in_time_offers_nothing() -> None:
    def ask() -> Values:
        threading.Event().wait()
        return LEDGERS

    assert answer_of(ask, 0.0) == []


def test_a_failure_offers_nothing() -> None:
    def ask() -> Values:
        raise OSError("no cluster")

    assert answer_of(ask, WAIT_S) == []


def test_the_asking_process_holds_none_of_our_streams_and_is_gone_afterwards(
    tmp_path: Path,
) -> None:
    there = tmp_path / "there"

    def ask() -> Values:
        os.write(1, b"into the void")
        there.write_text(f"{os.getpid()} {os.getsid(0)}")
        return LEDGERS

    assert answer_of(ask, WAIT_S) == LEDGERS
    process, session = map(int, until(there.read_text).split())
    assert session == process != os.getsid(0)
    assert not Path(f"/proc/{process}").exists()
