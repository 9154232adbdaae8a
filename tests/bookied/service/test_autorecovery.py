"""Autorecovery as a process of its own: what it does when it cannot go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred

from bookied.errors import SessionLostError
from bookied.service.autorecovery import AutoRecoveryService
from tests.bookied.worlds.clock_world import World
from tests.bookied.worlds.fakes import done
from wire.errors import BookKeeperError


def test_a_lost_session_is_told_and_everything_is_let_go(tmp_path: Path) -> None:
    world = World(tmp_path)
    told: list[BookKeeperError] = []
    let_go: list[Any] = []

    def failed(error: BookKeeperError) -> None:
        """Let go of everything at once, as the process does."""
        told.append(error)
        Deferred.fromCoroutine(service.abandon()).addBoth(let_go.append)

    service = AutoRecoveryService(world.service.config, world.service.parts, failed=failed)
    done(service.start())
    world.store.session.expire()
    world.run_for(1)
    (error,) = told
    assert isinstance(error, SessionLostError)
    assert let_go == [None]
