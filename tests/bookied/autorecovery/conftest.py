"""What tests of autorecovery share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from twisted.logger import formatEvent, globalLogPublisher


@pytest.fixture
def logged() -> Iterator[Callable[[], list[str]]]:
    """Return what was logged so far, as lines."""
    events: list[Any] = []
    globalLogPublisher.addObserver(events.append)
    yield lambda: [formatEvent(event) for event in events]
    globalLogPublisher.removeObserver(events.append)
