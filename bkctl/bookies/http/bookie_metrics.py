"""The metrics of a bookie, and the old MBeans that they replace."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from bkctl.bookies.http.admin_client import AdminClient
from bkctl.errors import CommandError, UsageError
from bkctl.output.forms.value_text import safe
from bkctl.output.views import Column, Kind, field, shown


def _labels(v: Any) -> str:
    return ",".join(f"{name}={value}" for name, value in v.labels.items()) or "-"


def _sample_fields(prefix: str = "") -> tuple[Column, ...]:
    def of(v: Any) -> MetricSample:
        found: MetricSample = v.sample if prefix else v
        return found

    return (
        Column("name", "The metric.", lambda v: of(v).name, header="METRIC"),
        Column(
            "labels",
            "Labels of the metric.",
            lambda v: dict(of(v).labels),
            Kind.NESTED,
            cell=lambda v: _labels(of(v)),
        ),
        Column("value", "Value of the metric.", lambda v: _value(of(v).value)),
    )


def _value(value: float) -> str:
    return repr(int(value)) if value == value // 1 else repr(value)


def _sample(v: MetricSample) -> str:
    """Return a sample as a line that begins with its value: names and labels may be long."""
    labels = f"{{{_labels(v)}}}" if v.labels else ""
    return f"{_value(v.value):>10}  {v.name}{safe(labels)}"


@shown("metrics", *_sample_fields(), kw_only=True, id="name", sentence=_sample)
class MetricSample:
    """One line of a bookie's metrics."""

    name: str
    labels: Mapping[str, str]
    value: float


_SAMPLE: Final = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)")

_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

_ESCAPED: Final = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}


def metrics(admin: AdminClient, pattern: str | None) -> Iterator[MetricSample]:
    """Yield the samples whose line matches a regular expression; all without a pattern.

    Raises:
        UsageError: the pattern is not a regular expression.
        CommandError: the bookie has no metrics.
    """
    try:
        wanted = re.compile(pattern or "")
    except re.error as error:
        raise UsageError(f"--grep: {error}") from error
    yield from (parse_sample(line) for line in _lines(admin) if wanted.search(line))


def _lines(admin: AdminClient) -> list[str]:
    """Return the lines of a bookie's metrics, without comments."""
    lines = admin.ask("GET", "/metrics").body.splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def parse_sample(line: str) -> MetricSample:
    """Return the sample of a line of /metrics; raise ``CommandError`` if it is malformed."""
    match = _SAMPLE.fullmatch(line)
    try:
        value = float("" if match is None else match[3])
    except ValueError as error:
        raise CommandError(f"not a metric: {line[:80]!r}") from error
    assert match is not None
    labels = {
        name: re.sub(r"\\.", lambda one: _ESCAPED.get(one[0], one[0]), text)
        for name, text in _LABEL.findall(match[2] or "")
    }
    return MetricSample(name=match[1], labels=labels, value=value)


JMX_NAMES: Final[Mapping[str, str]] = {
    "BookieServer NumPacketsReceived": r"^bookied_packets_received_total|_REQUEST_count",
    "BookieServer NumPacketsSent": r"^bookied_packets_sent_total|_CHANNEL_WRITE_count",
    "BookieServer AddStats": r"^bookkeeper_server_ADD_ENTRY[{_](?!REQ|BLO|IN_|REJ)",
    "BookieServer ReadStats": r"^bookkeeper_server_READ_ENTRY(\{|_count|_sum)",
    "Bookie QueueLength": r"^bookie_journal_JOURNAL_QUEUE_SIZE",
    "LedgerCache PageCount": r"^bookie_NUM_INDEX_PAGES",
    "LedgerCache NumOpenLedgers": r"^bookie_(READ|WRITE)_FILE_INFO_CACHE_SIZE",
}
"""The attributes of BookKeeper 4.4's MBeans, and the metrics that replace them."""


@shown("attributes", *_sample_fields("sample"), kw_only=True)
class JmxSample:
    """A line of metrics under the name of the MBean's attribute that it replaces."""

    attribute: str = field("MBean and attribute.")
    sample: MetricSample


def jmx(admin: AdminClient) -> Iterator[JmxSample]:
    """Yield the metrics that replace the MBeans."""
    lines = _lines(admin)
    for attribute, pattern in JMX_NAMES.items():
        for line in lines:
            if re.search(pattern, line):
                yield JmxSample(attribute=attribute, sample=parse_sample(line))
