"""Metric families as text for Prometheus, in the form of Java's provider.

``prometheus_client`` does not fit: it appends ``_total`` to a counter's family and sorts labels,
and Java does neither (BookKeeper 4.18.0, PrometheusTextFormat). Tests parse this text with its
parser.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from bookied.stats.metric_declaration import Kind, metrics_of
from bookied.stats.quantiles import QUANTILES, Series, Summary

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Labels = Mapping[str, str]

_NO_LABELS: Final[Labels] = {}


@attrs.frozen
class Family:
    """All samples of one name. Those of a summary are ``Summary``, others are numbers."""

    name: str
    kind: Kind
    samples: tuple[tuple[Labels, float | Summary], ...]


def counter(name: str, value: float) -> Family:
    """Return a counter with one sample."""
    return Family(name, "counter", ((_NO_LABELS, value),))


def gauge(name: str, value: float, labels: Labels = _NO_LABELS) -> Family:
    """Return a gauge with one sample."""
    return Family(name, "gauge", ((labels, value),))


def summary(name: str, value: Summary, labels: Labels = _NO_LABELS) -> Family:
    """Return a summary with one sample."""
    return Family(name, "summary", ((labels, value),))


def declared(part: Any, prefix: str = "") -> Iterator[Family]:
    """Yield the metrics that the class of a part declares."""
    return declared_of_all([(_NO_LABELS, part)], prefix)


def declared_of_all(parts: Sequence[tuple[Labels, Any]], prefix: str) -> Iterator[Family]:
    """Yield the metrics of parts of one class, each part with its labels."""
    for name, kind, attribute in metrics_of(type(parts[0][1])):
        samples = tuple((labels, getattr(part, attribute)) for labels, part in parts)
        yield Family(prefix + name, kind, samples)


def exposition(families: Iterable[Family]) -> str:
    """Return the text; each name must occur once."""
    lines: list[str] = []
    for family in families:
        lines.append(f"# TYPE {family.name} {family.kind}")
        for labels, value in family.samples:
            if isinstance(value, Summary):
                lines += _summary_lines(family.name, labels, value)
            else:
                lines.append(f"{family.name}{_braced(_pairs(labels))} {_number(value)}")
    lines.append("")
    return "\n".join(lines)


def _summary_lines(name: str, labels: Labels, value: Summary) -> Iterator[str]:
    behind = f", {_pairs(labels)}" if labels else ""
    for side, series in (("false", value.failure), ("true", value.success)):
        yield from _series_lines(name, f'success="{side}"', behind, series)


def _series_lines(name: str, side: str, behind: str, series: Series) -> Iterator[str]:
    for share, found in zip(QUANTILES, series.quantiles(), strict=True):
        yield f'{name}{{{side},quantile="{share}"{behind}}} {_number(round(found, 6))}'
    yield f"{name}_count{{{side}{behind}}} {series.count}"
    yield f"{name}_sum{{{side}{behind}}} {_number(round(series.total, 6))}"


def _braced(pairs: str) -> str:
    return f"{{{pairs}}}" if pairs else ""


def _pairs(labels: Labels) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return "NaN" if value != value else repr(value)  # noqa: PLR0124 -- what is not a number
