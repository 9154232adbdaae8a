"""The bookie's port, the looks at its disks, its checkpoints, and what a service manager hears."""

from __future__ import annotations

import contextlib
import errno
import socket
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock

from bkclient.config.shared import KeepAlive
from bookied.directories.disk_fullness import DiskLimits, DiskSample, DiskVerdict, DiskWatch
from bookied.errors import AddressError, BookieExitStatus, DiskWriteFailedError, PortInUseError
from bookied.process.service_manager import Notifier
from bookied.server.listener import ACCEPTS_MAX, TcpListener
from bookied.storage.checkpoints import LOOK_S, Checkpoints
from bookied.storage.storages import Storages
from tests.support.reactor import call, run, the_reactor
from tests.support.waiting import until


class Greeting(Protocol):
    def connectionMade(self) -> None:
        assert self.transport is not None
        self.transport.write(b"hello")
        self.transport.loseConnection()


def bind(port: int = 0, keep_alive: KeepAlive | None = None) -> Any:
    return TcpListener(the_reactor(), keep_alive).bind("127.0.0.1", port)


def test_a_bound_port_refuses_until_it_listens() -> None:
    port = bind()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port.port), timeout=60)
    call(port.listen, Factory.forProtocol(Greeting))
    with socket.create_connection(("127.0.0.1", port.port), timeout=60) as sock:
        assert sock.recv(5, socket.MSG_WAITALL) == b"hello"
    run(port.close())
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port.port), timeout=60)


def test_a_turn_accepts_one_connection_however_many_there_are() -> None:
    accepted: list[int] = []
    turns: list[int] = []

    class Counting(Protocol):
        def connectionMade(self) -> None:
            accepted.append(len(turns))

    def note() -> None:
        turns.append(len(accepted))
        if len(accepted) < 20:
            the_reactor().callLater(0, note)

    port = bind()
    with contextlib.ExitStack() as clients:

        def connect_and_listen() -> None:
            port.listen(Factory.forProtocol(Counting))
            for _ in range(20):
                address = ("127.0.0.1", port.port)
                clients.enter_context(socket.create_connection(address, timeout=60))
            note()

        call(connect_and_listen)
        until(lambda: len(accepted) == 20)
    run(port.close())
    assert max(after - before for before, after in pairwise(turns)) == ACCEPTS_MAX


def test_a_port_that_somebody_listens_on_cannot_be_bound() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        number = other.getsockname()[1]
        with pytest.raises(PortInUseError, match=f"^port {number} is in use by another process$"):
            bind(number)
        with pytest.raises(PortInUseError):
            TcpListener(the_reactor()).bind("", number)


def test_a_port_that_somebody_else_serves_first_is_lost() -> None:
    first, second = bind(), None
    second = bind(first.port)
    call(first.listen, Factory.forProtocol(Greeting))
    with pytest.raises(PortInUseError):
        call(second.listen, Factory.forProtocol(Greeting))
    run(second.close())
    run(first.close())


def test_an_address_that_is_not_ours_is_a_configuration_error() -> None:
    with pytest.raises(AddressError, match=r"cannot listen on 192\.0\.2\.1, port 0") as caught:
        TcpListener(the_reactor()).bind("192.0.2.1", 0)
    assert caught.value.exit_status == BookieExitStatus.INVALID_CONFIGURATION


def test_all_addresses_are_reached_over_both_families() -> None:
    port = TcpListener(the_reactor()).bind("", 0)
    call(port.listen, Factory.forProtocol(Greeting))
    with socket.create_connection(("127.0.0.1", port.port), timeout=60) as sock:
        assert sock.recv(5, socket.MSG_WAITALL) == b"hello"
    run(port.close())


def test_keep_alive_times_are_handed_on_to_connections() -> None:
    port = bind(keep_alive=KeepAlive(idle_s=77, interval_s=7, count=3))
    seen: list[int] = []

    class Looking(Protocol):
        def connectionMade(self) -> None:
            handle = cast("Any", self.transport).getHandle()
            options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            seen.extend(handle.getsockopt(socket.IPPROTO_TCP, option) for option in options)
            cast("Any", self.transport).loseConnection()

    call(port.listen, Factory.forProtocol(Looking))
    with socket.create_connection(("127.0.0.1", port.port), timeout=60) as sock:
        assert sock.recv(1) == b""
    run(port.close())
    assert seen == [77, 7, 3]


