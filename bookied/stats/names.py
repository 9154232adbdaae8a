"""Under which names what is counted is published: at the attribute that holds it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final, Literal, NamedTuple

import attrs

from bookied.stats.quantiles import WHOLE, Summary

Kind = Literal["counter", "gauge", "summary"]

_METRICS: Final = "bookied.metrics"


class Metric(NamedTuple):
    """One name of an attribute, and what Prometheus takes it for."""

    name: str
    kind: Kind
    attribute: str


def latency(*names: str) -> Any:
    """Declare how long something takes, in milliseconds."""
    return attrs.field(factory=Summary, metadata={_METRICS: ("summary", names)})


def sizes(*names: str) -> Any:
    """Declare how large, or how many, something is each time."""
    return attrs.field(factory=partial(Summary, WHOLE), metadata={_METRICS: ("summary", names)})


def count(*names: str) -> Any:
    """Declare what only grows."""
    return attrs.field(default=0, metadata={_METRICS: ("counter", names)})


def level(*names: str) -> Any:
    """Declare a number that goes up and down."""
    return attrs.field(default=0, metadata={_METRICS: ("gauge", names)})


def metrics_of(kind: type) -> Iterator[Metric]:
    """Give the metrics that a class declares, in its order."""
    for field in attrs.fields(kind):
        type_, names = field.metadata.get(_METRICS, ("", ()))
        for name in names:
            yield Metric(name, type_, field.name)
