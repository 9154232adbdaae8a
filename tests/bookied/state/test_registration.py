"""A bookie stays registered over lost sessions, and says when it cannot."""

from __future__ import annotations

from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from bkclient.metadata.errors import MetadataUnavailableError
from bkclient.metadata.tree.store import MetadataStore
from bkclient.metadata.versions_and_watches import NEW, SessionEvent
from bookied.errors import (
    BookieExitStatus,
    BookieStopError,
    RegistrationError,
    WrongIdentityError,
)
from bookied.state.registration import Registration
from tests.bookied.worlds.fakes import done
from tests.support.memory_zookeeper import MemoryZooKeeper
from wire.ids import BookieId
from wire.records.bookie_service_info import BOOKIE_RPC, BookieServiceInfo, Endpoint

B1 = BookieId("b1")
INFO = BookieServiceInfo((Endpoint("bookie", 3181, "h", BOOKIE_RPC),))


class World:
    """One registration, and another session that looks on."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.cluster = MemoryZooKeeper.initialized(self.clock)
        self.store = self._connected()
        self.onlooker = self._connected()
        done(self.onlooker.write_cookie(B1, b"4\ncookie", NEW))
        self.failures: list[BookieStopError] = []
        self.registration = Registration(
            self.store, self.clock, B1, INFO, give_up_s=60, failed=self.failures.append
        )

    def _connected(self):
        store = self.cluster.metadata()
        done(store.connect())
        return store

    def seen(self) -> str:
        self.clock.pump([0.01] * 5)
        if B1 in done(self.onlooker.writable_bookies()):
            return "writable"
        return "read-only" if B1 in done(self.onlooker.read_only_bookies()) else "absent"


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize(("read_only", "seen"), [(False, "writable"), (True, "read-only")])
def test_a_bookie_is_registered_in_its_mode(world: World, read_only, seen) -> None:
    done(world.registration.register(read_only=read_only))
    assert world.seen() == seen
    assert world.registration.is_registered
    assert done(world.onlooker.service_info(B1)) == INFO


def test_the_mode_changes_while_registered(world: World) -> None:
    done(world.registration.register(read_only=False))
    done(world.registration.set_read_only(read_only=True))
    assert world.seen() == "read-only"
    done(world.registration.set_read_only(read_only=False))
    assert world.seen() == "writable"


def test_a_change_of_mode_can_be_waited_for(world: World) -> None:
    done(world.registration.register(read_only=False))
    done(world.registration.settled())
    world.store.session.suspend()
    Deferred.fromCoroutine(world.registration.set_read_only(read_only=True))
    seen: list[str] = []
    settled = Deferred.fromCoroutine(world.registration.settled())
    settled.addCallback(lambda _: seen.append(world.seen()))
    assert seen == []
    world.store.session.resume()
    world.clock.pump([0.1] * 50)
    assert seen == ["read-only"]


def test_unregistering_takes_the_entry_away(world: World) -> None:
    done(world.registration.register(read_only=False))
    done(world.registration.unregister())
    assert world.seen() == "absent"
    assert not world.registration.is_registered


@pytest.mark.parametrize("was_registered", [False, True])
def test_an_entry_that_is_being_written_does_not_outlive_unregistering(
    world: World, *, was_registered: bool
) -> None:
    if was_registered:
        done(world.registration.register(read_only=False))
    world.store.session.suspend()
    change = world.registration.set_read_only if was_registered else world.registration.register
    Deferred.fromCoroutine(change(read_only=True))
    Deferred.fromCoroutine(world.registration.unregister())
    world.store.session.resume()
    world.clock.pump([0.1] * 50)
    assert world.seen() == "absent"
    assert not world.registration.is_registered


@pytest.mark.parametrize("read_only", [False, True])
def test_a_lost_session_is_registered_anew_in_the_mode_of_now(world: World, read_only) -> None:
    done(world.registration.register(read_only=False))
    done(world.registration.set_read_only(read_only=read_only))
    world.store.session.expire()
    assert world.seen() == ("read-only" if read_only else "writable")
    assert world.registration.is_registered
    assert world.failures == []


def test_a_suspended_session_that_comes_back_is_left_alone(world: World) -> None:
    done(world.registration.register(read_only=False))
    world.store.session.suspend()
    assert world.registration.is_registered
    world.store.session.resume()
    assert world.seen() == "writable"


def test_the_service_may_be_away_for_a_while_after_a_lost_session(world: World) -> None:
    done(world.registration.register(read_only=False))
    world.store.session.suspend()
    world.clock.advance(30)
    assert world.seen() == "absent"
    world.store.session.resume()
    world.clock.pump([1.0] * 20)
    assert world.seen() == "writable"


def test_no_registration_is_made_after_unregistering(world: World) -> None:
    done(world.registration.register(read_only=False))
    done(world.registration.unregister())
    world.store.session.expire()
    assert world.seen() == "absent"


class Unreachable:
    """A store whose session was lost and whose service stays away."""

    def __init__(self, error: Exception) -> None:
        self.error, self.listener, self.tries = error, None, 0

    async def register(self, bookie_id, info, *, read_only):
        self.tries += 1
        raise self.error

    def on_session(self, changed):
        self.listener = changed
        return self

    def cancel(self) -> None:
        self.listener = None


def lost(error: Exception) -> tuple[Unreachable, Clock, list[BookieStopError]]:
    store, clock = Unreachable(error), Clock()
    failures: list[BookieStopError] = []
    registration = Registration(
        cast("MetadataStore", store), clock, B1, INFO, give_up_s=60, failed=failures.append
    )
    with pytest.raises(RegistrationError):
        done(registration.register(read_only=False))
    assert store.listener is not None
    store.listener(SessionEvent.LOST)
    return store, clock, failures


def test_a_service_that_stays_away_ends_the_bookie_as_session_lost() -> None:
    store, clock, failures = lost(MetadataUnavailableError("away"))
    clock.pump([1.0] * 50)
    assert failures == []
    clock.pump([1.0] * 20)
    assert [failure.exit_status for failure in failures] == [BookieExitStatus.SESSION_LOST]
    assert "b1 has not been registered for 60 s: away" in str(failures[0])
    assert store.tries < 15, "tries back off"
    clock.pump([1.0] * 100)
    assert len(failures) == 1


def test_a_service_that_is_back_is_asked_at_once() -> None:
    store, clock, _ = lost(MetadataUnavailableError("away"))
    clock.pump([1.0] * 20)
    before = store.tries
    assert store.listener is not None
    store.listener(SessionEvent.CONNECTED)
    assert store.tries == before + 1


def test_an_entry_that_another_session_keeps_ends_the_bookie_as_not_registered(
    world: World,
) -> None:
    twin = world._connected()
    done(twin.register(B1, INFO, read_only=False))
    outcome: list[Any] = []
    waiting = Deferred.fromCoroutine(world.registration.register(read_only=False))
    waiting.addBoth(outcome.append)
    world.clock.pump([1.0] * 60)
    outcome[0].trap(RegistrationError)
    assert outcome[0].value.exit_status == BookieExitStatus.NOT_REGISTERED


def test_a_bookie_whose_cookie_has_gone_while_it_had_no_session_ends(world: World) -> None:
    done(world.registration.register(read_only=False))
    world.store.session.suspend()
    world.clock.pump([1.0] * 11)
    done(world.onlooker.remove_cookie(B1))
    world.store.session.resume()
    assert world.seen() == "absent"
    assert [failure.exit_status for failure in world.failures] == [BookieExitStatus.WRONG_IDENTITY]
    assert "no cookie of b1 any more" in str(world.failures[0])


def test_a_session_that_is_lost_while_the_cookie_is_read_counts_for_nothing() -> None:
    """What was registered went with it: the cookie is read again behind the next registration."""
    world = World()
    done(world.registration.register(read_only=False))
    read_cookie, reads = world.store.read_cookie, list[str]()

    async def lost_meanwhile(bookie_id: BookieId) -> Any:
        found = await read_cookie(bookie_id)
        reads.append(bookie_id)
        if len(reads) == 1:
            world.store.session.expire()
        return found

    world.store.read_cookie = lost_meanwhile
    world.store.session.expire()
    assert world.seen() == "writable"
    assert len(reads) == 2


def test_a_bookie_without_a_cookie_does_not_register(world: World) -> None:
    done(world.onlooker.remove_cookie(B1))
    with pytest.raises(WrongIdentityError):
        done(world.registration.register(read_only=False))
    assert world.seen() == "absent"
