"""The objects that outlive a command: the environment, the standard streams, the connections.

A process, or an interactive shell, has one ``Host``.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TextIO, TypeVar

if TYPE_CHECKING:
    from bkclient.blocking import BlockingClient
    from bkclient.config.client import ClientConfig
    from bkclient.ledger.writer import LedgerWriter
    from bkclient.metadata.tree.store import MetadataStore
    from bkclient.metadata.zookeeper_reader.reader import ZooKeeperReader
    from wire.ids import LedgerId

T = TypeVar("T")


def columns_of_environment() -> int | None:
    """Return the width in ``COLUMNS``, which overrides the terminal's; None if unset or 0."""
    text = os.environ.get("COLUMNS", "")
    return (int(text) or None) if text.isdigit() else None


def leave(status: int, words: str = "") -> None:
    """End the process now, without clean-up; try to flush the output first."""
    with contextlib.suppress(Exception):
        # A reader that does not read must not block the end.
        if select.select([], [sys.stdout.fileno()], [], 0)[1]:
            sys.stdout.flush()
        # A progress bar hides the cursor.
        sys.stderr.write("\x1b[?25h" if sys.stderr.isatty() else "")
        sys.stderr.write(f"bkctl: left at once{'; ' if words else ''}{words}\n")
        sys.stderr.flush()
    os._exit(status)


class KeptWriters(Protocol):
    """Writers of ledgers that outlive a command, by cluster and ledger."""

    def get(self, uri: str, ledger_id: LedgerId) -> LedgerWriter | None:
        """Return the writer of a ledger, if it is kept and can still write."""

    def keep(self, uri: str, client: BlockingClient, writer: LedgerWriter) -> None:
        """Keep the writer of a ledger."""


class Host:
    """The environment, the standard streams and the connections, for any number of commands."""

    proc = "/proc"
    """The directory where the kernel shows the processes of this machine."""

    def __init__(
        self,
        *,
        environ: Mapping[str, str] | None = None,
        stdin: TextIO | None = None,
        stdout: TextIO | None = None,
        stderr: TextIO | None = None,
        connect: Callable[[str, ClientConfig], BlockingClient] | None = None,
    ) -> None:
        """Arguments default to the process's own; its streams are looked up at each use."""
        self.environ = os.environ if environ is None else environ
        self._streams = stdin, stdout, stderr
        self._connect = connect or _connect
        self._clients: dict[tuple[str, ClientConfig], BlockingClient] = {}
        self.writers: KeptWriters | None = None
        """The writers that outlive a command; None outside a shell."""
        self.last: dict[str, str] = {}
        """The ids of the last value that was printed alone, by the names of their fields."""
        self.warned: set[str] = set()
        """The subjects of past warnings, which are not repeated."""

    @property
    def stdin(self) -> TextIO:
        return self._streams[0] or sys.stdin

    @property
    def stdout(self) -> TextIO:
        return self._streams[1] or sys.stdout

    @property
    def stderr(self) -> TextIO:
        return self._streams[2] or sys.stderr

    def client(self, uri: str, config: ClientConfig) -> BlockingClient:
        """Return the connection to one cluster, made at the first call."""
        if (uri, config) not in self._clients:
            self._clients[uri, config] = self._connect(uri, config)
        return self._clients[uri, config]

    def metadata_reader(self, uri: str, config: ClientConfig) -> ZooKeeperReader | None:
        """Return a metadata reader for one command; None if the command needs a client."""
        from bkclient.metadata.store_settings import store_options
        from bkclient.metadata.zookeeper_reader import open_metadata_reader

        return open_metadata_reader(uri, **store_options(config, uri))

    def with_store(
        self, uri: str, work: Callable[[MetadataStore], Awaitable[T]], config: ClientConfig
    ) -> T:
        """Return ``await work(store)``, with the metadata of a cluster that may not exist."""
        from bkclient.blocking import with_store
        from bkclient.metadata.store_settings import store_options

        return with_store(uri, work, **store_options(config, uri))

    def leave(self, status: int, words: str) -> None:
        """End a command that does not end itself: by default, with the process."""
        leave(status, words)

    def clock_s(self) -> float:
        """Return the time of day, in seconds since the epoch."""
        return time.time()

    def elapsed_s(self) -> float:
        """Return the time on a monotonic clock, in seconds since any moment."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait; a signal ends it at once."""
        time.sleep(seconds)

    def close(self) -> None:
        """Close every connection."""
        while self._clients:
            self._clients.popitem()[1].close()


def _connect(uri: str, config: ClientConfig) -> BlockingClient:
    from bkclient.blocking import BlockingClient

    return BlockingClient(uri, config=config)
