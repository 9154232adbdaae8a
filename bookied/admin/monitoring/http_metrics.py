"""The counts of answers and refusals of an HTTP server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import attrs
from twisted.internet.interfaces import IReactorTime

from bookied.admin.http.limits import HttpLimit
from bookied.admin.monitoring.prometheus_text import Family, counter
from bookied.server.limits.limit_hits import LimitHits

REFUSALS: Final = (401, 403, 404, 405)
"""Counted from the start, so that the first one is an increase."""


@attrs.define
class HttpCounts:
    """Counts since the start, and log lines about limits; Java has no such metrics."""

    _clock: IReactorTime
    answers: dict[int, int] = attrs.field(factory=lambda: dict.fromkeys(REFUSALS, 0))
    """Answers by status."""
    bodies_cut: int = 0
    connections_refused: int = 0
    _hits: LimitHits[HttpLimit] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._hits = LimitHits(self._clock, HttpLimit, what="HTTP ")

    def hit(self, limit: HttpLimit, who: str = "", why: object = "") -> None:
        """Count a reached limit."""
        self.bodies_cut += limit is HttpLimit.BODY
        self.connections_refused += limit in {HttpLimit.CONNECTIONS, HttpLimit.ADDRESS}
        self._hits.hit(limit, who, why)

    def answered(self, status: int) -> None:
        """Count an answer."""
        self.answers[status] = self.answers.get(status, 0) + 1

    def families(self) -> Iterator[Family]:
        """Yield the counts as metrics."""
        answers = (({"status": str(one)}, count) for one, count in sorted(self.answers.items()))
        yield Family("bookied_http_requests_total", "counter", tuple(answers))
        yield counter("bookied_http_bodies_cut_total", self.bodies_cut)
        yield counter("bookied_http_connections_refused_total", self.connections_refused)
        hits = (({"limit": one.label}, count) for one, count in self._hits.counts.items())
        yield Family("bookied_http_limit_hits_total", "counter", tuple(hits))
