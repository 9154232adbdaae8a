"""The metadata of a local cluster: a SQLite file, a ZooKeeper of its own, or one that runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from bkctl.errors import CommandError
from bkctl.exit_status import ExitStatus

if TYPE_CHECKING:
    from bkctl.commands.local.zookeeper_process import ZooKeeperProcess

HOST: Final = "127.0.0.1"


class ZooKeeperEndedError(CommandError):
    """The ZooKeeper of a local cluster has ended by itself."""

    exit_status = ExitStatus.UNREACHABLE


class LocalMetadataService:
    """The metadata service of one local cluster."""

    def __init__(
        self, directory: Path, *, has_zookeeper: bool, zookeeper_port: int = 0, elsewhere: str = ""
    ) -> None:
        """With ``has_zookeeper`` the cluster runs its own; port 0 is a free one.

        ``elsewhere`` is the URI of metadata that the cluster neither starts nor stops.
        """
        self.elsewhere, self.has_zookeeper = elsewhere, has_zookeeper
        self.zookeeper_port = zookeeper_port
        self._directory = directory
        self._server: ZooKeeperProcess | None = None

    @property
    def uri(self) -> str:
        """The metadata service URI; that of a ZooKeeper is complete once it has started."""
        if self.elsewhere:
            return self.elsewhere
        if self.has_zookeeper:
            return f"zk+hierarchical://{HOST}:{self.zookeeper_port}/ledgers"
        return f"sqlite://{self._directory / 'metadata.db'}"

    def start(self) -> None:
        """Start the ZooKeeper; return when it answers.

        Raises:
            ZooKeeperStartError: it did not start.
        """
        from bkctl.commands.local.zookeeper_process import ZooKeeperProcess

        directory = self._directory / "zookeeper"
        directory.mkdir(exist_ok=True)
        self._server = ZooKeeperProcess(directory, port=self.zookeeper_port)
        self._server.start()
        self.zookeeper_port = self._server.port

    def stop(self) -> None:
        """Stop the ZooKeeper, if one was started."""
        if self._server is not None:
            self._server.stop()
            self._server = None

    def insist_running(self, start_line: str) -> None:
        """Do nothing where the ZooKeeper runs, or none was started.

        ``start_line`` starts the cluster again; empty if its directory is temporary.

        Raises:
            ZooKeeperEndedError: it has ended; nothing works without it.
        """
        server = self._server
        if server is None or server.running:
            return
        next_step = "--dir DIR keeps its log and its files"
        if start_line:
            next_step = f"its log is {server.log}; to start all again: {start_line}"
        raise ZooKeeperEndedError(f"ZooKeeper ended with {server.returncode}", next_step=next_step)
