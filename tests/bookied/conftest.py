"""What tests of bookied share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from twisted.logger import LogEvent, formatEvent, globalLogPublisher


@pytest.fixture
def logs() -> Iterator[list[str]]:
    """What is logged meanwhile, as text."""
    lines: list[str] = []

    def observe(event: LogEvent) -> None:
        lines.append(formatEvent(event))

    globalLogPublisher.addObserver(observe)
    yield lines
    globalLogPublisher.removeObserver(observe)
