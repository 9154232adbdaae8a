"""Commands that ask all bookies of a cluster, where most are registered and never answer."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from bkclient.admin import cluster_operations
from bkclient.blocking import call_in_reactor, reactor_in_thread, with_store
from bkclient.metadata import open_metadata
from bkctl.exit_status import ExitStatus
from tests.bkctl.support.cluster import BKCTL
from tests.shell.screen import terminal
from wire.ids import BookieId
from wire.records.bookie_service_info import BOOKIE_RPC, BookieServiceInfo, Endpoint

pytestmark = pytest.mark.processes

UNRESOLVED, HUNG = 400, 50
ENDS_WITHIN_S = 60
"""How long a command may take on a loaded machine; its bookies get 10 s."""

SILENT_NAME_SERVER = """
import socket, threading

known = socket.getaddrinfo

def getaddrinfo(host, *args, **options):
    name = host.decode() if isinstance(host, bytes) else host
    if name is not None and name.endswith(".invalid"):
        threading.Event().wait(600)
    return known(host, *args, **options)

socket.getaddrinfo = getaddrinfo
"""
"""A ``sitecustomize`` module: the server of one domain drops all questions."""


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give a cluster of bookies whose names do not resolve, and of others that never answer."""
    uri = f"sqlite:///{tmp_path_factory.mktemp('silent') / 'cluster.db'}"
    with_store(uri, cluster_operations.init_cluster)
    reactor = reactor_in_thread()
    store = open_metadata(uri, reactor=reactor)
    with ExitStack() as sockets:

        async def register() -> None:
            await store.connect()
            for number in range(UNRESOLVED):
                await at(f"bookie-{number}.invalid", 3181)
            for _ in range(HUNG):
                hung = sockets.enter_context(socket.create_server(("127.0.0.1", 0)))
                await at("127.0.0.1", hung.getsockname()[1])

        async def at(host: str, port: int) -> None:
            endpoints = (
                Endpoint("bookie", port, host, BOOKIE_RPC),
                Endpoint("httpserver", port, host, "http"),
            )
            info = BookieServiceInfo(endpoints)
            await store.register(BookieId(f"{host}:{port}"), info, read_only=port % 2 == 0)

        call_in_reactor(reactor, register)
        try:
            yield uri
        finally:
            call_in_reactor(reactor, store.close)


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    site = tmp_path_factory.mktemp("site")
    (site / "sitecustomize.py").write_text(SILENT_NAME_SERVER)
    return {**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{Path.cwd()}"}


COMMANDS = {
    ("bookie", "list"): (0, "bookie-399.invalid:3181"),
    ("bookie", "show", "-o", "jsonl"): (0, "bookie-399.invalid:3181"),
    ("cluster", "map"): (0, f"{UNRESOLVED + HUNG} bookies: "),
    ("cluster", "ping"): (ExitStatus.UNREACHABLE, "bookie-399.invalid:3181"),
    ("cluster", "status"): (0, f"{UNRESOLVED + HUNG} registered bookies unreachable"),
    ("cluster", "status", "--timeout", "16"): (0, "unreachable"),  # The limit leaves a result.
    ("doctor",): (ExitStatus.PROBLEMS, "bookie-399.invalid:3181"),
    ("version", "--all"): (0, "bookie-399.invalid:3181"),
}
"""The status of each command, and what it says."""


def test_commands_end_and_name_each_that_does_not_answer(uri: str, environ: dict[str, str]) -> None:
    with ExitStack() as running:
        processes = {
            words: running.enter_context(_bkctl(uri, environ, *words)) for words in COMMANDS
        }
        for words, process in processes.items():
            status, said = COMMANDS[words]
            out, err = process.communicate(timeout=ENDS_WITHIN_S)
            assert process.returncode == status, (words, err)
            assert said in out, words


@contextmanager
def _bkctl(uri: str, environ: dict[str, str], *words: str) -> Iterator[subprocess.Popen[str]]:
    command = [*BKCTL, "-u", uri, *words]
    with subprocess.Popen(
        command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_terminal_shows_what_is_waited_for(uri: str, environ: dict[str, str]) -> None:
    command = [*BKCTL, "-u", uri, "cluster", "map"]
    with terminal(command, PYTHONPATH=environ["PYTHONPATH"]) as shown:
        shown.shows("waiting for answers of bookies (")
