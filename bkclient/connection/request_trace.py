"""A trace of requests to bookies, one line for each; it costs nothing while it is off."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import attrs
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from bkclient.connection.add_stream import AddStream
from bkclient.connection.requests import OPERATIONS, BulkAnswer
from bkclient.errors import ClientError
from wire.codes import ReturnCode
from wire.frames.bulk_adds import Key
from wire.ids import BookieId
from wire.messages import BatchReadRequest, BatchReadResponse, Request, Response

log = Logger()

NO_ANSWER = "no answer"


@attrs.frozen
class RequestTrace:
    """A trace that gets each request after its answer or failure.

    Plain adds and bulk reads that are sent together have one line; with ``each`` every entry has
    one. Passwords and payloads are not traced.
    """

    write_line: Callable[[str], object]
    each: bool = False

    def request(
        self, bookie: BookieId, clock: IReactorTime, request: Request, deferred: Any
    ) -> None:
        """Trace one request when its Deferred fires; the result is passed on."""
        deferred.addBoth(
            self._answered, partial(self.line, bookie, clock, clock.seconds()), request
        )

    def _answered(self, result: Any, line: Callable[..., None], request: Request) -> Any:
        line(_call(request), _ended(result))
        return result

    def bulk(
        self, bookie: BookieId, clock: IReactorTime, ledger_id: int, entries: Sequence[int],
        deferred: Any,
    ) -> None:  # fmt: skip
        """Trace a bulk read when its Deferred fires."""
        line = partial(self.line, bookie, clock, clock.seconds())
        deferred.addCallback(self._bulk_answered, line, ledger_id, entries)

    def _bulk_answered(
        self,
        answers: Mapping[int, BulkAnswer],
        line: Callable[..., None],
        ledger_id: int,
        entries: Sequence[int],
    ) -> Mapping[int, BulkAnswer]:
        self.many(line, "read_entry", ledger_id, {one: _code(answers.get(one)) for one in entries})
        return answers

    def stream(self, *args: Any) -> AddStream:
        """Return a stream that traces its batches."""
        return TracedStream(self, *args)

    def many(
        self, line: Callable[..., None], name: str, ledger_id: int, codes: Mapping[int, str]
    ) -> None:
        """Trace entries that were sent together, by their answers."""
        if self.each or len(codes) == 1:
            for entry, code in codes.items():
                line(f"{name}({ledger_id}, {entry})", code)
        elif codes:
            line(f"{name}({ledger_id}, {_range(codes)})", _counted(codes.values()))

    def line(
        self, bookie: BookieId, clock: IReactorTime, began_s: float, call: str, ended: str
    ) -> None:
        """Write the line of one request; errors of the trace are ignored."""
        text = f"bookie {bookie}: {call} {(clock.seconds() - began_s) * 1000:.1f} ms: {ended}"
        try:
            self.write_line(text)
        except Exception:  # noqa: BLE001 - or acks would be lost if the lines are not read.
            log.failure("telling of a request")


class TracedStream(AddStream):
    """A stream of adds that traces each batch when all of it is answered."""

    def __init__(self, trace: RequestTrace, *args: Any) -> None:
        super().__init__(*args)
        self._trace = trace
        self._batches: dict[int, _TracedBatch] = {}
        """The batch of each unanswered entry."""
        self._report_acked, self.acked = self.acked, self._heard_acked
        self._report_failed, self.failed = self.failed, self._heard_failed

    def send(self, frames: bytes, keys: Sequence[Key], entries: Sequence[int]) -> None:
        """See ``AddStream``."""
        batch = _TracedBatch(self._clock.seconds(), len(entries))
        self._batches.update(dict.fromkeys(entries, batch))
        super().send(frames, keys, entries)

    def _heard_acked(self, entries: list[int]) -> None:
        self._heard(entries, ReturnCode.EOK.name)
        self._report_acked(entries)

    def _heard_failed(self, entries: list[int], error: ClientError) -> None:
        self._heard(entries, type(error).__name__)
        self._report_failed(entries, error)

    def _heard(self, entries: Iterable[int], code: str) -> None:
        trace, bookie = self._trace, self.channel.bookie_id
        for entry in entries:
            batch = self._batches.pop(entry, None)
            if batch is None:
                continue
            batch.codes[entry] = code
            if len(batch.codes) == batch.size:
                line = partial(trace.line, bookie, self._clock, batch.began_s)
                trace.many(line, "add_entry", self.ledger_id, batch.codes)


@attrs.define
class _TracedBatch:
    """Adds that were sent together, and their answers so far."""

    began_s: float
    size: int
    codes: dict[int, str] = attrs.field(factory=dict)


def _call(request: Request) -> str:
    """Return a request as its operation and the fields that identify it."""
    words = [
        str(getattr(request, name)) for name in ("ledger_id", "entry_id") if hasattr(request, name)
    ]
    if isinstance(request, BatchReadRequest):
        words.append(f"at most {request.max_count or 'all'}")
    flags = getattr(request, "flags", None)
    if flags:
        words.append("|".join(str(one.name) for one in type(flags) if one & flags))
    return f"{OPERATIONS[type(request)].name.lower()}({', '.join(words)})"


def _ended(result: Response | Failure) -> str:
    if isinstance(result, Failure):
        return result.type.__name__ if result.type else NO_ANSWER
    if isinstance(result, BatchReadResponse):
        return f"{result.rc.name}, {len(result.entries)} entries"
    return result.rc.name


def _code(answer: BulkAnswer | None) -> str:
    if answer is None:
        return NO_ANSWER
    return ReturnCode.EOK.name if isinstance(answer, bytes) else answer.rc.name


def _range(entries: Iterable[int]) -> str:
    """Return the entries of a batch in few words: those of a striped ledger have gaps."""
    some = sorted(entries)
    whole = some[-1] - some[0] + 1 == len(some)
    return f"{some[0]}-{some[-1]}" if whole else f"{len(some)} of {some[0]}-{some[-1]}"


def _counted(codes: Iterable[str]) -> str:
    counts = Counter(codes)
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{count} {code}" for code, count in counts.most_common())
