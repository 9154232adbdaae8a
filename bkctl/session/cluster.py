"""The cluster of one command: its address, the connection, and a view of its metadata."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar

from bkctl.errors import Interrupted

if TYPE_CHECKING:
    from bkclient.blocking import BlockingClient
    from bkclient.client import Client
    from bkclient.config.client import ClientConfig
    from bkclient.metadata.stored_values import BookieStatus
    from bkclient.metadata.tree.store import MetadataStore
    from bkclient.metadata.versions_and_watches import StoredLedger
    from bkctl.environment_and_streams import Host
    from bkctl.global_options import Options
    from bkctl.session.stderr_and_stdin import Messages
    from wire.ids import LedgerId

P = ParamSpec("P")
T = TypeVar("T")


class SessionCluster:
    """The cluster of one command; it reads settings and connects at the first use."""

    def __init__(self, host: Host, options: Options, messages: Messages) -> None:
        self._host, self._options, self._messages = host, options, messages
        self._settings: tuple[str, ClientConfig] | None = None
        self._view: MetadataView | None = None
        self._at_end = contextlib.ExitStack()
        self.was_asked = False
        """True once the client was used."""
        self._has_answered = False
        self.replication_note: bytes | None = None
        """The note of the operator who disabled autorecovery; ``None`` while it is enabled.

        It is read with the cluster's first answer, so that no read follows the command's printed
        result.
        """
        self._is_traced = False

    @property
    def uri(self) -> str:
        """The metadata service's URI: from a flag, the environment, the profile, the settings file.

        Raises:
            UsageError: none of them names a cluster.
        """
        return self._where()[0]

    @property
    def config(self) -> ClientConfig:
        """The client's settings, from the same places."""
        return self._where()[1]

    @property
    def client(self) -> BlockingClient:
        """The connection to the cluster."""
        uri, config = self._where()
        if not self.was_asked:
            self.was_asked = True
            _start_logging(self._options, self._messages)
        with self._waiting(uri), _unanswered(uri):
            client = self._host.client(uri, config)
        if self._options.verbose > 1 and not self._is_traced:
            from bkctl.session.stderr_log import trace

            self._is_traced = True
            each = self._options.verbose > 2  # noqa: PLR2004 -- -vvv
            trace(client, self._messages.trace, each=each)
            self._at_end.callback(trace, client, None)

        self._read_note(lambda: client.call(_replication_note))
        return client

    def call(
        self,
        function: Callable[Concatenate[Client, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run ``await function(client, *args, **kwargs)`` on the reactor; return its value."""
        with self._messages.waiting("waiting for the cluster"):
            return self.client.call(function, *args, **kwargs)

    def with_store(self, work: Callable[[MetadataStore], Awaitable[T]]) -> T:
        """Return ``await work(store)``, with the metadata of a cluster that may not exist."""
        uri, config = self._where()
        with self._waiting(uri):
            return self._host.with_store(uri, work, config)

    @property
    def view(self) -> MetadataView:
        """The cluster's metadata, read-only; if possible without a client.

        A trace of requests (``-vv``) needs a client.
        """
        if self._view is None:
            uri, config = self._where()
            found = None if self._options.verbose > 1 else self._host.metadata_reader(uri, config)
            if found is not None:
                found.warn = self._messages.warn_as_logs_do
            self._view = found or ClientMetadataView(self)
        with self._waiting(self.uri), _unanswered(self.uri):
            self._view.begin()
        self._read_note(self._view.replication_note)
        return self._view

    @property
    def view_in_use(self) -> MetadataView:
        """The view that the command used, else a view through its client: no further connection."""
        return self._view or ClientMetadataView(self)

    @property
    def was_reached(self) -> bool:
        """True if the metadata was read, or the client used."""
        return self._view is not None or self.was_asked

    def _waiting(self, uri: str) -> AbstractContextManager[None]:
        return self._messages.waiting(f"waiting for {uri}", first=True)

    def _read_note(self, read: Callable[[], bytes | None]) -> None:
        if self._has_answered or self._options.quiet:
            return
        self._has_answered = True
        from bkclient.errors import ClientError

        with contextlib.suppress(ClientError):
            self.replication_note = read()

    def close_view(self) -> None:
        """Close the connection that reads metadata; the next read opens a new one."""
        if self._view is not None:
            self._view.close()

    def close(self) -> None:
        """Release this command's own resources."""
        self._at_end.close()

    def _where(self) -> tuple[str, ClientConfig]:
        if self._settings is None:
            from bkctl.session.cluster_settings import cluster_settings

            found = cluster_settings(self._options, self._host.environ)
            for warning in found.warnings:
                self._messages.warn(warning)
            self._messages.verbose(f"cluster: {found.uri} (from {found.origin})")
            self._settings = found.uri, found.config
        return self._settings


@contextlib.contextmanager
def _unanswered(uri: str) -> Iterator[None]:
    """Name the cluster in an interruption of the wait for it."""
    try:
        yield
    except Interrupted as error:
        if uri in error.reason:
            raise
        words = f"{error.reason}; {uri} had not answered yet"
        raise Interrupted(words, error.exit_status) from None


def _start_logging(options: Options, messages: Messages) -> None:
    from bkctl.session.stderr_log import start_logging

    level = options.log_level or ("critical" if options.quiet else "warn")
    if options.log_level is None and options.verbose:
        level = "info" if options.verbose == 1 else "debug"
    start_logging(level, lambda: messages.host.stderr)


class MetadataView(Protocol):
    """Reads of the metadata. All methods block, and raise ``ClientError`` if the read fails."""

    def begin(self) -> None:
        """Start to watch the metadata; do nothing if that has started since ``close``."""

    def ledger_ranges(self, after: LedgerId | None) -> Iterator[Sequence[LedgerId]]:
        """Yield the ids of all ledgers above ``after``, ascending, many at a time."""

    def ledgers(self, ids: Sequence[LedgerId]) -> Iterator[list[StoredLedger]]:
        """Yield ledgers in the order of ``ids``, in batches; deleted ledgers are left out."""

    def bookies(self) -> tuple[BookieStatus, ...]:
        """Return every bookie that is registered or has a cookie, by id."""

    def replication_note(self) -> bytes | None:
        """Return the note about disabled autorecovery; ``None`` while it is enabled."""

    def instance_id(self) -> str | None:
        """Return the cluster's instance id; ``None`` without one."""

    def close(self) -> None:
        """Close the connection of the reads."""


class ClientMetadataView:
    """A ``MetadataView`` through a client."""

    def __init__(self, cluster: SessionCluster) -> None:
        self._cluster = cluster

    def begin(self) -> None:
        """Do nothing: the client watches the metadata itself."""

    def ledger_ranges(self, after: LedgerId | None) -> Iterator[Sequence[LedgerId]]:
        return self._cluster.client.iterate(lambda client: client.store.ledger_ranges(after=after))

    def ledgers(self, ids: Sequence[LedgerId]) -> Iterator[list[StoredLedger]]:
        """Yield ledgers in batches; the first batch has ``AT_FIRST`` of them."""
        from bkclient.admin.ledger_scan import AT_FIRST, IDS_AT_ONCE

        end = 0
        while end < len(ids):
            at, end = end, end + (IDS_AT_ONCE if end else AT_FIRST)
            yield self._cluster.call(_ledgers, ids[at:end])

    def bookies(self) -> tuple[BookieStatus, ...]:
        from bkclient.admin import cluster_operations

        return self._cluster.call(cluster_operations.list_bookies)

    def replication_note(self) -> bytes | None:
        return self._cluster.call(_replication_note)

    def instance_id(self) -> str | None:
        return self._cluster.call(lambda client: client.store.instance_id())

    def close(self) -> None:
        """Do nothing: the client belongs to its owner."""


async def _ledgers(client: Client, ids: Sequence[LedgerId]) -> list[StoredLedger]:
    from bkclient.admin.ledger_scan import read_ledgers

    return await read_ledgers(client.store, ids)


def _replication_note(client: Client) -> Awaitable[bytes | None]:
    return client.store.replication_note()
