"""Stdout, sent to a pager once a terminal's screen is full."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import subprocess
from collections.abc import Iterable
from typing import TYPE_CHECKING

from bkctl.errors import PagerLeftError

if TYPE_CHECKING:
    from bkctl.environment_and_streams import Host


class Pager:
    """Stdout, sent to a pager once a terminal's screen is full."""

    def __init__(self, host: Host, *, wanted: bool) -> None:
        self._host = host
        self._lines_max = 0
        self._process: subprocess.Popen[str] | None = None
        self._command = _pager_command(host) if wanted and _is_screen(host) else ""
        self._buffered: list[str] = []
        if self._command:
            self._lines_max = shutil.get_terminal_size().lines - 1

    @property
    def started(self) -> bool:
        return self._process is not None

    def write_lines(self, lines: Iterable[str]) -> None:
        if not self._command:
            stdout = self._host.stdout
            stdout.write("".join(f"{line}\n" for line in lines))
            stdout.flush()
            return
        for line in lines:
            self._write(f"{line}\n")

    def _write(self, text: str) -> None:
        if self._process is not None:
            self._feed(text)
        else:
            self._buffered.append(text)
            if len(self._buffered) > self._lines_max:
                self._start()

    def close(self) -> None:
        if self._process is None:
            self._host.stdout.writelines(self._buffered)
            self._buffered = []
            return
        assert self._process.stdin is not None
        # The user quit the pager before it had read everything.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()

    def _start(self) -> None:
        environ = {"LESS": "FRX", **self._host.environ}
        self._process = subprocess.Popen(
            shlex.split(self._command), stdin=subprocess.PIPE, text=True, env=environ
        )
        buffered, self._buffered = self._buffered, []
        self._feed("".join(buffered))

    def _feed(self, text: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(text)
        except BrokenPipeError as error:
            raise PagerLeftError from error


def _is_screen(host: Host) -> bool:
    return host.stdout.isatty() and host.stdin.isatty() and host.environ.get("TERM", "") != "dumb"


def _pager_command(host: Host) -> str:
    for name in ("BKCTL_PAGER", "PAGER"):
        if name in host.environ:
            return host.environ[name]
    return "less" if shutil.which("less") else ""
