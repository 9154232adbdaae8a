"""The thread for the steps of a store on a file."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorFromThreads
from twisted.python.failure import Failure

from bkclient.metadata.sqlite.session import StepOutcome

T = TypeVar("T")


class OneThread:
    """A thread that runs functions one after the other; results are delivered on the reactor.

    ``noticed`` is called with each outcome before the caller gets it, even if the caller has
    cancelled.
    """

    def __init__(
        self, reactor: IReactorFromThreads, noticed: Callable[[StepOutcome[Any]], None]
    ) -> None:
        self._reactor, self._noticed = reactor, noticed
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Deferred[Any]] | None]
        self._calls = queue.SimpleQueue()
        self._answers: list[tuple[Deferred[Any], Any]] = []
        self._lock = threading.Lock()
        # A daemon, so that a store that was not closed does not keep the process alive.
        self._thread = threading.Thread(target=self._work, name="metadata-sqlite", daemon=True)
        self._thread.start()

    def run(self, function: Callable[[], T]) -> Deferred[T]:
        """Run ``function`` after all earlier functions."""
        answer: Deferred[T] = Deferred()
        self._calls.put((function, answer))
        return answer

    def stop(self) -> None:
        """End the thread after all earlier functions."""
        self._calls.put(None)

    def _work(self) -> None:
        while True:
            call = self._calls.get()
            if call is None:
                return
            function, answer = call
            try:
                self._answer(answer, function())
            except BaseException:  # noqa: BLE001 - raised where it is awaited.
                self._answer(answer, Failure())

    def _answer(self, answer: Deferred[Any], value: object) -> None:
        with self._lock:
            self._answers.append((answer, value))
            if len(self._answers) > 1:
                return
        self._reactor.callFromThread(self._deliver_all)

    def _deliver_all(self) -> None:
        with self._lock:
            answers, self._answers = self._answers, []
        for answer, value in answers:
            self._deliver(answer, value)

    def _deliver(self, answer: Deferred[Any], value: object) -> None:
        if isinstance(value, StepOutcome):
            self._noticed(value)
        if not answer.called:
            answer.callback(value)
