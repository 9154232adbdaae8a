"""Which action each signal of the process starts."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator

import pytest
from twisted.internet.interfaces import IReactorFromThreads
from zope.interface import implementer

from bookied.process.signals import STOP_SIGNALS, ProcessSignals, SignalActions, thread_stacks

HANDLED = (*STOP_SIGNALS, signal.SIGHUP, signal.SIGUSR1, signal.SIGQUIT)


@implementer(IReactorFromThreads)
class Reactor:
    def callFromThread(self, function: Callable[[], object]) -> None:  # noqa: N802 -- Twisted's
        function()


class Process:
    """A process whose actions are only counted."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.signals = ProcessSignals(
            Reactor(),
            SignalActions(
                stop=lambda: self.done.append("stop"),
                reopen=lambda: self.done.append("reopen"),
                collect=lambda: self.done.append("collect"),
                dump=lambda: self.done.append("dump"),
            ),
        )
        self.signals.begin()


@pytest.fixture
def process() -> Iterator[Process]:
    before = {number: signal.getsignal(number) for number in HANDLED}
    yield Process()
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("number", "action"),
    [
        (signal.SIGTERM, "stop"),
        (signal.SIGINT, "stop"),
        (signal.SIGHUP, "reopen"),
        (signal.SIGUSR1, "collect"),
        (signal.SIGQUIT, "dump"),
    ],
)
def test_each_signal_starts_its_action(process: Process, number: int, action: str) -> None:
    signal.raise_signal(number)
    assert process.done == [action]


def test_a_stop_signal_changes_nothing_once_the_exit_status_is_known(process: Process) -> None:
    process.signals.is_over = True
    signal.raise_signal(signal.SIGTERM)
    process.signals.end()
    signal.raise_signal(signal.SIGINT)
    assert process.done == []


def test_the_stack_of_each_thread_begins_with_its_innermost_function() -> None:
    stacks = dict(thread_stacks())
    assert set(stacks) >= {thread.ident for thread in threading.enumerate()}
    assert stacks[threading.get_ident()].startswith("thread_stacks (signals.py:")
