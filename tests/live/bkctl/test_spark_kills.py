"""A few rounds of killing a stream's processes; ``spark_kills`` runs as many as one likes."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'bkctl[spark]'")

from tests.live.bkctl.spark_kills import Victim, kill

pytestmark = [pytest.mark.spark, pytest.mark.processes]


def test_rows_are_there_once_whoever_is_killed(tmp_path) -> None:
    outcome = kill(3, seed=3, scratch=tmp_path)
    assert outcome.killed.total() > 0
    assert outcome.verdict.intact, outcome.verdict


def test_rows_are_there_once_whichever_executor_is_lost(tmp_path) -> None:
    outcome = kill(3, seed=5, scratch=tmp_path, executors=2)
    lost = outcome.killed[Victim.EXECUTOR] + outcome.killed[Victim.STOPPED_EXECUTOR]
    assert lost > 0
    assert outcome.verdict.intact, outcome.verdict
