"""Values loaded from the program in the background: completions, and the state of the place.

An answer is valid for a short time. Each wait can be interrupted: each question has a daemon thread
of its own, only a few run at a time, and the same question is asked once.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final, Generic, TypeVar

import attrs

from shell.program import Candidate, PlaceStatus, Program

T = TypeVar("T")

FRESH_S: Final = 5.0
"""Seconds for which an answer is valid."""

QUESTIONS_MAX: Final = 4
"""Questions in progress; one more is not asked."""

ANSWERS_MAX: Final = 200
"""Answers that are kept; the oldest is removed first."""


@attrs.frozen
class LiveAnswer(Generic[T]):
    """The last answer, None if there is none, and its time; ``error`` is a later failure."""

    value: T | None
    value_s: float
    asked_s: float
    error: Exception | None = None


def _thread(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="shell-live", daemon=True).start()


class LiveQuestions:
    """Questions in progress and the answers to earlier ones.

    ``start`` starts work in a thread, ``clock`` returns seconds; ``heard`` is called in that thread
    after each answer.
    """

    def __init__(
        self,
        *,
        start: Callable[[Callable[[], None]], None] = _thread,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._start, self._clock = start, clock
        self._lock = threading.Lock()
        self._answers: dict[Any, LiveAnswer[Any]] = {}
        self._asked: dict[Any, Future[LiveAnswer[Any]]] = {}
        self.heard: Callable[[], None] | None = None

    def known(self, key: Any) -> LiveAnswer[Any] | None:
        """Return the last answer, whatever its age."""
        return self._answers.get(key)

    def age_s(self, answer: LiveAnswer[Any]) -> float:
        """Return the age of an answer."""
        return self._clock() - answer.value_s

    def is_fresh(self, answer: LiveAnswer[Any] | None) -> bool:
        """Return whether the question need not be asked again, also if it has just failed."""
        return answer is not None and self._clock() - answer.asked_s < FRESH_S

    def ask(self, key: Any, question: Callable[[], Any]) -> Future[LiveAnswer[Any]] | None:
        """Ask in the background; return None if too many questions are in progress."""
        with self._lock:
            if key in self._asked:
                return self._asked[key]
            if len(self._asked) >= QUESTIONS_MAX:
                return None
            answered: Future[LiveAnswer[Any]] = Future()
            self._asked[key] = answered
        self._start(lambda: self._work(key, question, answered))
        return answered

    def doubt(self) -> None:
        """Treat all answers as old: a command may have changed the values."""
        with self._lock:
            for key, answer in self._answers.items():
                self._answers[key] = attrs.evolve(answer, asked_s=-math.inf)

    def _work(
        self, key: Any, question: Callable[[], Any], answered: Future[LiveAnswer[Any]]
    ) -> None:
        answer = self._answer(question, self._answers.get(key))
        with self._lock:
            self._asked.pop(key, None)
            self._answers.pop(key, None)
            self._answers[key] = answer
            while len(self._answers) > ANSWERS_MAX:
                self._answers.pop(next(iter(self._answers)))
        answered.set_result(answer)
        if self.heard is not None:
            self.heard()

    def _answer(
        self, question: Callable[[], Any], before: LiveAnswer[Any] | None
    ) -> LiveAnswer[Any]:
        try:
            value = question()
        except Exception as error:  # noqa: BLE001 -- whatever a program may raise
            now_s = self._clock()
            if before is None:
                return LiveAnswer(None, now_s, now_s, error)
            return attrs.evolve(before, asked_s=now_s, error=error)
        now_s = self._clock()
        return LiveAnswer(value, now_s, now_s)


@attrs.frozen
class LiveState:
    """The state shown in the prompt and the bar."""

    label: str = ""
    text: str = ""
    problem: str = ""
    age_s: float = 0.0


class Live:
    """The present values and state of a program."""

    def __init__(self, program: Program, questions: LiveQuestions | None = None) -> None:
        self._program = program
        self.questions = questions or LiveQuestions()

    def candidates(
        self, kind: str, prefix: str, given: Sequence[str]
    ) -> tuple[list[Candidate], Future[LiveAnswer[Any]] | None]:
        """Return the known values that begin with ``prefix``, and the question in progress.

        At first all values are requested; if they are too many, only those of one prefix.
        """
        words = tuple(given)
        everything = (kind, "", words)
        answer = self.questions.known(everything)
        if answer is not None and answer.value is not None and not answer.value[1] and prefix:
            key = (kind, prefix, words)
            narrow = self.questions.known(key)
            answer = answer if narrow is None or narrow.value is None else narrow
        else:
            key = everything
        asked = None
        if not self.questions.is_fresh(self.questions.known(key)):
            wanted = key[1]
            asked = self.questions.ask(key, lambda: self._program.candidates(kind, wanted, words))
        found = [] if answer is None or answer.value is None else answer.value[0]
        return [one for one in found if one[0].startswith(prefix)], asked

    def state(self, given: Sequence[str]) -> LiveState:
        """Return the last known state; request the present one."""
        words = tuple(given)
        key = (None, "", words)
        answer: LiveAnswer[PlaceStatus] | None = self.questions.known(key)
        if not self.questions.is_fresh(answer):
            self.questions.ask(key, lambda: self._program.status(words))
        if answer is None:
            return LiveState()
        age_s = self.questions.age_s(answer)
        problem = "" if answer.error is None else str(answer.error) or type(answer.error).__name__
        if answer.value is None:
            return LiveState(problem=problem, age_s=age_s)
        status = answer.value
        return LiveState(status.label, status.text, problem or status.problem, age_s)
