"""What an HTTP server of ours has answered, and whom it has turned away."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import attrs

from bookied.admin.monitoring.text import Family, counter

REFUSALS: Final = (401, 403, 404, 405)
"""Told from the start, so that the first one is an increase."""


@attrs.define
class HttpCounts:
    """Counts since the start; Java's bookie has nothing like it."""

    answers: dict[int, int] = attrs.field(factory=lambda: dict.fromkeys(REFUSALS, 0))
    """By status."""
    bodies_cut: int = 0
    connections_refused: int = 0

    def answered(self, status: int) -> None:
        """Count an answer."""
        self.answers[status] = self.answers.get(status, 0) + 1

    def families(self) -> Iterator[Family]:
        """Give the counts as metrics."""
        answers = (({"status": str(one)}, count) for one, count in sorted(self.answers.items()))
        yield Family("bookied_http_requests_total", "counter", tuple(answers))
        yield counter("bookied_http_bodies_cut_total", self.bodies_cut)
        yield counter("bookied_http_connections_refused_total", self.connections_refused)
