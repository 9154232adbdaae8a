"""The state and the ids of a cluster, for the shell."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakKeyDictionary

import attrs
import click

from bkctl.cli.completion.candidate_order import ordered
from bkctl.cli.parameter_types import BOOKIE_ID, LEDGER_ID, LOG_NAME
from bkctl.commands.tool import completion_ids
from bkctl.commands.tool.completion_ids import Candidates
from bkctl.environment_and_streams import Host, leave
from bkctl.errors import CommandError, Interrupted, error_message
from bkctl.exit_status import Effect, ExitStatus
from bkctl.global_options import Options, options_of
from bkctl.output.units import counted
from bkctl.session.shell_writers import ShellWriters
from wire.errors import BookKeeperError

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

    from bkclient.blocking import BlockingClient
    from bkclient.client import Client
    from bkclient.config.client import ClientConfig
    from bkclient.metadata.tree.store import MetadataStore
    from bkclient.metadata.versions_and_watches import SessionEvent

T = TypeVar("T")

MARKS_MAX: Final = 100
"""Maximum of under-replicated ledgers that are counted."""

LABEL_CHARS: Final = 8

_LOST: Final = "connection with the metadata service lost; trying again"

_WINS_OVER_PROFILE: Final = ("BKCTL_SERVICE_URI", "BKCTL_CONF", "BOOKIE_CONF", "CLI_CONF",
                             "BK_metadataServiceUri")  # fmt: skip


class ShellHost(Host):
    """A host for many commands and for questions in the background.

    A second Ctrl-C ends the command at once, not the process: the shell continues.
    """

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.writers: ShellWriters = ShellWriters()
        self._connecting = threading.Lock()

    def client(self, uri: str, config: ClientConfig) -> BlockingClient:
        with self._connecting:
            return super().client(uri, config)

    def leave(self, status: int, words: str) -> None:
        if status == ExitStatus.TERMINATED:
            leave(status, words)
        if words:
            print(f"bkctl: {words}", file=self.stderr, flush=True)
        raise Interrupted("ended at once", status)


@attrs.frozen
class ClusterState:
    """The state of a cluster, for the prompt and the bar."""

    instance_id: str | None
    writable: int
    read_only: int
    down: int
    marks: int
    autorecovery: bool

    @property
    def label(self) -> str:
        return (self.instance_id or "")[:LABEL_CHARS]

    @property
    def text(self) -> str:
        total = self.writable + self.read_only + self.down
        more = self.marks >= MARKS_MAX
        marks = f"{self.marks}+ ledgers" if more else counted(self.marks, "ledger")
        words = [
            f"{self.writable} of {counted(total, 'bookie')} writable",
            f"{self.read_only} read-only" if self.read_only else "",
            f"{self.down} down" if self.down else "",
            f"{marks} under-replicated" if self.marks else "",
        ]
        return ", ".join(filter(None, words))

    @property
    def problem(self) -> str:
        return "" if self.autorecovery else "autorecovery is off"


class ShellProgram:
    """The program ``bkctl`` for the shell; implements the protocol ``shell.program.Program``."""

    kinds: Mapping[str, Any] = {"ledger": LEDGER_ID, "bookie": BOOKIE_ID}
    place = "profile"
    live = frozenset({LEDGER_ID.name, BOOKIE_ID.name, LOG_NAME.name})

    def __init__(self, tree: click.Group, host: ShellHost, given: Sequence[str] = ()) -> None:
        self.tree, self.obj, self._given = tree, host, given
        self._connections: WeakKeyDictionary[MetadataStore, Connection] = WeakKeyDictionary()

    @property
    def greeting(self) -> str:
        options = self._options(self._given)
        if options.service_uri:  # This option overrides all other sources, which are slow to read.
            return f"bkctl on {options.service_uri}"
        from bkctl.session.cluster_settings import cluster_settings

        try:
            uri = cluster_settings(options, self.obj.environ).uri
        except BookKeeperError as error:
            hint = "set one with: set service-uri URI"
            return f"bkctl: no cluster yet: {error_message(error)} {hint}"
        return f"bkctl on {uri}"

    def go(self, place: str) -> Sequence[str]:  # noqa: ARG002 -- whichever it is
        """Remove settings that would override a profile: flags, and variables of this process."""
        for name in _WINS_OVER_PROFILE:
            os.environ.pop(name, None)
        return ("service-uri", "conf")

    def where(self, given: Sequence[str]) -> tuple[str, str]:
        from bkctl.session.profiles import resolve_profile

        try:
            profile = resolve_profile(self._options(given), self.obj.environ)
        except CommandError:
            return "", ""  # The next command reports the error.
        if profile is None:
            return "", ""
        return profile.name, "production" if profile.production else ""

    def may_fill(self, command: click.Command) -> bool:
        """Return whether values in use may fill the arguments: never in commands that lose data."""
        return getattr(command, "effect", Effect.LOSES_DATA) is not Effect.LOSES_DATA

    @property
    def last(self) -> Mapping[str, str]:
        return self.obj.last

    @property
    def open_resources(self) -> list[str]:
        return [f"ledger {ledger_id}" for ledger_id in self.obj.writers]

    def release(self, report: Callable[[str, bool], object]) -> bool:
        return self.obj.writers.release(report)

    def close(self) -> None:
        self.obj.close()

    # Background questions ------------------------------------------------------------------------

    def candidates(self, kind: str, prefix: str, given: Sequence[str]) -> Candidates:
        options = self._options(given)
        client = self._client(options)
        if kind == LEDGER_ID.name:
            found = client.call(completion_ids.ledgers, prefix, options.ledger_id_format)
        elif kind == BOOKIE_ID.name:
            found = client.call(completion_ids.bookies)
        else:
            found = client.call(completion_ids.logs)
        return found

    def ordered(
        self, command: click.Command, found: Sequence[tuple[str, str]]
    ) -> Sequence[tuple[str, str]]:
        return ordered(command, found)

    def status(self, given: Sequence[str]) -> ClusterState:
        """Return the cluster's state.

        Raises:
            CommandError: the connection with the metadata service is lost.
        """
        client = self._client(self._options(given))
        return client.call(self._ask_state)

    async def _ask_state(self, client: Client) -> ClusterState:
        store = client.store
        if store not in self._connections:
            self._connections[store] = Connection(store)
        return await self._connections[store].ask(cluster_state(store))

    def _client(self, options: Options) -> BlockingClient:
        from bkctl.session.cluster_settings import cluster_settings

        found = cluster_settings(options, self.obj.environ)
        return self.obj.client(found.uri, found.config)

    def _options(self, given: Sequence[str]) -> Options:
        ctx = self.tree.make_context(self.tree.name, list(given), resilient_parsing=True)
        return options_of(ctx)


class Connection:
    """A connection whose loss ends all questions at once, before their time limit.

    Used only on the reactor's thread.
    """

    def __init__(self, store: MetadataStore) -> None:
        self._is_up = True
        self._waiting: set[Deferred[Any]] = set()
        store.on_session(self._changed)

    async def ask(self, question: Coroutine[Deferred[Any], Any, T]) -> T:
        """Return the answer.

        Raises:
            CommandError: the connection is lost, or was lost during the wait for the answer.
        """
        from twisted.internet.defer import Deferred

        if not self._is_up:
            question.close()
            raise CommandError(_LOST)
        answer: Deferred[T] = Deferred()
        self._waiting.add(answer)
        # A question that has just found the loss must not be cancelled while it reports the loss.
        asking = Deferred.fromCoroutine(question)
        asking.addBoth(lambda result: None if answer.called else answer.callback(result))
        try:
            return await answer
        finally:
            self._waiting.discard(answer)
            asking.cancel()

    def _changed(self, event: SessionEvent) -> None:
        from bkclient.metadata.versions_and_watches import SessionEvent

        self._is_up = event is SessionEvent.CONNECTED
        if not self._is_up:
            for one in tuple(self._waiting):
                if not one.called:
                    one.errback(CommandError(_LOST))


async def cluster_state(store: MetadataStore) -> ClusterState:
    """Return the present state of a cluster."""
    from bkclient.replication.autorecovery_admin import count_marks

    writable, read_only = await store.writable_bookies(), await store.read_only_bookies()
    known = await store.known_bookies()
    return ClusterState(
        await store.instance_id(),
        len(writable),
        len(read_only),
        len(known - writable - read_only),
        await count_marks(store, MARKS_MAX),
        await store.replication_enabled(),
    )
