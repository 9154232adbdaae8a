"""The fuzzer: runs a decoder on mutated inputs and keeps those that reach something new.

Coverage is of branches: pairs of lines of our packages that ran one after the other. An input is a
crash if the decoder raises something that its contract does not name, or needs more than a second;
``python -m tests.fuzz`` limits the memory as well.
"""

from __future__ import annotations

import random
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import attrs

from tests.fuzz.mutate import mutated

ROOT: Final = Path(__file__).parent.parent.parent
CORPUS: Final = Path(__file__).parent / "corpus"
SLOW_S: Final = 1.0
MEMORY_BYTES: Final = 256 * 1024 * 1024
KEPT_BYTES_MAX: Final = 2048
KEPT_MAX: Final = 60

_OURS: Final = tuple(f"{ROOT}/{package}/" for package in ("wire", "bkclient", "bookied"))

Branch = tuple[CodeType, int, int]


@attrs.frozen(kw_only=True)
class Target:
    """A decoder. ``decode`` may return anything, and may raise ``errors``."""

    name: str
    decode: Callable[[bytes], object]
    errors: tuple[type[Exception], ...]
    seeds: tuple[bytes, ...] = (b"",)
    memory_bytes: int = MEMORY_BYTES
    """What a hunt may take of addresses beyond what the process has when it begins."""
    slow_s: float = SLOW_S
    """What an input may take of a processor, while its branches are traced."""


@attrs.frozen
class Crash:
    """An input on which a decoder does not keep its contract."""

    data: bytes
    what: str
    where: str


class Branches:
    """Traces what runs in our packages."""

    def __init__(self) -> None:
        self.seen: set[Branch] = set()
        self._fresh = False

    def trace(self, run: Callable[[], object]) -> bool:
        """Run something; return whether it went where nothing went before."""
        self._fresh = False
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            run()
        finally:
            sys.settrace(before)
        return self._fresh

    def _enter(self, frame: FrameType, _event: str, _arg: object) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(_OURS):
            return None
        last = 0

        def line(frame: FrameType, event: str, _arg: object) -> Any:
            nonlocal last
            if event == "line":
                branch = code, last, frame.f_lineno
                if branch not in self.seen:
                    self.seen.add(branch)
                    self._fresh = True
                last = frame.f_lineno
            return line

        return line


@attrs.define
class Hunt:
    """What became of one target."""

    target: Target
    branches: Branches = attrs.field(factory=Branches)
    executions: int = 0
    corpus: list[bytes] = attrs.field(factory=list)
    crashes: dict[str, Crash] = attrs.field(factory=dict)
    """By where they are: one each."""

    def feed(self, inputs: Iterable[bytes]) -> None:
        """Run given inputs; keep those that reach something new."""
        for data in inputs:
            if self._run(data):
                self.corpus.append(data)

    def run(self, rng: random.Random, seconds: float, executions: int = sys.maxsize) -> None:
        """Run mutated inputs for a while, or until there were about so many executions."""
        until_s = time.monotonic() + seconds
        while self.executions < executions and time.monotonic() < until_s:
            for _ in range(20):
                self.feed([mutated(rng, self.corpus or [b""])])

    def _run(self, data: bytes) -> bool:
        self.executions += 1
        crash: list[Crash] = []
        fresh = self.branches.trace(lambda: crash.extend(judge(self.target, data)))
        for one in crash:
            self.crashes.setdefault(one.where, one)
        return fresh and not crash


def judge(target: Target, data: bytes) -> list[Crash]:
    """Return what is wrong with what a decoder makes of an input: one crash, or none."""
    began_s = time.process_time()
    try:
        target.decode(data)
    except target.errors:
        pass
    except Exception as error:  # noqa: BLE001 -- that is what is looked for
        return [Crash(data, repr(error)[:200], _where(error))]
    if time.process_time() - began_s > target.slow_s:
        return [Crash(data, f"more than {target.slow_s} s", "slow")]
    return []


def _where(error: Exception) -> str:
    ours = [
        f"{Path(frame.filename).relative_to(ROOT)}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename.startswith(_OURS)
    ]
    return f"{type(error).__name__} at {ours[-1] if ours else 'the target'}"


def kept(target: Target) -> list[bytes]:
    """Return the inputs that earlier hunts have left, and those that once were crashes."""
    path = CORPUS / f"{target.name}.hex"
    if not path.exists():
        return []
    return [bytes.fromhex(line) for line in path.read_text().splitlines()]


def keep(hunt: Hunt) -> None:
    """Leave the inputs that reached something, the small ones, for the next hunt."""
    found = dict.fromkeys(kept(hunt.target))
    found |= dict.fromkeys(one for one in hunt.corpus if len(one) <= KEPT_BYTES_MAX)
    lines = [data.hex() for data in found if data not in hunt.target.seeds][:KEPT_MAX]
    if lines:
        (CORPUS / f"{hunt.target.name}.hex").write_text("".join(f"{line}\n" for line in lines))
