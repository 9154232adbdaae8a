"""Ids that Tab offers: asked of the cluster in the background, and kept for a short time.

Tab must not hang on a cluster that is slow or gone. A process of its own asks, for as long as it
takes; the one that Tab waits for looks into a file, and waits for it no longer than a person would
call prompt. What comes later is there at the next Tab.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from bkctl.options import as_words, options_of

if TYPE_CHECKING:
    import click
    from click.shell_completion import CompletionItem

FRESH_S: Final = 5.0
"""How long an answer is as good as a new one."""

OLD_S: Final = 600.0
"""How long an answer is better than none."""

WAIT_S: Final = 2.0
"""How long Tab waits for a first answer."""

OLD_WAIT_S: Final = 0.3
"""How long it waits where there is one of before."""

ASK_S: Final = 15
"""How long is asked before it is given up."""

POLL_S: Final = 0.01
"""How long it waits between two looks."""

_FIRST: Final = {
    "decommission": ("down", "read-only"), "recover": ("down", "open", "in-recovery"),
    "close": ("open", "in-recovery"), "fence": ("open",), "add": ("open",),
}  # fmt: skip
"""What commands are mostly about, by the word that its description begins with."""

Values = list[tuple[str, str]]
Ask = Callable[[str, str], tuple[Values, bool]]
"""Gives the values of a kind that begin with a prefix, and whether these are all."""


class Cache:
    """Answers in files of one directory; ``key`` says whom they were asked."""

    def __init__(self, directory: str, key: str, clock: Callable[[], float] = time.time) -> None:
        self._directory, self._key, self._clock = directory, key, clock

    def path(self, kind: str, prefix: str) -> str:
        """Return the file of one question."""
        from hashlib import sha256

        name = sha256(f"{self._key}\0{kind}\0{prefix}".encode()).hexdigest()[:32]
        return f"{self._directory}/{name}.json"

    def read(self, kind: str, prefix: str) -> tuple[Values, bool, float] | None:
        """Return the values, whether they are all, and their age in seconds; None if too old."""
        import json

        try:
            with open(self.path(kind, prefix), encoding="utf-8") as file:  # noqa: PTH123
                age_s = self._clock() - os.fstat(file.fileno()).st_mtime
                kept, whole = json.load(file)
            values = [(value, about) for value, about in kept]
        except (OSError, TypeError, ValueError):  # None, or of another version.
            return None
        return None if age_s > OLD_S else (values, whole, age_s)

    def write(self, kind: str, prefix: str, values: Values, *, whole: bool) -> None:
        """Keep an answer, readable by its owner only; drop those that are too old."""
        import json

        path = self.path(kind, prefix)
        os.makedirs(self._directory, mode=0o700, exist_ok=True)  # noqa: PTH103
        self._prune()
        part = f"{path}.{os.getpid()}"
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:  # noqa: PTH123
            json.dump([values, whole], file)
        os.replace(part, path)  # noqa: PTH105

    def _prune(self) -> None:
        for entry in os.scandir(self._directory):
            with contextlib.suppress(OSError):
                if self._clock() - entry.stat().st_mtime > OLD_S:
                    os.unlink(entry.path)  # noqa: PTH108


def offered(
    cache: Cache, kind: str, prefix: str, start: Callable[[str, str], Callable[[], bool]]
) -> Values:
    """Return the values that are known now, or soon.

    ``start`` has a question asked in the background, and returns what tells whether that still
    goes on. A prefix is asked for by itself only where there are more values than are kept.
    """
    found = cache.read(kind, "")
    asked = ""
    if found is not None and not found[1] and prefix:
        asked = prefix
        found = cache.read(kind, prefix) or (*found[:2], OLD_S)
    if found is None or found[2] > FRESH_S:
        goes_on = start(kind, asked)
        until_s = time.monotonic() + (WAIT_S if found is None else OLD_WAIT_S)
        while goes_on() and time.monotonic() < until_s:
            time.sleep(POLL_S)
        found = cache.read(kind, asked) or found
    return [] if found is None else [one for one in found[0] if one[0].startswith(prefix)]


def completions(ctx: click.Context, kind: str, prefix: str) -> list[CompletionItem]:
    """Return the ids of a kind on the cluster that the line of ``ctx`` is about."""
    from click.shell_completion import CompletionItem

    words = [word for words in as_words(options_of(ctx)).values() for word in words]
    directory = cache_directory(os.environ)
    if directory is None:
        return []
    cache = Cache(directory, _key(words, os.environ))

    def start(kind: str, prefix: str) -> Callable[[], bool]:
        return in_background(lambda: refresh(cache, kind, prefix, asker(ctx, words)))

    found = ordered(ctx.command, offered(cache, kind, prefix, start))
    return [CompletionItem(value, help=about) for value, about in found]


def ordered(command: click.Command, found: Sequence[tuple[str, str]]) -> Values:
    """Put first what a command is mostly about: a bookie that is down, an open ledger."""
    first = _FIRST.get(command.name or "", ())

    def place(one: tuple[str, str]) -> int:
        state = one[1].partition(",")[0]
        return first.index(state) if state in first else len(first)

    return sorted(found, key=place)


def asker(ctx: click.Context, words: Sequence[str]) -> Ask:
    """Return what asks the cluster, as the shell does."""
    import click

    from bkctl.commands.about.shell_program import ShellHost, ShellProgram

    tree = ctx.find_root().command
    assert isinstance(tree, click.Group)
    program = ShellProgram(tree, ShellHost())
    return lambda kind, prefix: program.candidates(kind, prefix, words)


def refresh(cache: Cache, kind: str, prefix: str, ask: Ask) -> None:
    """Ask, and keep the answer; nothing where somebody else asks the same just now."""
    import fcntl

    path = cache.path(kind, prefix)
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120
    with open(f"{path}.lock", "w") as lock:  # noqa: PTH123
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        values, whole = ask(kind, prefix)
        cache.write(kind, prefix, values, whole=whole)


def in_background(work: Callable[[], Any]) -> Callable[[], bool]:
    """Do some work in a process of its own; return what tells whether it still goes on.

    It holds none of our streams, for a shell waits until they are closed.
    """
    child = os.fork()
    if child == 0:
        _work_alone(work)

    def goes_on() -> bool:
        return os.waitpid(child, os.WNOHANG)[0] == 0

    return goes_on


def _work_alone(work: Callable[[], Any]) -> None:
    """Do the work in this process, which has just been forked, and end it."""
    import signal

    try:
        os.setsid()
        signal.alarm(ASK_S)
        null = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(null, stream)
        work()
    finally:
        os._exit(0)


def cache_directory(environ: Mapping[str, str]) -> str | None:
    """Return where answers are kept; None for a user without a home.

    By the XDG rules a relative path is as good as none: each directory would get its own.
    """
    base = environ.get("XDG_CACHE_HOME", "")
    if not base.startswith("/"):
        base = os.path.expanduser("~/.cache")  # noqa: PTH111 -- quicker to import, and never raises
    return f"{base}/bkctl/complete" if base.startswith("/") else None


def _key(words: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return what answers depend on: options, environment, and where files are looked for."""
    ours = sorted(f"{k}={v}" for k, v in environ.items() if k.startswith(("BK", "BOOKIE", "CLI_")))
    return "\0".join([*words, "", *ours, os.getcwd()])  # noqa: PTH109
