"""The format of the daemon's log: text in the order of Java's lines, or one JSON object a line.

A text line has the ISO time with comma and milliseconds, the level, thread and logger in brackets,
the message, and in braces the attributes that the message does not contain. Attribute names are
written as in Java (``ledger_id`` as ``ledgerId``). The platform rotates the file; the bookie
reopens it on request.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final, TextIO

import attrs
from twisted.logger import (
    FilteringLogObserver,
    ILogObserver,
    LogEvent,
    LogLevel,
    LogLevelFilterPredicate,
    formatEvent,
    globalLogBeginner,
)
from twisted.python.failure import Failure
from zope.interface import implementer

REPEATS_MAX: Final = 20
"""Events of one kind that are written within ``REPEAT_S``; further events are only counted."""

REPEAT_S: Final = 10.0

TEXT_CHARS_MAX: Final = 8192
"""Characters of a message or attribute; a longer text, perhaps from a peer, is cut."""

TRACEBACK_CHARS_MAX: Final = 65536
"""Characters of a traceback; of a longer traceback only the end is written, with the error."""

_OURS: Final = ("bookied", "bkclient", "wire")
_LEVEL_NAMES: Final = {"critical": "FATAL"}
_NOT_ATTRIBUTES: Final = frozenset({"isError", "failure", "why", "format", "message", "time"})


def text_line(event: LogEvent) -> str:
    """Return ``event`` as a line of text; the lines of a traceback follow."""
    when = datetime.fromtimestamp(event["log_time"]).astimezone()
    stamp = f"{when:%Y-%m-%dT%H:%M:%S},{when.microsecond // 1000:03d}"
    in_message = set(re.findall(r"\{(\w+)", str(event.get("log_format"))))
    rest = {key: value for key, value in event.items() if key not in in_message}
    pairs = (f"{key}={value}" for key, value in _attributes(rest).items())
    attributes = _on_one_line(_cut(", ".join(pairs)))
    line = f"{stamp} - {_level(event):<5} [{_thread()}:{_logger(event)}] - {_message(event)}"
    line = f"{line} {{{attributes}}}" if attributes else line
    trace = _traceback(event)
    return f"{line}\n{trace.rstrip()}\n" if trace else f"{line}\n"


def json_line(event: LogEvent) -> str:
    """Return ``event`` as one JSON object; times are UTC, attributes are flat."""
    when = datetime.fromtimestamp(event["log_time"], tz=timezone.utc)
    fields: dict[str, Any] = {
        "ts": when.isoformat(timespec="milliseconds"),
        "level": _level(event),
        "thread": _thread(),
        "logger": _logger(event),
        "msg": _message(event),
    }
    for key, value in _attributes(event).items():
        is_number = isinstance(value, (bool, int, float))
        fields.setdefault(key, value if is_number else _cut(str(value)))
    trace = _traceback(event)
    if trace:
        fields["trace"] = trace
    return _printable(json.dumps(fields, ensure_ascii=False), _json_escape) + "\n"


@implementer(ILogObserver)
class LineObserver:
    """An observer that writes each event as one line; callable from any thread."""

    def __init__(self, out: TextIO, line: Callable[[LogEvent], str]) -> None:
        self._out, self._line = out, line
        self._lock = threading.Lock()

    def __call__(self, event: LogEvent) -> None:
        line = self._line(event)
        with self._lock:
            self._out.write(line)
            self._out.flush()

    def write_to(self, out: TextIO) -> TextIO:
        """Write to ``out`` from now on; return the previous stream."""
        with self._lock:
            before, self._out = self._out, out
        return before


@attrs.define
class _Repeats:
    began_s: float
    count: int = 0


@implementer(ILogObserver)
class RepeatLimiter:
    """A filter that passes ``REPEATS_MAX`` events of one kind in ``REPEAT_S`` and counts the rest.

    A kind is a logger and an unformatted message, so there are as many kinds as the program has.
    The next event of the kind that passes has the count as the attribute ``suppressed``.
    """

    def __init__(self, observer: ILogObserver) -> None:
        self._observer = observer
        self._seen: dict[tuple[str, str], _Repeats] = {}

    def __call__(self, event: LogEvent) -> None:
        kind = (str(event.get("log_namespace")), str(event.get("log_format")))
        now_s: float = event["log_time"]
        seen = self._seen.setdefault(kind, _Repeats(now_s))
        if not 0 <= now_s - seen.began_s < REPEAT_S:  # The clock may have been set back.
            if seen.count > REPEATS_MAX:
                event = {**event, "suppressed": seen.count - REPEATS_MAX}
            seen.began_s, seen.count = now_s, 0
        seen.count += 1
        if seen.count <= REPEATS_MAX:
            self._observer(event)


class Logging:
    """The log of the process: its stream or file, format and lowest level."""

    def __init__(
        self, *, level: str = "info", form: str = "text", file: Path | None = None
    ) -> None:
        """Prepare a log to stderr or to ``file``.

        Raises:
            OSError: ``file`` cannot be opened.
        """
        self._file = file
        self.is_stderr = file is None
        self.is_plain_stderr = file is None and form == "text"
        out = sys.stderr if file is None else _open(file)
        self._observer = LineObserver(out, json_line if form == "json" else text_line)
        self._predicate = LogLevelFilterPredicate(defaultLogLevel=LogLevel.warn)
        self.set_level(level)

    def begin(self) -> None:
        """Write all log events of the process from now on."""
        limiter = RepeatLimiter(self._observer)
        filtering = FilteringLogObserver(limiter, [self._predicate])
        globalLogBeginner.beginLoggingTo([filtering], redirectStandardIO=False)

    def set_level(self, level: str) -> None:
        """Write events of this program from ``level`` on, and warnings of the libraries."""
        for namespace in _OURS:
            self._predicate.setLogLevelForNamespace(namespace, LogLevel.levelWithName(level))

    def reopen(self) -> None:
        """Open the log file again, after another program has moved it.

        Raises:
            OSError: the file cannot be opened; the log continues in the old file.
        """
        if self._file is not None:
            self._observer.write_to(_open(self._file)).close()


def _open(path: Path) -> TextIO:
    return path.open("a", encoding="utf-8", errors="backslashreplace")


def _level(event: LogEvent) -> str:
    level = event.get("log_level")
    name = "info" if level is None else str(level.name)
    return _LEVEL_NAMES.get(name, name.upper())


def _thread() -> str:
    return threading.current_thread().name


def _logger(event: LogEvent) -> str:
    return str(event.get("log_namespace") or "-")


def _message(event: LogEvent) -> str:
    return _on_one_line(_cut(formatEvent(event)))


def _cut(text: str) -> str:
    if len(text) <= TEXT_CHARS_MAX:
        return text
    return f"{text[:TEXT_CHARS_MAX]}... ({len(text)} characters)"


def _on_one_line(text: str) -> str:
    """Return ``text`` with line breaks and terminal control characters as escapes."""
    return _printable(text, lambda one: repr(one)[1:-1])


def _printable(text: str, escape: Callable[[str], str]) -> str:
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else escape(one) for one in text)


def _json_escape(char: str) -> str:
    return json.dumps(char)[1:-1]


def _attributes(event: LogEvent) -> dict[str, Any]:
    return {
        re.sub("_([a-z0-9])", lambda match: match.group(1).upper(), key): value
        for key, value in event.items()
        if not key.startswith(("log_", "_")) and key not in _NOT_ATTRIBUTES
    }


def _traceback(event: LogEvent) -> str:
    failure = event.get("log_failure")
    if not isinstance(failure, Failure):
        return ""
    lines = failure.getTraceback()[-TRACEBACK_CHARS_MAX:].split("\n")
    return "\n".join(map(_on_one_line, lines))
