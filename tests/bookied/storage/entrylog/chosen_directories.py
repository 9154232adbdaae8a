"""Directories for entry logs, chosen by the test."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


class ChosenDirectories:
    """The first of ``targets`` takes the next log, any other of them what has no space there."""

    def __init__(self, directories: Sequence[Path], targets: list[Path] | None = None) -> None:
        self.all = tuple(directories)
        self.targets = list(directories) if targets is None else targets
        self.full: list[Path] = []
        self.refusal: Exception | None = None

    def choose(self) -> Path:
        if self.refusal is not None:
            raise self.refusal
        return self.targets[0]

    def other_than(self, full: Path) -> Path | None:
        return next((one for one in self.targets if one != full), None)

    def note_full(self, directory: Path) -> None:
        self.full.append(directory)
