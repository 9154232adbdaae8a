"""The log on stderr: the client's log events, and with ``-vv`` each request."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, TextIO

from twisted.logger import (
    FilteringLogObserver,
    ILogObserver,
    LogEvent,
    LogLevel,
    LogLevelFilterPredicate,
    formatEvent,
    globalLogBeginner,
)
from zope.interface import implementer

from bkctl.output.forms.value_text import safe
from wire.errors import BookKeeperError

if TYPE_CHECKING:
    from bkclient.blocking import BlockingClient


_OURS = ("bkclient", "bookied", "wire")
_begun: list[LogLevelFilterPredicate] = []


@implementer(ILogObserver)
class LogLines:
    """An observer that writes each event as a line to the current ``stderr``."""

    def __init__(self, stderr: Callable[[], TextIO]) -> None:
        self._stderr = stderr

    def __call__(self, event: LogEvent) -> None:
        level = event.get("log_level")
        name = "info" if level is None else level.name
        text = safe(" ".join(formatEvent(event).split()))
        stderr = self._stderr()
        if not stderr.closed:
            print(f"bkctl: {name}: {text}", file=stderr, flush=True)


def start_logging(level: str, stderr: Callable[[], TextIO]) -> None:
    """Log events of our packages from ``level`` on, and errors of the libraries.

    ``stderr`` is called at each event: a shell replaces the stream while it prompts. Twisted
    accepts observers once in a process, so a later call only sets the level.
    """
    if not _begun:
        predicate = LogLevelFilterPredicate(defaultLogLevel=LogLevel.error)
        _begun.append(predicate)
        observer = FilteringLogObserver(LogLines(stderr), [predicate])
        globalLogBeginner.beginLoggingTo([observer], redirectStandardIO=False)
    for namespace in _OURS:
        _begun[0].setLogLevelForNamespace(namespace, LogLevel.levelWithName(level))


class TracedStore:
    """A metadata store that reports its requests, and otherwise acts as the wrapped store.

    Only ids and words of the arguments are reported: stored values may contain passwords. Without a
    trace, ``report`` is None.
    """

    def __init__(self, store: Any) -> None:
        self._store = store
        self.report: Callable[[str], object] | None = None

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if self.report is None or not callable(found):
            return found

        def traced(*args: Any, **kwargs: Any) -> Any:
            result = found(*args, **kwargs)
            call = f"metadata: {name}({', '.join(map(_word, args))})"
            if hasattr(result, "__aiter__"):
                return self._walked(call, result)
            return self._awaited(call, result) if hasattr(result, "__await__") else result

        return traced

    async def _awaited(self, call: str, result: Awaitable[Any]) -> Any:
        began_s = time.monotonic()
        ended = ""
        try:
            return await result
        except BookKeeperError as error:
            ended = f": {type(error).__name__}"
            raise
        finally:
            self._write(f"{call} {_ms(began_s)}{ended}")

    async def _walked(self, call: str, result: AsyncIterator[Any]) -> AsyncIterator[Any]:
        began_s, count = time.monotonic(), 0
        try:
            async for value in result:
                count += 1
                yield value
        finally:
            self._write(f"{call} {_ms(began_s)}: {count} answers")

    def _write(self, text: str) -> None:
        if self.report is not None:
            self.report(text)


def trace(
    client: BlockingClient, report: Callable[[str], object] | None, *, each: bool = False
) -> None:
    """Report all requests of a connection from now on; with None, stop.

    With ``each`` every entry of a batch has its own line.
    """
    store: Any = client.client.store
    if not isinstance(store, TracedStore):
        store = TracedStore(store)
        client.client.store = store
    store.report = report
    if report is None:
        client.client.trace_requests(None)
        return
    from bkclient.connection.request_trace import RequestTrace

    client.client.trace_requests(RequestTrace(report, each=each))


def _word(value: Any) -> str:
    return str(value) if isinstance(value, (int, str)) else type(value).__name__


def _ms(began_s: float) -> str:
    return f"{(time.monotonic() - began_s) * 1000:.1f} ms"