def test_a_service_manager_hears_what_it_is_told(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(60)
        manager.bind(str(tmp_path / "notify"))
        Notifier({"NOTIFY_SOCKET": str(tmp_path / "notify")}).notify("READY=1", "STATUS=serving")
        assert manager.recv(100) == b"READY=1\nSTATUS=serving"


@pytest.mark.parametrize("address", [None, "", "/no/such/socket", "vsock:2:1234"])
def test_without_a_service_manager_nothing_happens(address: str | None) -> None:
    Notifier({} if address is None else {"NOTIFY_SOCKET": address}).notify("READY=1")


LIMITS = DiskLimits(
    full_at=0.95, warn_at=0.9, writable_below=0.95, on_any_full=True, high_priority_bytes_min=10
)


class Disks:
    """One disk, and a watch that looks at it every second."""

    def __init__(self) -> None:
        self.usable, self.error, self.awaited = 500, 0, False
        self.verdicts: list[DiskVerdict] = []
        self.failures: list[Exception] = []
        self.clock = Clock()
        self.watch = DiskWatch(
            self.clock,
            self.sample,
            LIMITS,
            run_blocking=lambda function: Deferred.fromCoroutine(_at_once(function)),
            changed=self.verdicts.append,
            is_awaited=lambda: self.awaited,
            failed=self.failures.append,
        )

    def sample(self) -> tuple[DiskSample, ...]:
        if self.error:
            raise OSError(self.error, "Input/output error")
        return (DiskSample(Path("/d"), 1000, self.usable),)


async def _at_once(function):
    return function()


def test_a_watch_tells_of_changes_only() -> None:
    disks = Disks()
    disks.watch.start(1.0)
    for usable in (500, 500, 80, 20, 20, 5, 500):
        disks.usable = usable
        disks.clock.advance(1.0)
    assert [
        (bool(one.nearly_full), one.read_only, one.high_priority_allowed) for one in disks.verdicts
    ] == [
        (True, False, True),
        (False, True, True),
        (False, True, False),
        (False, False, True),
    ]
    disks.watch.stop()
    disks.usable = 5
    disks.clock.advance(5.0)
    assert len(disks.verdicts) == 4


def test_a_verdict_that_is_awaited_is_told_though_it_is_as_before() -> None:
    disks = Disks()
    disks.watch.start(1.0)
    disks.clock.advance(1.0)
    assert disks.verdicts == []
    disks.awaited = True
    disks.clock.advance(1.0)
    disks.clock.advance(1.0)
    assert [one.read_only for one in disks.verdicts] == [False, False]


def test_a_disk_that_cannot_be_asked_ends_the_watch() -> None:
    disks = Disks()
    disks.watch.start(1.0)
    disks.error = errno.EIO
    disks.clock.advance(1.0)
    disks.clock.advance(1.0)
    (failure,) = disks.failures
    assert isinstance(failure, OSError)


class Storage:
    """What a checkpoint is asked for."""

    def __init__(self) -> None:
        self.has_changes = self.needs_checkpoint = False
        self.begun = self.tidied = 0
        self.ending: Deferred[None] = succeed(None)

    def drop_idle(self) -> None:
        self.tidied += 1

    async def checkpoint(self, _journals: object, _run_blocking: object) -> None:
        self.begun += 1
        self.has_changes = self.needs_checkpoint = False
        await self.ending


class Checkpointing:
    def __init__(self) -> None:
        self.clock, self.storage = Clock(), Storage()
        self.failures: list[Exception] = []
        self.lacks: list[bool] = []
        self.checkpoints = Checkpoints(
            self.clock,
            cast("Storages", self.storage),
            [],
            run_blocking=lambda function: succeed(function()),
            failed=self.failures.append,
            lacks_descriptors=self.lacks.append,
        )
        self.checkpoints.start(10.0)

    def wait(self, seconds: float) -> int:
        self.clock.pump([LOOK_S] * int(seconds / LOOK_S))
        return self.storage.begun


def test_a_checkpoint_without_descriptors_is_told_and_that_it_has_passed() -> None:
    world = Checkpointing()
    for error, lacks in ((errno.EMFILE, [True]), (errno.ENOSPC, []), (errno.ENFILE, [True])):
        world.lacks.clear()
        world.storage.has_changes, world.storage.ending = True, fail(OSError(error, "no"))
        world.wait(10)
        assert world.lacks == lacks
    world.storage.has_changes, world.storage.ending = True, succeed(None)
    world.wait(10)
    assert world.lacks == [True, False]
    assert world.failures == []


def test_checkpoints_come_at_their_interval_while_there_are_changes() -> None:
    world = Checkpointing()
    assert world.wait(30) == 0
    world.storage.has_changes = True
    assert world.wait(LOOK_S) == 1
    world.storage.has_changes = True
    assert world.wait(9) == 1
    assert world.wait(2) == 2


def test_ledgers_that_are_only_read_are_forgotten_without_a_checkpoint() -> None:
    world = Checkpointing()
    assert world.wait(2) == 0
    assert world.storage.tidied == 4


def test_a_checkpoint_that_is_needed_does_not_wait() -> None:
    world = Checkpointing()
    world.storage.needs_checkpoint = True
    assert world.wait(LOOK_S) == 1


def test_a_failed_checkpoint_is_tried_again() -> None:
    world = Checkpointing()
    world.storage.has_changes = True
    world.storage.ending = Deferred()
    assert world.wait(11) == 1
    world.storage.ending.errback(OSError(28, "No space left"))
    world.storage.has_changes, world.storage.ending = True, succeed(None)
    assert world.wait(11) == 2
    assert world.failures == []


def test_a_disk_that_stays_full_is_logged_once_a_minute(logs: list[str]) -> None:
    world = Checkpointing()
    world.storage.ending = fail(OSError(errno.ENOSPC, "No space left", "/disk"))
    for _ in range(240):  # Two minutes.
        world.storage.needs_checkpoint = True
        world.storage.ending = fail(OSError(errno.ENOSPC, "No space left", "/disk"))
        world.wait(LOOK_S)
    failed = [line for line in logs if "a checkpoint failed" in line]
    assert 2 <= len(failed) <= 3
    assert all("/disk" in line for line in failed)
    world.storage.needs_checkpoint, world.storage.ending = True, succeed(None)
    world.wait(LOOK_S)
    assert len([line for line in logs if "a checkpoint has succeeded again" in line]) == 1


@pytest.mark.parametrize(
    ("numbers", "is_fatal"),
    [
        ([errno.EIO] * 2, False),
        ([errno.EIO] * 3, True),
        ([errno.EIO, errno.EIO, 0, errno.EIO, errno.EIO], False),
        ([errno.ENOSPC] * 5, False),
        ([errno.EMFILE] * 5, False),
        ([errno.EIO, errno.EIO, errno.ENOSPC, errno.EIO, errno.EIO], False),
    ],
)
def test_a_disk_that_fails_each_checkpoint_ends_the_bookie(numbers, is_fatal) -> None:
    world = Checkpointing()
    for number in numbers:
        world.storage.has_changes, world.storage.ending = True, Deferred()
        world.wait(11)
        if number:
            world.storage.ending.errback(OSError(number, "no"))
        else:
            world.storage.ending.callback(None)
    assert bool(world.failures) is is_fatal


def test_a_dead_storage_is_told_of() -> None:
    world = Checkpointing()
    world.storage.has_changes = True
    world.storage.ending = Deferred()
    world.wait(11)
    world.storage.ending.errback(DiskWriteFailedError("/d/0.log", OSError(5, "EIO")))
    (failure,) = world.failures
    assert isinstance(failure, DiskWriteFailedError)


def test_stopping_waits_for_the_checkpoint_under_way() -> None:
    world = Checkpointing()
    world.storage.has_changes = True
    world.storage.ending = Deferred()
    world.wait(11)
    stopped: list[object] = []
    Deferred.fromCoroutine(world.checkpoints.stop()).addBoth(stopped.append)
    assert stopped == []
    world.storage.ending.callback(None)
    assert stopped == [None]
    world.storage.has_changes = True
    assert world.wait(30) == 1
