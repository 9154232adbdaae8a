"""Ids for Tab completion, read from the cluster within ``WAIT_S``.

Tab must not hang on a cluster that is slow or unreachable. A child process asks the cluster. Tab
waits for the answer for ``WAIT_S`` at most, and then offers no ids.
"""

from __future__ import annotations

import json
import os
import select
import signal
from collections.abc import Callable, Sequence
from typing import Final

import click
from click.shell_completion import CompletionItem

from bkctl.cli.completion.candidate_order import Values, ordered
from bkctl.global_options import as_words, options_of

WAIT_S: Final = 2.0
"""Seconds for which Tab waits for an answer."""

_CHUNK_BYTES: Final = 1 << 16


def completions(ctx: click.Context, kind: str, prefix: str) -> list[CompletionItem]:
    """Return the ids of a kind in the cluster that the command line of ``ctx`` selects."""
    words = [word for words in as_words(options_of(ctx)).values() for word in words]
    known = answer_of(lambda: _ask(ctx, words, kind, prefix), WAIT_S)
    found = ordered(ctx.command, [one for one in known if one[0].startswith(prefix)])
    return [CompletionItem(value, help=about) for value, about in found]


def _ask(ctx: click.Context, words: Sequence[str], kind: str, prefix: str) -> Values:
    """Ask the cluster, as the shell does."""
    from bkctl.commands.tool.shell_program import ShellHost, ShellProgram

    tree = ctx.find_root().command
    assert isinstance(tree, click.Group)
    values, _ = ShellProgram(tree, ShellHost()).candidates(kind, prefix, words)
    return values


def answer_of(ask: Callable[[], Values], wait_s: float) -> Values:
    """Return the result of ``ask`` in a child process; an empty list if it fails or is late.

    The child closes the standard streams: a shell waits until they are closed.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _work_alone(ask, writing)
    os.close(writing)
    try:
        return [(value, about) for value, about in json.loads(_read(reading, wait_s) or "[]")]
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _read(reading: int, wait_s: float) -> bytes:
    """Return all bytes up to the end of a pipe; none if a pause is longer than ``wait_s``."""
    text = b""
    while select.select([reading], [], [], wait_s)[0]:
        data = os.read(reading, _CHUNK_BYTES)
        if not data:
            return text
        text += data
    return b""


def _work_alone(ask: Callable[[], Values], writing: int) -> None:
    """Write the answer in this process, which was just forked, and exit."""
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(null, stream)
        with open(writing, "w", encoding="utf-8") as answer:
            json.dump(ask(), answer)
    finally:
        os._exit(0)
