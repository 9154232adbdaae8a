"""The Grafana dashboard and the Prometheus alert rules, made from tables.

``python -m bkctl.manual.generate`` writes them to ``monitoring/``. A test compares every metric and
label with the metrics page of a running bookie.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import attrs

SELECTION: Final = 'job=~"$job",instance=~"$instance"'
"""The selection of bookies on a dashboard."""


@attrs.frozen
class Panel:
    """One graph: its title, Grafana's unit, and its curves as legend and expression."""

    title: str
    unit: str
    lines: tuple[tuple[str, str], ...]


@attrs.frozen
class Alert:
    """One alert rule: its expression, its duration, its severity, and the advice."""

    name: str
    expression: str
    minutes: int
    severity: str
    summary: str
    what_to_do: str


def _rate(metric: str, *labels: str) -> str:
    chosen = ",".join((SELECTION, *labels))
    return f"sum by (instance) (rate({metric}{{{chosen}}}[$__rate_interval]))"


def _rate_by(metric: str, label: str) -> str:
    return f"sum by (instance, {label}) (rate({metric}{{{SELECTION}}}[$__rate_interval]))"


def _latency(metric: str, quantile: str) -> str:
    return f'max by (instance) ({metric}{{{SELECTION},success="true",quantile="{quantile}"}})'


def _gauge(metric: str, *by: str) -> str:
    return f"max by ({', '.join(('instance', *by))}) ({metric}{{{SELECTION}}})"


ADD: Final = "bookkeeper_server_ADD_ENTRY"
READ: Final = "bookkeeper_server_READ_ENTRY"

ROWS: Final = {
    "Clients": (
        Panel("State (1 writable, 0 read-only, -1 not registered)", "none",
              (("{{instance}}", _gauge("bookie_SERVER_STATUS")),)),
        Panel("Requests", "reqps", (
            ("adds {{instance}}", _rate(f"{ADD}_count", 'success="true"')),
            ("reads {{instance}}", _rate(f"{READ}_count", 'success="true"')),
        )),
        Panel("Failed requests", "reqps", (
            ("adds {{instance}}", _rate(f"{ADD}_count", 'success="false"')),
            ("reads {{instance}}", _rate(f"{READ}_count", 'success="false"')),
        )),
        Panel("Latency of adds", "ms", (
            ("p50 {{instance}}", _latency(ADD, "0.5")),
            ("p99 {{instance}}", _latency(ADD, "0.99")),
        )),
        Panel("Latency of reads", "ms", (
            ("p50 {{instance}}", _latency(READ, "0.5")),
            ("p99 {{instance}}", _latency(READ, "0.99")),
        )),
        Panel("Bytes", "Bps", (
            ("written {{instance}}", _rate("bookie_WRITE_BYTES")),
            ("read {{instance}}", _rate("bookie_READ_BYTES")),
        )),
        Panel("Connections", "none", (("{{instance}}", _gauge("bookied_connections")),)),
        Panel("Limits that held", "cps", (
            ("{{limit}} {{instance}}", _rate_by("bookied_limit_hits_total", "limit")),
        )),
        Panel("Logins refused", "cps", (
            ("{{instance}}", _rate("bookied_auth_failures_total")),
            ("without a login {{instance}}", _rate("bookied_unauthenticated_requests_total")),
            ("TLS {{instance}}", _rate("bookied_tls_failures_total")),
        )),
    ),
    "Storage": (
        Panel("Sync of the journal, p99", "ms",
              (("{{instance}}", _latency("bookie_journal_JOURNAL_SYNC", "0.99")),)),
        Panel("Adds that wait for the journal", "none",
              (("{{instance}}", _gauge("bookie_journal_JOURNAL_QUEUE_SIZE")),)),
        Panel("Disks in use", "percent",
              (("{{dir}} {{instance}}", _gauge("bookied_dir_usage_percent", "dir")),)),
        Panel("Entries that a check found damaged", "none",
              (("{{instance}}", _gauge("bookied_scrub_errors_total")),)),
    ),
    "Process": (
        Panel("Memory", "bytes", (
            ("resident {{instance}}", _gauge("process_resident_memory_bytes")),
            ("{{owner}} {{instance}}", _gauge("bookied_memory_bytes", "owner")),
        )),
        Panel("CPU", "percentunit", (("{{instance}}", _rate("process_cpu_seconds_total")),)),
        Panel("Lag of the event loop, p99", "ms", (
            ("{{instance}}",
             f'max by (instance) (bookied_event_loop_lag_ms{{{SELECTION},quantile="0.99"}})'),
        )),
        Panel("Open files", "none", (("{{instance}}", _gauge("process_open_fds")),)),
    ),
}  # fmt: skip
"""Grafana's rows by their titles."""

