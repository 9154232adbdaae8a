"""Commands run in this process, through the tree as it is, on a cluster that runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import attrs

from bkctl.cli.root import cli
from bkctl.environment_and_streams import Host
from tests.bkctl.support.cluster import Cluster
from tests.bkctl.support.schema import check
from tests.bkctl.support.terminal import FakeHost


@attrs.frozen
class Result:
    status: int
    out: str
    err: str

    @property
    def json(self):
        return check(json.loads(self.out))

    @property
    def error(self):
        return check(json.loads(self.err.splitlines()[-1]))

    @property
    def id(self) -> str:
        assert self.status == 0, self.err
        return self.out.strip()


Run = Callable[..., Result]


@contextmanager
def runner(cluster: Cluster) -> Iterator[Run]:
    """Give a function that runs one command line; connections are kept from one to the next."""
    shared = Host(environ={})

    def run(*args: object, typed: str | bytes = "", tty: bool = False, ok: bool = True) -> Result:
        host = FakeHost(tty=tty)
        host.stdin.buffer.write(typed if isinstance(typed, bytes) else typed.encode())
        host.stdin.buffer.seek(0)
        host._clients = shared._clients
        words = ["-u", cluster.uri, *map(str, args)]
        status = cli.run(words, host)
        result = Result(status, host.out.data.decode("utf-8", "surrogateescape"), host.err.text)
        assert not ok or status == 0, (words, result)
        return result

    yield run
    shared.close()
