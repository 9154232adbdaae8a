"""A stand-in for the process's streams: texts in memory that can claim to be a terminal."""

from __future__ import annotations

import io
import os
import subprocess
from collections.abc import Callable, Mapping
from contextlib import closing

from bkctl.cli.root import cli
from bkctl.environment_and_streams import Host


class Stream(io.TextIOWrapper):
    """A text stream in memory; ``before_line`` is called before a line is read."""

    def __init__(self, text: str = "", *, tty: bool = False) -> None:
        super().__init__(io.BytesIO(text.encode()), encoding="utf-8", write_through=True)
        self._tty = tty
        self.before_line: Callable[[], object] = lambda: None

    def readline(self, size: int = -1, /) -> str:
        self.before_line()
        return super().readline(size)

    def isatty(self) -> bool:
        return self._tty

    @property
    def data(self) -> bytes:
        buffer: object = self.buffer
        assert isinstance(buffer, io.BytesIO)
        return buffer.getvalue()

    @property
    def text(self) -> str:
        return self.data.decode()


class FakeHost(Host):
    """A host whose streams are in memory; ``tty`` says whether somebody sits there.

    Without ``sees_processes`` no process of this machine is there: else each command on directories
    looks at the open files of all of them. A lock is seen all the same.

    ``while_asked`` is called while a question waits.

    Where nobody sits, nothing says what is waited for: how slow the machine is changes nothing.
    """

    def __init__(
        self,
        typed: str = "",
        *,
        tty: bool = False,
        environ: Mapping[str, str] | None = None,
        sees_processes: bool = True,
        while_asked: Callable[[], object] = lambda: None,
    ) -> None:
        self.proc = Host.proc if sees_processes else "/no-proc"
        self.out, self.err = Stream(tty=tty), Stream(tty=tty)
        silent = {} if tty else {"BKCTL_PROGRESS": "none"}
        environ = {**silent, **(environ or {})}
        answers = Stream(typed, tty=tty)
        answers.before_line = while_asked
        super().__init__(environ=environ, stdin=answers, stdout=self.out, stderr=self.err)

    def elapsed_s(self) -> float:
        """Stand still: how fast the machine is changes nothing that is printed."""
        return 0.0


def run_here(*words: object) -> subprocess.CompletedProcess[str]:
    """Run a command line in this process: a start of its own takes longer than most commands.

    One that starts processes is not run here, or they would be children of the tests.
    """
    arguments = [*map(str, words)]
    with closing(FakeHost(environ=os.environ)) as host:
        status = cli.run(arguments, host)
        return subprocess.CompletedProcess(arguments, status, host.out.text, host.err.text)
