"""What the fields of the values of the cluster's own bookkeeping are."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from bkclient.admin.bookie_test import Sanity
from bkclient.admin.cookies import StoredCookie
from bkclient.repair.autorecovery import Mark, Pause, Status
from bkctl.bookies.figures import Figures
from bkctl.commands.autorecovery.work import Auditor, Delay, Switched, Triggered, told
from bkctl.commands.bookie.work import BookieDetails
from bkctl.commands.cluster.removal.removal import ClusterFormatted, ClusterRemoved
from bkctl.commands.cookie.work import CookieChanged, CookieText
from bkctl.output.emit import NEVER, WIDE, Field, Kind, View
from bkctl.output.units import counted, human_duration, rfc3339

_BOOKIE: Final = Field("bookie_id", "The bookie.", lambda v: v.bookie_id, header="BOOKIE")
_LEDGER: Final = Field(
    "ledger_id", "The ledger.", lambda v: v.ledger_id, Kind.LEDGER_ID, header="LEDGER"
)
_URI: Final = Field("uri", "The metadata service.", lambda v: v.uri)
_WAS: Final = Field("was", "What it was before.", lambda v: v.was)


def _age(time_ms: int | None) -> str:
    return "-" if time_ms is None else f"{human_duration(max(0, time.time() - time_ms / 1000))} ago"


# Autorecovery -----------------------------------------------------------------------------------


def _switched(v: Switched) -> str:
    word = "enabled" if v.enabled else "disabled"
    return f"autorecovery {word}" if v.changed else f"autorecovery was {word} before"


def _triggered(v: Triggered) -> str:
    if v.auditor is not None:
        return f"asked the auditor {v.auditor} to look for lost bookies now"
    return f"due again: {', '.join(v.checks)}; begins when an auditor next starts"


def _seconds(delay_s: int) -> str:
    return human_duration(delay_s) if delay_s else "no delay"


def _delay(v: Delay) -> str:
    now = f"delay {_seconds(v.delay_s)}" if v.delay_s else _seconds(v.delay_s)
    if not v.changed:
        return now
    if v.delay_s in {v.was_s, 0}:
        return f"{now}; the auditor looks for lost bookies now"
    return now if v.was_s is None else f"{now}, was {_seconds(v.was_s)}"


def _pause(pause: Pause | None) -> str:
    if pause is None:
        return "-"
    return told(pause, time.time()).lstrip(" ,") or "(nobody said)"


_CHECKED: Final = Field(
    "checked",
    "When each periodic check last ended.",
    lambda v: {
        check: None if time_ms is None else rfc3339(time_ms)
        for check, time_ms in v.checked_ms.items()
    },
    Kind.NESTED,
    cell=lambda v: "\n".join(
        f"{check}: {'never' if time_ms is None else _age(time_ms)}"
        for check, time_ms in v.checked_ms.items()
    ),
)

_STATUS: Final = (
    Field("enabled", "Whether it is switched on.", lambda v: v.enabled, Kind.FLAG),
    Field(
        "pause",
        "Since when it is off, until when, and why.",
        lambda v: None if v.pause is None else attrs.asdict(v.pause),
        Kind.NESTED,
        cell=lambda v: _pause(v.pause),
        optional=True,
    ),
    Field("auditor", "Who is the auditor.", lambda v: v.auditor),
    Field(
        "delay_s",
        "Seconds that one lost bookie may stay away.",
        lambda v: v.delay_s,
        Kind.COUNT,
        header="DELAY",
        cell=lambda v: "-" if v.delay_s is None else _seconds(v.delay_s),
    ),
    Field("marked", "Ledgers marked as lacking replicas.", lambda v: v.marked, Kind.COUNT),
    Field("being_mended", "Of these, with a worker.", lambda v: v.being_mended, Kind.COUNT),
    Field(
        "oldest",
        "When the oldest mark was made.",
        lambda v: v.oldest_ms,
        Kind.TIME_MS,
        cell=lambda v: _age(v.oldest_ms),
    ),
    _CHECKED,
)

_MARK: Final = (
    _LEDGER,
    Field(
        "missing",
        "Whose replicas it lacks.",
        lambda v: list(v.missing),
        Kind.NESTED,
        cell=lambda v: " ".join(v.missing) or "(placement)",
    ),
    Field(
        "since",
        "When it was marked.",
        lambda v: v.since_ms,
        Kind.TIME_MS,
        cell=lambda v: _age(v.since_ms),
    ),
    Field("worker", "The worker that repairs it now.", lambda v: v.worker, rank=1),
    Field(
        "locked_since",
        "Since when.",
        lambda v: v.locked_since_ms,
        Kind.TIME_MS,
        rank=WIDE,
        cell=lambda v: _age(v.locked_since_ms),
    ),
)


# Cookies ----------------------------------------------------------------------------------------


def _of_cookie(name: str, doc: str, **more: Any) -> Field:
    def get(value: Any) -> Any:
        found = None if value.cookie is None else getattr(value.cookie, name)
        return list(found) if isinstance(found, tuple) else found

    return Field(name, doc, get, **more)


_COOKIE_FIELDS: Final = (
    _of_cookie("journal_dirs", "Its journal directories, joined by commas."),
    _of_cookie("ledger_dirs", "Its ledger directories.", kind=Kind.NESTED, rank=1),
    _of_cookie("index_dirs", "Its index directories, if named.", kind=Kind.NESTED, rank=WIDE),
    _of_cookie("instance_id", "Its cluster.", rank=2),
    _of_cookie("layout_version", "Version of its form.", kind=Kind.COUNT, rank=WIDE),
)


def _changed(v: CookieChanged) -> str:
    return f"cookie of {v.bookie_id} {v.change}"


# Bookies ----------------------------------------------------------------------------------------


def _sanity(v: Sanity) -> str:
    return (
        f"bookie {v.bookie_id} is sane: {counted(v.entries, 'entry')} written in "
        f"{human_duration(v.write_s)}, read in {human_duration(v.read_s)}"
    )


def _endpoints(v: BookieDetails) -> str:
    return "\n".join(f"{one.protocol} {one.host}:{one.port}" for one in v.endpoints) or "-"


def _figure(name: str, doc: str, get: Callable[[Figures], Any], **more: Any) -> Field:
    def of(value: BookieDetails) -> Any:
        return None if value.figures is None else get(value.figures)

    return Field(name, doc, of, rank=NEVER, **more)


_DETAILS: Final = (
    _BOOKIE,
    Field("state", "writable, read-only or down.", lambda v: v.state, Kind.STATE),
    Field(
        "endpoints",
        "Where it listens.",
        lambda v: [attrs.asdict(one) for one in v.endpoints],
        Kind.NESTED,
        rank=WIDE,
        cell=_endpoints,
    ),
    Field("free", "Free bytes on its disks.", lambda v: v.free, Kind.BYTES),
    Field("total", "Bytes of its disks.", lambda v: v.total, Kind.BYTES),
    Field(
        "used",
        "Per cent of its disks in use.",
        lambda v: round(100 * (1 - v.free / v.total), 1) if v.total else None,
        Kind.NUMBER,
        cell=lambda v: f"{100 * (1 - v.free / v.total):.0f} %" if v.total else "-",
    ),
    Field("unreachable", "Why it does not answer.", lambda v: v.unreachable or None, rank=1),
    Field("ledgers", "Ledgers that list it.", lambda v: v.ledgers, Kind.COUNT, rank=3),
    Field("not_closed", "Of these, not closed.", lambda v: v.not_closed, Kind.COUNT, rank=3),
    *(attrs.evolve(field, rank=WIDE) for field in _COOKIE_FIELDS),
    Field(
        "properties",
        "What else it published.",
        lambda v: dict(v.properties),
        Kind.NESTED,
        rank=WIDE,
        cell=lambda v: "\n".join(f"{k}={t}" for k, t in v.properties.items()) or "-",
    ),
    Field("rack", "Its network location.", lambda v: v.rack, rank=WIDE),
    _figure("version", "What it runs, by its metrics.", lambda f: f.version),
    _figure(
        "uptime_s",
        "How long it has been up, by its metrics.",
        lambda f: None if f.started_s is None else max(0.0, time.time() - f.started_s),
        kind=Kind.SECONDS,
        header="UPTIME",
    ),
    _figure("adds", "Adds since its start.", lambda f: f.adds, kind=Kind.COUNT),
    _figure("reads", "Reads since its start.", lambda f: f.reads, kind=Kind.COUNT),
    _figure("failures", "Of both, those that failed.", lambda f: f.failures, kind=Kind.COUNT),
    _figure(
        "add_p99_ms", "99 of 100 adds took less, in ms.", lambda f: f.add_p99_ms, kind=Kind.NUMBER
    ),
    _figure(
        "read_p99_ms",
        "99 of 100 reads took less, in ms.",
        lambda f: f.read_p99_ms,
        kind=Kind.NUMBER,
    ),
    _figure(
        "journal_queue",
        "Entries that wait for the journal.",
        lambda f: f.journal_queue,
        kind=Kind.COUNT,
    ),
)


# Clusters ---------------------------------------------------------------------------------------


def _formatted(v: ClusterFormatted) -> str:
    if v.was is None:
        return f"made cluster {v.instance_id} at {v.uri}"
    return (
        f"cluster {v.was} is {v.instance_id} now, and empty ({counted(v.ledgers, 'ledger')} gone); "
        "its bookies start again after `bkctl bookieformat`"
        + (f"; to undo: bkctl cluster restore {shlex.quote(v.backup)}" if v.backup else "")
    )


def _removed(v: ClusterRemoved) -> str:
    if v.was is None:
        return f"there is no cluster at {v.uri}"
    return f"cluster {v.was} removed ({counted(v.ledgers, 'ledger')} gone)"


_LEDGERS_GONE: Final = Field("ledgers", "Ledgers that are gone.", lambda v: v.ledgers, Kind.COUNT)


ADMIN_VIEWS: Final[Mapping[type, View]] = {
    Status: View(
        "autorecoveries",
        _STATUS,
        "auditor",
        healthy=lambda v: v.enabled and v.auditor is not None and not v.marked,
        done=lambda v: not v.marked,
    ),
    Mark: View("marks", _MARK, "ledger_id", done=lambda _: False),
    Switched: View(
        "switches",
        (
            Field("enabled", "What it is now.", lambda v: v.enabled, Kind.FLAG),
            Field("changed", "Whether it was not so before.", lambda v: v.changed, Kind.FLAG),
        ),
        "enabled",
        sentence=_switched,
    ),
    Auditor: View("auditors", (_BOOKIE,), "bookie_id", bare=True),
    Triggered: View(
        "triggers",
        (
            Field("auditor", "Who was asked.", lambda v: v.auditor),
            Field("checks", "What is due again.", lambda v: list(v.checks), Kind.NESTED),
        ),
        "auditor",
        sentence=_triggered,
    ),
    Delay: View(
        "delays",
        (
            Field("delay_s", "Seconds.", lambda v: v.delay_s, Kind.COUNT),
            Field("was_s", "Seconds before.", lambda v: v.was_s, Kind.COUNT, optional=True),
        ),
        "delay_s",
        sentence=_delay,
    ),
    StoredCookie: View(
        "cookies",
        (
            _BOOKIE,
            *_COOKIE_FIELDS,
            Field("problem", "What is wrong with it.", lambda v: v.problem or None, rank=WIDE),
            Field(
                "version",
                "How often it was replaced.",
                lambda v: v.stored.version,
                Kind.COUNT,
                rank=WIDE,
            ),
        ),
        "bookie_id",
    ),
    CookieText: View(
        "cookies",
        (
            _BOOKIE,
            *_COOKIE_FIELDS,
            Field("version", "How often it was replaced.", lambda v: v.version, Kind.COUNT),
            Field("text_b64", "The cookie in base64.", lambda v: v.text, Kind.DATA, rank=NEVER),
        ),
        "bookie_id",
        sentence=lambda v: v.text.decode(errors="backslashreplace").removesuffix("\n"),
    ),
    CookieChanged: View(
        "cookies",
        (
            _BOOKIE,
            Field("change", "What became of it.", lambda v: v.change),
            Field("version", "Its version now.", lambda v: v.version, Kind.COUNT, optional=True),
        ),
        "bookie_id",
        sentence=_changed,
    ),
    BookieDetails: View("bookies", _DETAILS, "bookie_id", healthy=lambda v: v.state == "writable"),
    Sanity: View(
        "tests",
        (
            _BOOKIE,
            _LEDGER,
            Field("entries", "How many entries.", lambda v: v.entries, Kind.COUNT),
            Field("write_s", "Seconds to write them.", lambda v: v.write_s, Kind.SECONDS),
            Field("read_s", "Seconds to read them.", lambda v: v.read_s, Kind.SECONDS),
        ),
        "bookie_id",
        sentence=_sanity,
    ),
    ClusterFormatted: View(
        "clusters",
        (
            _URI,
            Field("instance_id", "Its id now.", lambda v: v.instance_id),
            _WAS,
            _LEDGERS_GONE,
            Field("backup", "File with the metadata from before.", lambda v: v.backup),
        ),
        "instance_id",
        sentence=_formatted,
    ),
    ClusterRemoved: View("clusters", (_URI, _WAS, _LEDGERS_GONE), "was", sentence=_removed),
}
