"""Running many seeds, in one process or several, and ending at the first find."""

from __future__ import annotations

import atexit
import contextlib
import gc
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar

import attrs

T = TypeVar("T")

BURIED_TOGETHER = 20
"""Worlds whose remains are cleared away at once."""

_lying: list[object] = []


@attrs.frozen
class Found:
    """A seed that broke a promise."""

    seed: int
    what: str


def hunt(
    try_seed: Callable[..., T | Found],
    seeds: Iterable[int],
    *options: Any,
    workers: int = 1,
) -> Iterator[T | Found]:
    """Run seeds; give each one's outcome, in order. ``options`` follow the seed."""
    if workers == 1:
        for seed in seeds:
            yield try_seed(seed, *options)
        return
    with ProcessPoolExecutor(workers) as pool:
        todo = list(seeds)
        given = [[option] * len(todo) for option in options]
        try:
            yield from pool.map(try_seed, todo, *given, chunksize=8)
        finally:
            pool.shutdown(cancel_futures=True)


def with_first(number: int, seeds: Sequence[int]) -> list[int]:
    """Return the seeds with the one first that is number so-and-so, counted from 1.

    Where one of them is enough, and that one was the last time, the others need not be played.
    """
    return [seeds[number - 1], *seeds[: number - 1], *seeds[number:]]


@contextlib.contextmanager
def left_lying(world: object) -> Iterator[None]:
    """Keep a world's dead where they lie while it goes on; they are buried with others of theirs.

    What a dead process waited for never comes. Collected as garbage, its coroutines would run their
    ``finally`` blocks: in the middle of another world, and into one that is not there any more.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    _lying.append(world)
    try:
        yield
    finally:
        if len(_lying) > BURIED_TOGETHER:
            _bury(but=1)  # Of the last one the caller still has something, and it would go later.
        if was_enabled:
            gc.enable()


@atexit.register
def _bury(but: int = 0) -> None:
    """Let go of all that lies around but the last, whatever it has to say to that."""
    complain, sys.unraisablehook = sys.unraisablehook, lambda _unraisable: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # What a dead process was to do was never begun.
            del _lying[: len(_lying) - but]
            gc.collect()
    finally:
        sys.unraisablehook = complain
