"""A bookie that serves, on a clock, and what asks it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from twisted.internet.defer import Deferred

from bkclient.metadata import zk_paths
from bookied.admin.api import Access, Api
from bookied.admin.control.operations import Control
from bookied.admin.http.requests_and_replies import Credentials, HttpReply, HttpRequest
from tests.bookied.worlds.clock_world import World
from tests.bookied.worlds.fakes import done
from wire.ids import LedgerId

TOKEN = "open sesame"
PATIENCE_S = 15


@attrs.define
class Operator:
    """Asks one bookie over its API, without HTTP."""

    world: World
    access: Access = attrs.field(factory=lambda: Access(TOKEN))
    token: str = TOKEN
    control: Control = attrs.field(init=False)
    api: Api = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.control = Control(self.world.service, lambda: "# the page")
        self.api = Api(self.control, self.access)

    def ask(self, method: str, path: str, body: Any = b"") -> HttpReply:
        path, _, text = path.partition("?")
        pairs = [one.partition("=") for one in text.split("&") if one]
        query = {name: value for name, _, value in pairs}
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        asked = HttpRequest(method=method, query=query, body=sent)
        answers: list[Any] = []
        answering = self.api.answer(path, asked, Credentials(f"Bearer {self.token}"))
        Deferred.fromCoroutine(answering).addBoth(answers.append)
        if not answers:  # It waits for a bookie that cannot be reached.
            self.world.run_for(PATIENCE_S)
        (reply,) = answers
        assert isinstance(reply, HttpReply)
        return reply

    def get(self, path: str) -> Any:
        """Return the JSON of an endpoint that is there."""
        reply = self.ask("GET", path)
        assert reply.status == 200, reply
        return json.loads(reply.body)


def spoil_mark(operator: Operator, ledger_id: LedgerId) -> None:
    """Mark a ledger with what nobody can read."""
    done(operator.control.cluster.store.mark_underreplicated(ledger_id, ()))
    operator.world.cluster.set(zk_paths.mark(ledger_id), b"\xffnonsense")


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    world = World(tmp_path)
    done(world.service.start())
    yield Operator(world)
    world.stop()


@pytest.fixture
def early(tmp_path: Path) -> Operator:
    """Asks a bookie that has not started."""
    return Operator(World(tmp_path))
