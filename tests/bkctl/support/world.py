"""Commands run in this process, on a cluster in memory whose time a test decides."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from bkctl.cli.root import cli
from bkctl.environment_and_streams import Host
from tests.bkclient.worlds import World
from tests.bkctl.support.runner import Result
from tests.bkctl.support.terminal import FakeHost


class WorldClient:
    """What ``BlockingClient`` is, on a world's clock instead of the reactor."""

    def __init__(self, world: World, **options: Any) -> None:
        self.world, self.client = world, world.client(**options)

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = function(self.client, *args, **kwargs)
        return self.world.run(result) if hasattr(result, "__await__") else result

    def iterate(self, make: Callable[[Any], AsyncIterator[Any]]) -> Iterator[Any]:
        values = make(self.client)

        async def following() -> list[Any]:
            async for value in values:
                return [value]
            return []

        while found := self.world.run(following()):
            yield from found

    def close(self) -> None:
        """Leave the world as it is."""


class WorldHost(FakeHost):
    def __init__(
        self,
        world: World,
        typed: str,
        *,
        tty: bool,
        while_asked: Callable[[], object] = lambda: None,
        **options: Any,
    ) -> None:
        super().__init__(typed, tty=tty, environ={"PAGER": ""}, while_asked=while_asked)
        client: Any = WorldClient(world, **options)
        self._connect: Any = lambda _uri, _config: client
        self.world = world


def run_in(
    world: World,
    *words: object,
    typed: str = "",
    tty: bool = False,
    ok: bool = True,
    **options: Any,
) -> Result:
    """Run ``bkctl WORDS`` on the world's cluster.

    ``options`` are those of ``World.client``, and ``while_asked``, which is called while a question
    waits.
    """
    host: Host = WorldHost(world, typed, tty=tty, **options)
    status = cli.run(["-u", "sqlite:///not/opened.db", *map(str, words)], host)
    result = Result(status, host.stdout.data.decode(), host.stderr.text)  # type: ignore[attr-defined]
    assert not ok or status == 0, (words, result)
    return result
