"""Commands of a process that dies at its n-th request, on a cluster in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

from bkctl.cli.root import cli
from tests.bkclient.scenarios.process_deaths import Killed, Process, Processes
from tests.bkctl.support.runner import Result
from tests.bkctl.support.terminal import FakeHost


class _CommandClient(Process):
    """What ``BlockingClient`` is for a command, until its process dies."""

    def iterate(self, make: Callable[[Any], AsyncIterator[Any]]) -> Iterator[Any]:
        values = make(self.client)

        async def following() -> list[Any]:
            async for value in values:
                return [value]
            return []

        while found := self.run(following):
            yield from found

    def close(self) -> None:
        """Leave the world as it is."""


class _Host(FakeHost):
    def __init__(self, client: Any) -> None:
        super().__init__(environ={"PAGER": ""})
        self._connect = lambda _uri, _config: client
        self._client = client

    def with_store(self, _uri: str, work: Callable[[Any], Awaitable[Any]], _config: Any) -> Any:
        """Run ``work`` with the metadata of the process."""
        return self._client.call(lambda client: work(client.store))

    def metadata_reader(self, _uri: str, _config: Any) -> None:
        """Return no reader: all goes through the client."""


def run_until_death(processes: Processes, *words: object) -> Result | None:
    """Run ``bkctl WORDS`` as a process of its own; return None if that died."""
    with _CommandClient(processes) as client:
        host = _Host(client)
        status = cli.run(["-u", "sqlite:///not/opened.db", *map(str, words)], host)
    if client.is_dead:
        processes.world.metadata.end_session(client.session_id)
        return None
    return Result(status, host.out.data.decode(), host.err.text)


def call_until_death(processes: Processes, function: Callable[..., Any]) -> Any:
    """Call a function of a client in a process of its own; return None if that died."""
    with _CommandClient(processes) as client:
        try:
            return client.call(function)
        except Killed:
            processes.world.metadata.end_session(client.session_id)
            return None


def persistent_nodes(processes: Processes) -> set[str]:
    """Return the paths of all nodes without an owner."""
    nodes = processes.world.metadata._nodes
    return {path for path, node in nodes.items() if not node.owner}
