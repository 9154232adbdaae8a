"""The soak itself: a few seconds of it, what it notices, and how it reckons."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.__main__ import Soak, main, summary
from tests.soak.figures import Sample, draw, slope, steady
from tests.soak.load import MismatchError, MixedLoad, Written, payload
from wire.digest import Entry
from wire.ids import EntryId, LedgerId

L = LedgerId(7)


def looked(name: str, at_s: float, rss_mib: float) -> Sample:
    return Sample(
        name=name, at_s=at_s, rss_mib=rss_mib, descriptors=20, threads=5, disk_mib=at_s + 1
    )


@pytest.mark.processes
def test_a_few_seconds_of_it_restart_collect_and_lose_nothing(capsys, tmp_path: Path) -> None:
    assert main(["--minutes", "0.05", "--directory", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    for what in ("added entries", "restarts by SIGTERM", "certificate rotations"):
        assert f"{what}: " in out
    assert "read back at the end: 0" not in out
    for name in ("b1", "b2", "clients"):
        assert f"\n{name}: RSS " in out
    assert list(tmp_path.iterdir()) == []


def test_what_an_entry_holds_is_told_by_its_ids_alone() -> None:
    assert payload(L, 3) == payload(L, 3)
    assert len({payload(L, n) for n in range(100)} | {payload(LedgerId(8), 0)}) == 101


def test_another_entry_and_a_ledger_that_ends_early_are_noticed() -> None:
    written = Written(L, acknowledged=4)
    written.require(Entry(L, EntryId(2), EntryId(1), 0, payload(L, 2)))
    with pytest.raises(MismatchError, match="entry 2 is another"):
        written.require(Entry(L, EntryId(2), EntryId(1), 0, payload(L, 3)))
    written.require_whole(5)
    with pytest.raises(MismatchError, match="ends at 3, not 4"):
        written.require_whole(4)


def test_a_slope_is_by_the_minute_and_nothing_without_two_times() -> None:
    assert slope([(0, 1), (30, 2), (60, 3)]) == pytest.approx(2)
    assert slope([(0, 5), (10, 5)]) == 0
    assert slope([(3, 5)]) == slope([]) == 0


def test_the_summary_has_slopes_of_the_steady_part_alone_and_every_mismatch(tmp_path) -> None:
    soak, load = Soak(tmp_path, 100, 1), MixedLoad({}, 1)
    soak.steady_from_s = 50
    soak.samples = [looked("b1", at_s, 10 + max(0, 50 - at_s)) for at_s in range(100)]
    load.mismatches.append("b1 lost it")
    lines = summary(soak, load)
    assert "MISMATCH b1 lost it" in lines
    assert lines[-1].startswith("b1: RSS 10 MiB, +0.00 MiB a minute; descriptors 20, +0.00 a")
    assert len(steady(soak.samples, "b1", soak.steady_from_s)) == 50


def test_a_picture_is_drawn_where_there_is_matplotlib(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    samples = [looked(name, at_s, 50) for name in ("b1", "b2") for at_s in range(10)]
    draw(tmp_path / "soak.png", samples, {2.0: "SIGTERM", 4.0: "SIGKILL"}, 5.0)
    assert (tmp_path / "soak.png").read_bytes().startswith(b"\x89PNG")
