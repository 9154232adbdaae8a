"""The published names of metrics, declared at the attributes with their values."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final, Literal, NamedTuple

import attrs

from bookied.stats.quantiles import WHOLE, Summary

Kind = Literal["counter", "gauge", "summary"]

_METRICS: Final = "bookied.metrics"


class Metric(NamedTuple):
    """One name of an attribute, and its Prometheus type."""

    name: str
    kind: Kind
    attribute: str


def latency(*names: str) -> Any:
    """Declare a duration in milliseconds."""
    return attrs.field(factory=Summary, metadata={_METRICS: ("summary", names)})


def sizes(*names: str) -> Any:
    """Declare a size or number that is observed each time."""
    return attrs.field(factory=partial(Summary, WHOLE), metadata={_METRICS: ("summary", names)})


def count(*names: str) -> Any:
    """Declare a counter, which only grows."""
    return attrs.field(default=0, metadata={_METRICS: ("counter", names)})


def level(*names: str) -> Any:
    """Declare a gauge, which rises and falls."""
    return attrs.field(default=0, metadata={_METRICS: ("gauge", names)})


def metrics_of(kind: type) -> Iterator[Metric]:
    """Yield the metrics that a class declares, in its order."""
    for field in attrs.fields(kind):
        type_, names = field.metadata.get(_METRICS, ("", ()))
        for name in names:
            yield Metric(name, type_, field.name)
