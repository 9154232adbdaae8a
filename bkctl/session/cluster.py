"""The cluster of one command: which it is, the connection, and a look at its metadata."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from bkctl.errors import Interrupted

if TYPE_CHECKING:
    from bkclient.blocking import BlockingClient
    from bkclient.config.client import ClientConfig
    from bkclient.metadata.api import MetadataStore
    from bkctl.host import Host
    from bkctl.options import Options
    from bkctl.session.messages import Messages
    from bkctl.session.metadata_view import Caller, MetadataView

T = TypeVar("T")


class SessionCluster:
    """Settings are read, and connections made, at the first use."""

    def __init__(self, host: Host, options: Options, messages: Messages, caller: Caller) -> None:
        """``caller`` runs what looks at the metadata through the client."""
        self._host, self._options, self._messages = host, options, messages
        self._caller = caller
        self._settings: tuple[str, ClientConfig] | None = None
        self._view: MetadataView | None = None
        self._at_end = contextlib.ExitStack()
        self.was_asked = False
        """Whether the client was asked for."""
        self._has_answered = False
        self.replication_note: bytes | None = None
        """What was said when autorecovery was disabled; ``None`` while it is enabled.

        It is read as soon as the cluster answers, so that nothing is read once a command has
        printed its result.
        """
        self._is_traced = False

    @property
    def uri(self) -> str:
        """The metadata service: flag, environment, profile, settings file, in this order.

        Raises:
            UsageError: nothing says which.
        """
        return self._where()[0]

    @property
    def config(self) -> ClientConfig:
        """The client's settings, from the same places."""
        return self._where()[1]

    @property
    def client(self) -> BlockingClient:
        """The connection with the cluster."""
        uri, config = self._where()
        if not self.was_asked:
            self.was_asked = True
            _start_logging(self._options, self._messages)
        with _unanswered(uri):
            client = self._host.client(uri, config)
        if self._options.verbose > 1 and not self._is_traced:
            from bkctl.session.tracing import trace

            self._is_traced = True
            each = self._options.verbose > 2  # noqa: PLR2004 -- -vvv
            trace(client, self._messages.trace, each=each)
            self._at_end.callback(trace, client, None)
        from bkctl.session.metadata_view import replication_note

        self._read_note(lambda: client.call(replication_note))
        return client

    def with_store(self, work: Callable[[MetadataStore], Awaitable[T]]) -> T:
        """Return ``await work(store)``, with the metadata of a cluster that need not exist."""
        from bkclient.blocking import with_store
        from bkclient.metadata.store_settings import store_options

        uri, config = self._where()
        return with_store(uri, work, **store_options(config, uri))

    @property
    def view(self) -> MetadataView:
        """The cluster's metadata for what only looks at it; spares the client where that can be.

        A client is not spared where its operations are to be told.
        """
        if self._view is None:
            uri, config = self._where()
            found = None if self._options.verbose > 1 else self._host.metadata_reader(uri, config)
            if found is not None:
                found.warn = self._messages.warn_as_logs_do
            self._view = found or self._client_view()
        with _unanswered(self.uri):
            self._view.begin()
        self._read_note(self._view.replication_note)
        return self._view

    @property
    def view_in_use(self) -> MetadataView:
        """The view that the command read, else one through its client: no other connection."""
        return self._view or self._client_view()

    @property
    def was_reached(self) -> bool:
        """Whether its metadata was looked at, or the client asked for."""
        return self._view is not None or self.was_asked

    def _read_note(self, read: Callable[[], bytes | None]) -> None:
        if self._has_answered or self._options.quiet:
            return
        self._has_answered = True
        from bkclient.errors import ClientError

        with contextlib.suppress(ClientError):
            self.replication_note = read()

    def _client_view(self) -> MetadataView:
        from bkctl.session.metadata_view import ClientMetadataView

        return ClientMetadataView(self._caller)

    def close_view(self) -> None:
        """Close the connection that reads metadata; the next read opens a new one."""
        if self._view is not None:
            self._view.close()

    def close(self) -> None:
        """Release what belongs to this command alone."""
        self._at_end.close()

    def _where(self) -> tuple[str, ClientConfig]:
        if self._settings is None:
            from bkctl.session.settings import cluster_settings

            found = cluster_settings(self._options, self._host.environ)
            for warning in found.warnings:
                self._messages.warn(warning)
            self._messages.verbose(f"cluster: {found.uri} (from {found.origin})")
            self._settings = found.uri, found.config
        return self._settings


@contextlib.contextmanager
def _unanswered(uri: str) -> Iterator[None]:
    """Name the cluster where the wait for it was interrupted."""
    try:
        yield
    except Interrupted as error:
        words = f"{error.reason}; {uri} had not answered yet"
        raise Interrupted(words, error.exit_status) from None


def _start_logging(options: Options, messages: Messages) -> None:
    from bkctl.session.logs import start_logging

    level = options.log_level or ("critical" if options.quiet else "warn")
    if options.log_level is None and options.verbose:
        level = "info" if options.verbose == 1 else "debug"
    start_logging(level, lambda: messages.host.stderr)
