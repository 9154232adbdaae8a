"""What a command gets: its options, the cluster (connected at first use), the terminal.

A ``Host`` outlives a command: one for the process, or for the life of an interactive shell. A
``Session`` is one command's view of it. Commands run on the main thread and block; the reactor has
a thread of its own behind ``BlockingClient``.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeVar

import click

from bkctl.errors import Interrupted, NothingFoundError, RefusedError
from bkctl.exit_status import Effect
from bkctl.host import Host
from bkctl.options import Options, options_of
from bkctl.output.waiting import ERASE, waiting
from bkctl.session.interrupt import Interrupts, Stop
from wire.errors import BookKeeperError

if TYPE_CHECKING:
    from pathlib import Path

    from bkclient.blocking import BlockingClient
    from bkclient.config.client import ClientConfig
    from bkctl.output.emit import Emitter
    from bkctl.output.progress import Progress
    from bkctl.output.watched import Watch
    from bkctl.session.metadata_view import Look
    from bkctl.session.profiles import Profile

T = TypeVar("T")

SESSION_META: Final = "bkctl.session"


@contextlib.contextmanager
def session_for(host: Host, ctx: click.Context) -> Iterator[Session]:
    """Give one command its session; close the connections after it unless a shell keeps them."""
    options = options_of(ctx)
    effect = getattr(ctx.command, "effect", Effect.READ)
    owned = ctx.find_root().obj is None
    with Interrupts(options.timeout_s, at_once=host.leave) as interrupts:
        session = Session(host, options, effect, interrupts)
        ctx.find_root().meta[SESSION_META] = session
        try:
            if getattr(ctx.command, "takes_profile", True):
                session.use_profile()
            yield session
            session.remind()
        finally:
            # The pager shows what there is, also of a list that broke off.
            session.finish()
            if owned:
                host.close()


class Session:
    """One command at work.

    ``about`` names what the command is at work on, and errors name it. ``failed`` says what to do
    after an error just now, instead of the error's own hint, and ``resume`` after an interruption.
    """

    def __init__(
        self, host: Host, options: Options, effect: Effect, interrupts: Interrupts
    ) -> None:
        self.host, self.options, self.effect = host, options, effect
        self.about = ""
        self.failed = ""
        self.resume = ""
        self.reminds = True
        """Whether to say at the end that autorecovery is off."""
        self._connected = False
        self._interrupts = interrupts
        self._emitter: Emitter | None = None
        self._at_end = contextlib.ExitStack()
        self._is_watched = False
        self._lines: list[str] | None = None
        self._settings: tuple[str, ClientConfig] | None = None
        self._was_asked = False
        self._is_traced = False
        self._look: Look | None = None
        self._progress: Progress | None = None
        self._waits = False
        """Whether the last line of the terminal may be one that says what is waited for."""

    # The cluster --------------------------------------------------------------------------------

    @property
    def uri(self) -> str:
        """The metadata service: flag, environment, profile, settings file, in this order.

        Raises:
            UsageError: nothing says which.
        """
        return self._where()[0]

    @property
    def config(self) -> ClientConfig:
        return self._where()[1]

    @property
    def client(self) -> BlockingClient:
        """The connection with the cluster."""
        uri, config = self._where()
        if not self._was_asked:
            self._was_asked = True
            _start_logging(self.options, self.host)
        with _unanswered(uri):
            client = self.host.client(uri, config)
        if self.options.verbose > 1 and not self._is_traced:
            from bkctl.session.tracing import trace

            self._is_traced = True
            trace(client, self.trace, each=self.options.verbose > 2)  # noqa: PLR2004 -- -vvv
            self._at_end.callback(trace, client, None)
        return client

    @property
    def look(self) -> Look:
        """The cluster's metadata for what only looks at it; spares the client where that can be.

        A client is not spared where its operations are to be told.
        """
        if self._look is None:
            uri, config = self._where()
            found = None if self.options.verbose > 1 else self.host.look(uri, config)
            if found is not None:
                found.warn = self._warn_of_metadata
            self._look = found or self._client_look()
        with _unanswered(self.uri):
            self._look.begin()
        self._connected = True
        return self._look

    @property
    def _looked(self) -> Look:
        """The look that the command had, else one through its client: no other connection."""
        return self._look or self._client_look()

    def _client_look(self) -> Look:
        from bkctl.session.metadata_view import ClientLook

        return ClientLook(self)

    def _warn_of_metadata(self, text: str) -> None:
        """Warn as the client's log does."""
        if not self.options.quiet and self.options.log_level not in {"error", "critical"}:
            self.warn(text)

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run ``await function(client, *args, **kwargs)`` on the reactor; return its value."""
        with self.waiting(f"waiting for {self.about or 'the cluster'}"):
            value = self.client.call(function, *args, **kwargs)
        self._connected = True
        return value

    def iterate(
        self, function: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Generator[Any, None, None]:
        """Yield what ``function(client, *args)``, an async iterator, yields on the reactor."""
        yield from self.client.iterate(lambda client: function(client, *args, **kwargs))
        self._connected = True

    def remind(self) -> None:
        """Say it where autorecovery is off: whoever forgot it loses bookies unnoticed."""
        if self._connected and self.reminds and not self.options.quiet:
            from bkclient.errors import ClientError

            try:
                note = self._looked.replication_note()
            except ClientError:
                return
            if note is not None:
                from bkctl.session.reminder import reminder

                self._tell(reminder(note))

    @property
    def profile(self) -> Profile | None:
        """The profile that settings come from, if any do."""
        used: Profile | None = self.options.used_profile
        return used

    def use_profile(self) -> None:
        """Take from the profile what neither flags nor the environment say.

        Raises:
            NothingFoundError: there is no such profile.
            UsageError: the file of profiles cannot be used.
        """
        from bkctl.session.profiles import profile_path, use_profile

        path = profile_path(self.host.environ)
        if self.options.profile is None and (path is None or not path.exists()):
            return
        if use_profile(self.options, self.host.environ) is not None and path is not None:
            self.warn_of_open_file(path)

    def warn_of_open_file(self, path: Path) -> None:
        """Warn, once, when others can read the file of profiles."""
        from bkctl.session.profiles import is_open_to_others

        if is_open_to_others(path) and str(path) not in self.host.warned:
            self.host.warned.add(str(path))
            self.warn(f"{path} can be read by others; chmod 600 {path}")

    def _where(self) -> tuple[str, ClientConfig]:
        if self._settings is None:
            from bkctl.session.settings import cluster_settings

            found = cluster_settings(self.options, self.host.environ)
            for warning in found.warnings:
                self.warn(warning)
            self.verbose(f"cluster: {found.uri} (from {found.origin})")
            self._settings = found.uri, found.config
        return self._settings

    # Results ------------------------------------------------------------------------------------

    @property
    def emitter(self) -> Emitter:
        if self._emitter is None:
            from bkctl.output.emit import Emitter

            if self.options.show_secrets:
                from bkctl.output.whole_file import keep_private

                keep_private(self.host.stdout)
            self._emitter = Emitter(self.options, self.host, title=self._title)
        return self._emitter

    def _title(self) -> str:
        """Return which profile this is, the cluster if it was asked, and when; "" without one."""
        if self.profile is None:
            return ""
        from bkctl.output.units import human_time

        words = [f"profile {self.profile.name}"]
        # Where only its settings were wanted, the cluster may be what does not answer.
        if self._look is not None or self._was_asked:
            with contextlib.suppress(BookKeeperError):
                words.append(f"cluster {self._looked.instance_id()}")
        now_ms = int(self.host.clock_s() * 1000)
        return ", ".join([*words, human_time(now_ms, utc=self.options.utc)])

    def in_round(self, host: Host, watch: Watch | None) -> None:
        """Begin a round of a command that is watched, or go on without that."""
        self.host, self._emitter, self._is_watched = host, None, watch is not None
        if watch is not None:
            from bkctl.output.emit import Emitter

            self._emitter = Emitter(self.options, host, watch)

    def emit(self, value: object) -> None:
        """Print one value in the form that was asked for."""
        self.emitter.one(value)

    def plan(self, steps: Iterable[str]) -> None:
        """Print what a dry run would have done."""
        from bkctl.output.plan import Plan

        self.emit(Plan(tuple(steps)))

    def emit_stream(self, batches: Iterable[Sequence[Any]], kind: type) -> None:
        """Print values of one kind, as many at a time as have come together."""
        self.emitter.stream(batches, kind)

    def emit_all(self, values: Iterable[Any], kind: type) -> None:
        """Print values of one kind as they come; none at all is a result too."""
        self.emitter.many(values, kind)

    def finish(self) -> None:
        """Let go of all that the command had, once it is through."""
        with self._at_end:
            self.finish_round()

    def finish_round(self) -> None:
        """Write out what the emitter holds back, and end the look at the metadata."""
        if self._look is not None:
            self._look.close()
        if self._emitter is not None:
            self._emitter.finish()

    # People -------------------------------------------------------------------------------------

    @property
    def dry_run(self) -> bool:
        return self.options.dry_run

    @property
    def interactive(self) -> bool:
        """Whether somebody can be asked."""
        return not self.options.no_input and self.host.stdin.isatty() and self.host.stderr.isatty()

    def note(self, text: str) -> None:
        """Tell people something that is no result; nothing with ``--quiet``."""
        if not self.options.quiet:
            self._tell(text)

    def verbose(self, text: str) -> None:
        if self.options.verbose:
            self._tell(text)

    def trace(self, text: str) -> None:
        """Tell of a single request, to who asked for everything."""
        if self.options.verbose > 1:
            self._tell(text)

    def warn(self, text: str) -> None:
        self._tell(f"bkctl: warning: {text}")

    def _tell(self, text: str) -> None:
        # With its end of line in one piece: the reactor's thread tells things too.
        erased = ERASE if self._waits else ""
        print(f"{erased}{text}\n", end="", file=self.host.stderr, flush=True)

    def progress(self, what: str, *, total: int | None = None, unit: str = "bytes") -> Progress:
        """Return a progress display for one long piece of work; use it as a context manager."""
        from bkctl.output.progress import make_progress

        made = make_progress(self.options, self.host, what, total=total, unit=unit)
        self._progress = made
        return made

    @contextlib.contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Say on a terminal what is waited for, while a block takes longer than a second."""
        if self._waits or (self._progress is not None and self._progress.is_open):
            yield  # A line moves already.
            return
        with waiting(self.options, self.host, what) as is_shown:
            self._waits = is_shown
            try:
                yield
            finally:
                self._waits = False

    @property
    def last_words(self) -> str:
        """What a second Ctrl-C prints before it ends the process at once."""
        return self._interrupts.last_words

    @last_words.setter
    def last_words(self, text: str) -> None:
        self._interrupts.last_words = text

    def stopping(self) -> contextlib.AbstractContextManager[Stop]:
        """Let Ctrl-C ask the block to stop at a safe point instead of ending it anywhere."""
        return self._interrupts.stopping()

    # Asking -------------------------------------------------------------------------------------

    def confirm(
        self,
        plan: Iterable[str],
        question: str,
        *,
        proof: str | None = None,
        effect: Effect | None = None,
    ) -> None:
        """Show ``plan`` and ask, in the way the ``Effect`` calls for (the command's, or another).

        What loses data asks for ``proof`` (an id) to be typed; everything else for yes or no.

        Raises:
            RefusedError: the answer was no, or there is nobody to ask.
        """
        effect = effect or self.effect
        assert effect is not Effect.READ, "a command that only reads has nothing to ask"
        assert proof is None or effect is Effect.LOSES_DATA
        if self.options.yes:
            return
        if self.profile is not None and self.profile.production:
            self._tell(f"profile {self.profile.name} is marked production")
        for line in plan:
            self._tell(line)
        if not self.interactive:
            raise RefusedError(
                f"{question} Nobody to ask here", next_step=f"add --yes: {self.again('--yes')}"
            )
        if effect is Effect.LOSES_DATA:
            assert proof, "what loses data asks for an id to be typed"
            agreed = self._ask(f"{question}\nType {proof} to go on: ") == proof
        else:
            agreed = self._ask(f"{question} [y/N] ").lower() in {"y", "yes"}
        if not agreed:
            raise RefusedError("not confirmed; nothing was changed")

    def again(self, *more: str) -> str:
        """Return this command line with more options, to be pasted."""
        return shlex.join(["bkctl", *self.options.args, *more])

    def _ask(self, prompt: str) -> str:
        self.host.stderr.write(prompt)
        self.host.stderr.flush()
        answer = self.host.stdin.readline()
        if not answer:  # End of input counts as no.
            self.host.stderr.write("\n")
        return answer.strip()

    def password(self, path: str | None) -> bytes:
        """Return a ledger password: the file's content without its last newline, else empty.

        In place of a file ``-`` is the first line of stdin; on a terminal that is asked for.

        Raises:
            NothingFoundError: there is no such file, or it is not ours to read.
        """
        if path is None:
            return b""
        if path == "-":
            return self._password_typed()
        try:
            with open(path, "rb") as file:  # noqa: PTH123 -- pathlib costs start time
                data = file.read()
        except OSError as error:
            raise NothingFoundError(f"password file {path}: {error.strerror}") from error
        return data.removesuffix(b"\n").removesuffix(b"\r")

    def _password_typed(self) -> bytes:
        if not self.interactive:
            line = self.stdin_bytes.readline()
            return line.removesuffix(b"\n").removesuffix(b"\r")
        from getpass import getpass

        return os.fsencode(getpass("Password: ", stream=self.host.stderr))

    # Bytes --------------------------------------------------------------------------------------

    @property
    def stdin_bytes(self) -> BinaryIO:
        return self.host.stdin.buffer

    @property
    def stdout_bytes(self) -> BinaryIO:
        return self.host.stdout.buffer

    def _piped_lines(self) -> Iterable[str]:
        """Return the lines of stdin: as they come, or kept for the next round of a watch."""
        if not self._is_watched:
            return self.host.stdin
        if self._lines is None:
            self._lines = list(self.host.stdin)
        return self._lines

    def words(self, values: Iterable[Any], kind: click.ParamType[Any]) -> Iterator[Any]:
        """Yield ``values``; in place of ``-`` the words of stdin, each converted by ``kind``."""
        for value in values:
            if value != "-":
                yield value
                continue
            for line in self._piped_lines():
                for word in line.split():
                    yield kind.convert(word, None, None)


@contextlib.contextmanager
def _unanswered(uri: str) -> Iterator[None]:
    """Name the cluster where the wait for it was interrupted."""
    try:
        yield
    except Interrupted as error:
        words = f"{error.reason}; {uri} had not answered yet"
        raise Interrupted(words, error.exit_status) from None


def _start_logging(options: Options, host: Host) -> None:
    from bkctl.session.logs import start_logging

    level = options.log_level or ("critical" if options.quiet else "warn")
    if options.log_level is None and options.verbose:
        level = "info" if options.verbose == 1 else "debug"
    start_logging(level, lambda: host.stderr)
