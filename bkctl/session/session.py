"""A command's context: its options, the cluster (connected at first use), the terminal.

A ``Host`` outlives a command; a ``Session`` is one command's view of it. Commands run on the main
thread and block; the reactor has its own thread behind ``BlockingClient``.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

import click

from bkctl.environment_and_streams import Host
from bkctl.exit_status import Effect
from bkctl.global_options import Options, options_of
from bkctl.session.cluster import SessionCluster
from bkctl.session.interrupt import Interrupts
from bkctl.session.questions import Questions
from bkctl.session.stderr_and_stdin import Input, Messages
from wire.errors import BookKeeperError

if TYPE_CHECKING:
    from bkclient.client import Client
    from bkclient.config.client import ClientConfig
    from bkctl.output.emitter import Emitter
    from bkctl.output.progress import Progress
    from bkctl.output.watch_rounds import WatchRounds

P = ParamSpec("P")
T = TypeVar("T")

SESSION_META: Final = "bkctl.session"


@contextlib.contextmanager
def session_for(host: Host, ctx: click.Context) -> Iterator[Session]:
    """Yield the session of one command; close the connections after it, except in a shell."""
    options = options_of(ctx)
    effect = getattr(ctx.command, "effect", Effect.READ)
    owned = ctx.find_root().obj is None
    with Interrupts(options.timeout_s, at_once=host.leave) as interrupts:
        session = Session(host, options, effect, interrupts)
        interrupts.waits_for = lambda: session.messages.waits_for
        ctx.find_root().meta[SESSION_META] = session
        try:
            if getattr(ctx.command, "takes_profile", True):
                from bkctl.session.profiles import take_profile

                take_profile(options, host.environ, session.messages)
            yield session
            _remind(session)
        finally:
            # The pager shows the rows so far, also of an interrupted list.
            session.finish()
            if owned:
                host.close()


def _remind(session: Session) -> None:
    """Print that autorecovery is disabled: operators who forget it lose bookies unnoticed.

    A pause that will end by itself needs no reminder.
    """
    note = session.cluster.replication_note
    if note is None or not session.reminds:
        return
    about = f"autorecovery of {session.uri} is off {hash(note)}"  # A later pause has another note.
    if about not in session.host.warned:
        from bkctl.output.autorecovery_pause import reminder

        session.host.warned.add(about)
        if text := reminder(note):
            session.messages.say(text)


class Session:
    """One command in progress.

    ``about`` names the subject of the command's work; errors name it. ``failed`` is the hint of an
    error right now, instead of the error's own hint; ``resume`` is the hint of an interruption.
    """

    def __init__(
        self, host: Host, options: Options, effect: Effect, interrupts: Interrupts
    ) -> None:
        self.host, self.options, self.effect, self.interrupts = host, options, effect, interrupts
        self.about = ""
        self.failed = ""
        self.resume = ""
        self.refused = ""
        """The step to do first, if a dry run found that the command would be refused."""
        self.reminds = True
        """True to print at the end that autorecovery is disabled."""
        self.messages = Messages(options, host)
        self.questions = Questions(options, self.messages)
        self.input = Input(host)
        self.cluster = SessionCluster(host, options, self.messages)
        self._emitter: Emitter | None = None

    @property
    def dry_run(self) -> bool:
        return self.options.dry_run

    @property
    def answers_within_s(self) -> float:
        """The seconds for answers of bookies: half of what --timeout leaves, at most 10 s.

        A command that asks all bookies thus has time to show the answers that arrived.
        """
        from bkclient.admin.cluster_operations import ANSWERS_WITHIN_S

        return min(ANSWERS_WITHIN_S, self.interrupts.left_s / 2)

    # The cluster --------------------------------------------------------------------------------

    @property
    def uri(self) -> str:
        """The metadata service; see ``SessionCluster.uri``."""
        return self.cluster.uri

    @property
    def config(self) -> ClientConfig:
        """The client's settings."""
        return self.cluster.config

    def call(
        self,
        function: Callable[Concatenate[Client, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run ``await function(client, *args, **kwargs)`` on the reactor; return its value."""
        with self.messages.waiting(f"waiting for {self.about or 'the cluster'}"):
            return self.cluster.client.call(function, *args, **kwargs)

    def run(self, function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``await function(*args, **kwargs)``: for methods of writers and readers."""
        return self.call(lambda _client: function(*args, **kwargs))

    def iterate(
        self,
        function: Callable[Concatenate[Client, P], AsyncIterator[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Generator[T, None, None]:
        """Yield what ``function(client, *args)``, an async iterator, yields on the reactor."""
        yield from self.cluster.client.iterate(lambda client: function(client, *args, **kwargs))

    def waiting_for_bookies(self) -> AbstractContextManager[None]:
        """Show the wait for bookies, if a block runs longer than a second or two."""
        return self.messages.waiting("waiting for answers of bookies")

    # Results ------------------------------------------------------------------------------------

    @property
    def emitter(self) -> Emitter:
        if self._emitter is None:
            from bkctl.output.emitter import Emitter

            if self.options.show_secrets:
                from bkctl.output.atomic_file import keep_private

                keep_private(self.host.stdout)
            options = self.options
            if options.is_typed("columns") and options.output == "id":
                self.warn("-o id prints only ids, and ignores --columns")
            self._emitter = Emitter(options, self.host, title=lambda: _title(self))
        return self._emitter

    def in_round(self, host: Host, watch: WatchRounds | None) -> None:
        """Begin a round of a watched command, or end the rounds."""
        self.host = self.messages.host = host
        self._emitter, self.input.is_read_again = None, watch is not None
        if watch is not None:
            from bkctl.output.emitter import Emitter

            self._emitter = Emitter(self.options, host, watch)

    def emit(self, value: object) -> None:
        """Print one value in the requested form."""
        self.emitter.one(value)

    def plan(self, steps: Iterable[str]) -> None:
        """Print the steps of a dry run.

        Raises:
            RefusedError: without the dry run, the command would be refused.
        """
        from bkctl.output.emitter import Plan

        self.emit(Plan(tuple(steps)))
        self.end_plan()

    def plans_only(self, steps: Iterable[str]) -> bool:
        """In a dry run, print the command's steps; return whether this is a dry run."""
        if self.dry_run:
            self.plan(steps)
        return self.dry_run

    def end_plan(self) -> None:
        """End a dry run whose plan is printed.

        Raises:
            RefusedError: without the dry run, the command would be refused.
        """
        if self.refused:
            from bkctl.errors import RefusedError

            raise RefusedError("this would be refused", next_step=self.refused)

    def emit_all(self, values: Iterable[Any], kind: type) -> None:
        """Print values of one kind while they arrive; an empty result is valid, too."""
        self.emitter.many(values, kind)

    def finish(self) -> None:
        """Release the command's resources, at its end."""
        try:
            self.finish_round()
        finally:
            self.cluster.close()

    def finish_round(self) -> None:
        """Print the emitter's pending output, and close the metadata view."""
        self.cluster.close_view()
        if self._emitter is not None:
            self._emitter.finish()

    # People -------------------------------------------------------------------------------------

    def note(self, text: str) -> None:
        """See ``Messages.note``."""
        self.messages.note(text)

    def verbose(self, text: str) -> None:
        """See ``Messages.verbose``."""
        self.messages.verbose(text)

    def warn(self, text: str) -> None:
        """See ``Messages.warn``."""
        self.messages.warn(text)

    def progress(self, what: str, *, total: int | None = None, unit: str = "bytes") -> Progress:
        """See ``Messages.progress``."""
        return self.messages.progress(what, total=total, unit=unit)

    def confirm(
        self,
        plan: Iterable[str],
        question: str,
        *,
        proof: str | None = None,
        effect: Effect | None = None,
    ) -> None:
        """Show ``plan`` and ask; ``effect`` in place of the command's. See ``Questions.confirm``.

        Raises:
            RefusedError: the answer was no, or there is no terminal to ask.
        """
        self.questions.confirm(plan, question, effect or self.effect, proof)


def _title(session: Session) -> str:
    """Return the profile, the cluster and the time; "" without profile or cluster."""
    profile = session.options.used_profile
    # Without a request to the cluster, the values are of files or of this machine.
    if profile is None or not session.cluster.was_reached:
        return ""
    from bkctl.output.units import human_time

    words = [f"profile {profile.name}"]
    with contextlib.suppress(BookKeeperError):
        words.append(f"cluster {session.cluster.view_in_use.instance_id()}")
    now_ms = int(session.host.clock_s() * 1000)
    return ", ".join([*words, human_time(now_ms, utc=session.options.utc)])