ALERTS: Final = (
    Alert("BookieDown", "up == 0", 2, "critical", "{{ $labels.instance }} does not answer",
          "bkctl doctor; journalctl -u bookied"),
    Alert("BookieNotRegistered", "bookie_SERVER_STATUS == -1", 5, "critical",
          "{{ $labels.instance }} runs and is not registered",
          "Is the metadata service reached? bkctl doctor"),
    Alert("BookieReadOnly", "bookie_SERVER_STATUS == 0", 10, "warning",
          "{{ $labels.instance }} is read-only", "bkctl bookie state; are its disks full?"),
    Alert("BookieDiskFull", "bookied_dir_usage_percent > 90", 5, "warning",
          "{{ $labels.dir }} of {{ $labels.instance }} is {{ $value }} % full",
          "Delete ledgers, add disks (bkctl disk expand) or bookies"),
    Alert("BookieAddsFail",
          f'rate({ADD}_count{{success="false"}}[5m]) > ignoring(success) '
          f'0.1 * rate({ADD}_count{{success="true"}}[5m])', 5, "critical",
          "More than a tenth of the adds of {{ $labels.instance }} fail",
          "The log says why: journalctl -u bookied"),
    Alert("BookieJournalSlow",
          'bookie_journal_JOURNAL_SYNC{success="true",quantile="0.99"} > 100', 10, "warning",
          "A sync of the journal of {{ $labels.instance }} takes {{ $value }} ms",
          "bkctl bench journal on its disk; does something else use it?"),
    Alert("BookieEventLoopSlow", 'bookied_event_loop_lag_ms{quantile="0.99"} > 1000', 5, "warning",
          "The event loop of {{ $labels.instance }} lags {{ $value }} ms",
          "Too little CPU, or a bug: SIGQUIT writes the stacks to the log"),
    Alert("BookieEntriesDamaged", "increase(bookied_scrub_errors_total[1h]) > 0", 0, "critical",
          "{{ $labels.instance }} has found damaged entries", "bkctl disk check --deep"),
    Alert("BookieLoginsRefused", "rate(bookied_auth_failures_total[5m]) > 1", 5, "warning",
          "{{ $labels.instance }} refuses logins: guessed or outdated passwords",
          "The log names the address and the user"),
    Alert("BookieLimitHeld", "rate(bookied_limit_hits_total[5m]) > 0", 15,
          "warning", "The limit {{ $labels.limit }} of {{ $labels.instance }} holds",
          "docs/operations.md says what each limit is for"),
)  # fmt: skip


def grafana() -> str:
    """Return the dashboard in Grafana's import format."""
    panels = list(_panels())
    found = {
        "title": "BookKeeper: bookied",
        "uid": "bookied",
        "tags": ["bookkeeper"],
        "schemaVersion": 39,
        "timezone": "browser",
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_source(), _variable("job"), _variable("instance")]},
        "panels": panels,
    }
    return json.dumps(found, indent=2) + "\n"


def _source() -> dict[str, Any]:
    return {"name": "source", "label": "source", "type": "datasource", "query": "prometheus"}


def _variable(label: str) -> dict[str, Any]:
    return {
        "name": label, "label": label, "type": "query", "includeAll": True, "multi": True,
        "datasource": {"type": "prometheus", "uid": "$source"},
        "query": f"label_values(bookied_info, {label})", "refresh": 2, "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }  # fmt: skip


def _panels() -> Iterator[dict[str, Any]]:
    at, number = 0, 0
    for title, panels in ROWS.items():
        number += 1
        place = {"x": 0, "y": at, "w": 24, "h": 1}
        yield {"id": number, "type": "row", "title": title, "gridPos": place, "panels": []}
        at += 1
        for index, panel in enumerate(panels):
            number += 1
            x, y = 8 * (index % 3), at + 8 * (index // 3)
            yield _graph(number, panel, {"x": x, "y": y, "w": 8, "h": 8})
        at += 8 * -(-len(panels) // 3)


def _graph(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "$source"}
    targets = [
        {"refId": chr(ord("A") + index), "expr": text, "legendFormat": legend, "datasource": source}
        for index, (legend, text) in enumerate(panel.lines)
    ]
    return {
        "id": number, "type": "timeseries", "title": panel.title, "gridPos": place,
        "datasource": source, "targets": targets,
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
    }  # fmt: skip


def alert_rules() -> str:
    """Return the rules in the format of ``rule_files`` of Prometheus."""
    lines = ["groups:", "  - name: bookied", "    rules:"]
    for one in ALERTS:
        lines += [
            f"      - alert: {one.name}",
            f"        expr: {_quoted(one.expression)}",
            f"        for: {one.minutes}m",
            "        labels:",
            f"          severity: {one.severity}",
            "        annotations:",
            f"          summary: {_quoted(one.summary)}",
            f"          description: {_quoted(one.what_to_do)}",
        ]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """Return a text in YAML's double quotes, whose escapes are those of JSON."""
    return json.dumps(text, ensure_ascii=False)
