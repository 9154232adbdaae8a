"""What processes hold over time: samples, their slope, and a picture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from tests.bench.loads.load import rss_bytes

MIB: Final = 2**20


@attrs.frozen(kw_only=True)
class Sample:
    """One look at one process. ``at_s`` counts from the beginning of the run."""

    name: str
    at_s: float
    rss_mib: float
    descriptors: int
    threads: int
    disk_mib: float


FIGURES: Final = {
    "rss_mib": "RSS (MiB)",
    "descriptors": "descriptors",
    "threads": "threads",
    "disk_mib": "disk (MiB)",
}
"""The attributes that are drawn, and what they are called."""


def sample(name: str, pid: int, directory: Path | None, at_s: float) -> Sample | None:
    """Look at a process; None where it is not there now."""
    process = Path(f"/proc/{pid}")
    try:
        return Sample(
            name=name,
            at_s=at_s,
            rss_mib=rss_bytes(pid) / MIB,
            descriptors=_entries(process / "fd"),
            threads=_entries(process / "task"),
            disk_mib=0.0 if directory is None else _disk_bytes(directory) / MIB,
        )
    except (OSError, AssertionError):
        return None


def _entries(directory: Path) -> int:
    return sum(1 for _ in directory.iterdir())


def _disk_bytes(directory: Path) -> int:
    total = 0
    for path in directory.rglob("*"):
        try:
            status = path.stat()
        except FileNotFoundError:  # It has gone since it was listed.
            continue
        total += status.st_blocks * 512
    return total


def slope(points: Iterable[tuple[float, float]]) -> float:
    """Return by how much a figure grows in a minute: least squares; 0 for less than two points."""
    found = list(points)
    if len({at for at, _ in found}) < 2:
        return 0.0
    mean_at = sum(at for at, _ in found) / len(found)
    mean = sum(value for _, value in found) / len(found)
    over = sum((at - mean_at) ** 2 for at, _ in found)
    return 60 * sum((at - mean_at) * (value - mean) for at, value in found) / over


def steady(samples: Sequence[Sample], name: str, since_s: float) -> list[Sample]:
    """Return the samples of a process in the steady part."""
    return [one for one in samples if one.name == name and one.at_s >= since_s]


def draw(
    path: Path, samples: Sequence[Sample], events: Mapping[float, str], since_s: float
) -> None:
    """Draw every figure over time as PNG, one below the other; events are lines across all."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(len(FIGURES), 1, sharex=True, figsize=(9, 9))
    for axis, (attribute, label) in zip(axes, FIGURES.items(), strict=True):
        _draw_one(axis, samples, attribute)
        axis.set_ylabel(label)
        axis.axvspan(since_s, max(one.at_s for one in samples), color="0.94")
        for at_s, what in events.items():
            color = "tab:red" if what == "SIGKILL" else "tab:gray"
            axis.axvline(at_s, color=color, linewidth=0.6, linestyle=":")
    axes[0].legend(loc="lower right", ncols=3)
    axes[-1].set_xlabel("seconds; dotted: SIGTERM, red: SIGKILL; grey: the steady part")
    figure.tight_layout()
    figure.savefig(path, dpi=80)
    plt.close(figure)


def _draw_one(axis: Any, samples: Sequence[Sample], attribute: str) -> None:
    for name in sorted({one.name for one in samples}):
        mine = [one for one in samples if one.name == name]
        if attribute != "disk_mib" or any(one.disk_mib for one in mine):
            values = [getattr(one, attribute) for one in mine]
            axis.plot([one.at_s for one in mine], values, label=name, linewidth=1)
    axis.set_ylim(bottom=0)
