"""Two live processes of one bookie id: one of them serves, and no acknowledged entry is lost."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from bkclient.ledger.writer import LedgerWriter
from bookied.errors import RegistrationError, WrongIdentityError
from tests.sim.engine.scene import Scene, add_answer, at
from tests.sim.world.bookie import SESSION_S, SimBookie
from tests.sim.world.disk import SimFiles
from tests.sim.world.network import Message
from wire.codes import ReturnCode

WAIT_S = 4 * SESSION_S


def twin_of(scene: Scene, bookie: SimBookie, files: SimFiles) -> SimBookie:
    """Return another process under a bookie's id, on a host of its own, not started yet."""
    config = attrs.evolve(bookie.config, advertised_address="twin")
    network = scene.world.network

    def of_the_id(tell: Callable[[Message], None]) -> Callable[[Message], None]:
        """Let what one of the two hears or says count as the bookie's."""

        def told(message: Message) -> None:
            if message.bookie == "twin":
                message.bookie = bookie.name
            tell(message)

        return told

    network.sent, network.asked, network.answered = map(
        of_the_id, (network.sent, network.asked, network.answered)
    )
    twin = scene.world.bookies["twin"] = SimBookie(scene.world, "twin", config, "twin")
    twin.files = files
    return twin


def copied(bookie: SimBookie) -> SimFiles:
    """Return a copy of a bookie's disks, as a snapshot of them has it."""
    files = SimFiles(bookie.rng)
    files._root = copy.deepcopy(bookie.files._root)
    return files


def empty(bookie: SimBookie) -> SimFiles:
    return SimBookie(bookie._world, bookie.name, bookie.config, "empty").files


def with_entries(**settings: Any) -> tuple[Scene, LedgerWriter, SimBookie]:
    """Return a scene, the writer of a ledger with five entries, and a bookie that has them."""
    scene = Scene(3)
    writer = scene.writer(scene.client("w", **settings))
    added = [scene.add(writer) for _ in range(5)]
    scene.drive(1)
    assert [one for outcome in added for one in outcome] == list(range(5))
    return scene, writer, scene.members(writer)[0]


def the_end_of(scene: Scene, bookie: SimBookie) -> Any:
    """Return why a bookie has ended; systemd does not start it again."""
    assert scene.world.drive(WAIT_S, lambda: bookie.last_error is not None)
    bookie.is_wanted = False
    scene.drive(1)
    return bookie.last_error


@pytest.mark.parametrize(
    ("disks", "error"), [(copied, RegistrationError), (empty, WrongIdentityError)]
)
def test_the_second_of_two_ends_and_the_first_serves_on(disks: Any, error: type[Exception]) -> None:
    scene, writer, first = with_entries()
    twin = twin_of(scene, first, disks(first))
    twin.start()
    added = [scene.add(writer) for _ in range(5)]
    assert isinstance(the_end_of(scene, twin), error)
    added += [scene.add(writer) for _ in range(5)]
    scene.drive(1)
    assert [one for outcome in added for one in outcome] == list(range(5, 15))
    assert first.is_serving
    del scene.world.bookies["twin"]
    reader = scene.open(scene.client("r"), writer)
    assert reader.last_add_confirmed == 14


def test_of_two_that_start_at_once_one_serves() -> None:
    scene, writer, first = with_entries()
    first.stay_away(power=False)
    scene.drive(2 * SESSION_S)  # The session of the old process is over.
    twin = twin_of(scene, first, copied(first))
    first.start()
    twin.start()
    scene.drive(1)
    loser = next(one for one in (first, twin) if not one.is_serving)
    assert isinstance(the_end_of(scene, loser), RegistrationError)
    assert sorted([first.is_serving, twin.is_serving]) == [False, True]
    scene.open(scene.client("r"), writer)


def test_a_process_whose_disks_were_taken_over_acknowledges_nothing_more() -> None:
    """It is paused beyond its session, and its volume is mounted elsewhere meanwhile."""
    scene, writer, first = with_entries(add_timeout_s=60)
    assert first.process is not None
    first.process.pause()
    added = [scene.add(writer) for _ in range(5)]  # These wait in the socket of the first.
    scene.drive(1)
    session = first.store.session
    scene.world.metadata.end_session(session.session_id)
    first.files.kill()  # Its open files are gone.
    twin = twin_of(scene, first, first.files)
    first.files = SimFiles(first.rng)
    twin.start()
    assert scene.world.drive(WAIT_S, lambda: twin.is_serving)
    said = scene.seen(at(first, add_answer))
    first.process.run(session.expire)
    first.process.resume()
    assert the_end_of(scene, first) is not None
    scene.drive(60)
    assert not [m for m in said if m.response is not None and m.response.rc is ReturnCode.EOK]
    assert [one for outcome in added for one in outcome] == list(range(5, 10))
    del scene.world.bookies[first.name]
    scene.open(scene.client("r"), writer)


def test_a_process_that_lost_its_session_to_another_ends() -> None:
    """Cut off from the metadata service, while a copy of its disks is started elsewhere.

    What it acknowledges over connections that it still has is not on the copy: docs/proof.md names
    this among what is not promised.
    """
    scene, writer, first = with_entries()
    session = first.store.session
    session.suspend()
    twin = twin_of(scene, first, copied(first))
    twin.start()
    assert scene.world.drive(WAIT_S, lambda: twin.is_serving)
    assert first.process is not None
    first.process.run(session.resume)
    assert isinstance(the_end_of(scene, first), RegistrationError)
    assert twin.is_serving
    del scene.world.bookies[first.name]
    assert scene.open(scene.client("r"), writer).last_add_confirmed == 4
