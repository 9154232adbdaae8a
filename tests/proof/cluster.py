"""The cluster under test: ZooKeeper, bookies of both kinds, and a proxy on every way."""

from __future__ import annotations

import secrets
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import attrs

from bkclient.client import Client
from bkclient.metadata import open_metadata
from bkctl.commands.local.zookeeper import ZooKeeperProcess
from tests.interop.peers.our_bookie import OurBookie
from tests.interop.peers.peers import JavaBookie, zookeeper_client
from tests.proof.clients import ClientProcess
from tests.proof.false_clock import FalseClock
from tests.proof.mounted_disks import Means, OwnDisk
from tests.proof.schedule import Sizes
from tests.proof.settings import BOOKIE, OUR_BOOKIE
from tests.support.reactor import call, run, the_reactor
from tests.support.tcp_proxy import TcpProxy

DISK_BYTES: Final = 1 << 30
STARTED_S: Final = 180.0
ZOOKEEPER_S: Final = 600.0
"""A bound for a loaded machine, no measure: ZooKeeper begins in seconds elsewhere."""


class ClockedBookie(OurBookie):
    """A bookie of ours whose clock can be moved."""

    clock: FalseClock

    def _command(self) -> list[str]:
        return self.clock.command("bookied", "--conf", str(self.conf_path))


@attrs.frozen
class Member:
    """A bookie, the proxy before it, and the one on its way to ZooKeeper."""

    bookie: JavaBookie
    proxy: TcpProxy
    zookeeper: TcpProxy
    disk: OwnDisk | None = None

    @property
    def clock(self) -> FalseClock | None:
        return getattr(self.bookie, "clock", None)


class ProofCluster:
    """Everything that runs; ``close`` ends all of it."""

    def __init__(self, directory: Path, sizes: Sizes, means: Means) -> None:
        self.directory, self._means = directory, means
        self._stack = ExitStack()
        self.members: list[Member] = []
        self.clients: list[ClientProcess] = []
        (directory / "zookeeper").mkdir(parents=True)
        self.histories = directory / "histories"
        self.histories.mkdir()
        self.zookeeper = ZooKeeperProcess(
            directory / "zookeeper", tick_ms=1000, fsync=False, heap_mb=192
        )
        self._stack.callback(self.zookeeper.stop)
        try:
            self.zookeeper.start(ZOOKEEPER_S)
            self.root = f"/proof{secrets.token_hex(3)}"
            self.uri = self._uri(self.zookeeper.port)
            self._initialise()
            for number in range(sizes.bookies):
                self.members.append(self._member(number, is_ours=number < sizes.ours))
            for member in self.members:
                member.bookie.spawn()
                member.proxy.server_port = member.bookie.port
            for member in self.members:
                member.bookie.wait_ready(STARTED_S)
            self.client = run(self._connect(), 120)
            self._stack.callback(lambda: run(self.client.close()))
        except BaseException:
            self.close()
            raise

    def add_clients(self, names: list[str]) -> list[ClientProcess]:
        """Start client processes side by side; each has its own way to ZooKeeper."""
        added = []
        for name in names:
            proxy = self._proxy(self.zookeeper.port)
            client = ClientProcess(name, self._uri(proxy.port), self.histories, proxy)
            self._stack.callback(client.kill)
            added.append(client)
        for client in added:
            client.wait_ready()
        self.clients += added
        return added

    def close(self) -> None:
        """End every process, the latest first."""
        self._stack.close()

    async def marks(self) -> list[int]:
        """Return the ledgers that are marked as under-replicated."""
        return [ledger_id async for ledger_id, _ in self.client.store.list_underreplicated()]

    def _uri(self, port: int) -> str:
        return f"zk+hierarchical://127.0.0.1:{port}{self.root}/ledgers"

    def _initialise(self) -> None:
        with zookeeper_client(self.uri) as zk:
            zk.create(self.root)
        store = call(lambda: open_metadata(self.uri, reactor=the_reactor()))
        run(store.connect())
        run(store.initialize())
        run(store.close())

    async def _connect(self) -> Client:
        return await Client.connect(self.uri, reactor=the_reactor())

    def _proxy(self, port: int = 0) -> TcpProxy:
        proxy = TcpProxy(the_reactor(), port)
        call(proxy.start)
        self._stack.callback(lambda: run(proxy.stop()))
        return proxy

    def _member(self, number: int, *, is_ours: bool) -> Member:
        proxy, zookeeper = self._proxy(), self._proxy(self.zookeeper.port)
        kind, settings = (ClockedBookie, OUR_BOOKIE) if is_ours else (JavaBookie, BOOKIE)
        directory = self.directory / f"bookie-{number}-{'ours' if is_ours else 'java'}"
        disk, settings = None, {**settings, "metadataServiceUri": self._uri(zookeeper.port)}
        if is_ours and self._means.mounts:
            disk = OwnDisk(directory / "disk", DISK_BYTES)
            self._stack.callback(disk.close)
            settings |= {
                f"{name}Directories": disk.directory / name for name in ("journal", "ledger")
            }
        bookie = kind(
            self.uri,
            directory,
            heap_mb=256,
            bookieId=f"127.0.0.1:{proxy.port}",
            **settings,
        )
        self._stack.callback(bookie.kill)
        if isinstance(bookie, ClockedBookie):
            bookie.clock = FalseClock(self.directory / f"clock-{number}")
        return Member(bookie, proxy, zookeeper, disk)
