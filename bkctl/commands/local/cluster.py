"""A cluster on this machine: N bookies as child processes, and their metadata."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from bkclient.config.declaration import value_text
from bkclient.config.properties import PropertiesError
from bkctl.commands.local.bookie_process import BookieProcess, LocalStartError
from bkctl.commands.local.columns import LocalBookie
from bkctl.commands.local.directory import (
    RACKS_KEY,
    START_REQUEST,
    ClusterRecord,
    LocalDirectory,
    bookie_directory,
    host_of,
    is_decommissioned,
    is_removed,
    make_own,
    read_record,
    refuse_started_by_hand,
    write_private,
)
from bkctl.commands.local.metadata import LocalMetadataService
from bkctl.commands.local.ports import bookie_ports
from bkctl.errors import ConflictError
from bkctl.output.units import counted
from bkctl.session.safety_checks import some_names
from wire.errors import BookKeeperError

if TYPE_CHECKING:
    from typing_extensions import Self

START_S_MAX: Final = 180.0
_GONE_S_MAX: Final = 60.0
STOP_S_MAX: Final = 15.0
_POLL_S: Final = 0.05


class LocalCluster:
    """N bookies on this machine. For the main thread: it blocks, and its end ends the children."""

    def __init__(
        self,
        directory: Path | None,
        bookies: int,
        *,
        zookeeper: bool = False,
        uri: str = "",
        port_base: int = 0,
        racks: int | None = None,
        settings: Mapping[str, str] = MappingProxyType({}),
        defaults: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Without ``directory`` a temporary one is made; ``settings`` go into each bookie's file.

        An existing file changes in these keys alone: the rest is as its user has edited it.
        The bookies are in ``racks`` racks in turn; by default in one, or as before. Settings of
        earlier starts apply as well, unless ``settings`` changes them. ``defaults`` apply where
        neither sets a key.

        With ``zookeeper`` the cluster starts one; with ``uri`` the metadata exists already, and
        stays.

        Raises:
            RefusedError: the directory holds something else.
            ConflictError: it holds a cluster of another kind, or of more bookies.
        """
        self.directory = LocalDirectory(directory)
        path = self.directory.path
        known = read_record(path)
        self._may_be_partial = known is not None and not settings
        """Whether bookies that fail leave the others running: not in a new cluster, and not with
        new settings, which all bookies have to start with."""
        if known is None:
            # Kept also if this start fails: the next must not make a cluster without its login.
            known = ClusterRecord(uri, (), racks=racks or 1, settings=dict(settings))
        else:
            if racks not in {None, known.racks}:
                raise ConflictError(
                    f"{path} was made with --racks {known.racks}",
                    next_step="the rack is part of a bookie's address: use another directory",
                )
            _refuse_another(path, known, bookies, zookeeper=zookeeper, elsewhere=uri)
        self._started_with = known.settings
        self.settings = {**known.settings, **settings}
        """For each bookie, beyond what every local bookie has."""
        self._given = settings
        self._defaults = defaults
        self._metadata = LocalMetadataService(
            path, has_zookeeper=zookeeper, zookeeper_port=known.zookeeper_port, elsewhere=uri
        )
        self._racks = known.racks
        self._removed = known.removed
        self._ports = [*known.ports]
        self._bookies = [self._process(*numbered) for numbered in known.numbered.items()]
        ports = bookie_ports(bookies - len(self._bookies), port_base, known.ports)
        self._new = [self._append(port) for port in ports]
        """The bookies that the record does not have yet."""

    def _process(self, number: int, port: int) -> BookieProcess:
        return BookieProcess(host_of(number, self._racks), port, self.directory.bookie(number))

    def _append(self, port: int) -> BookieProcess:
        """Give the cluster one more bookie."""
        self._ports.append(port)
        self._bookies.append(self._process(len(self._ports), port))
        return self._bookies[-1]

    @property
    def uri(self) -> str:
        """The metadata service URI."""
        return self._metadata.uri

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # Start and stop -----------------------------------------------------------------------------

    def start(
        self,
        registered: Callable[[], frozenset[str]],
        known: Callable[[], frozenset[str]],
        initialize: Callable[[], None],
        report: Callable[[str], None] = lambda _: None,
    ) -> list[BookKeeperError]:
        """Start everything and return once every bookie is registered.

        If some bookies of an existing cluster do not start, the others run, and the errors are
        returned. Bookies that were decommissioned are not started. ``initialize`` makes the cluster
        in metadata that has none, ``registered`` returns the bookies that are registered now,
        ``known`` those that have a cookie, ``report`` takes each step as a text.

        Raises:
            ConflictError: it runs already, or one of its bookies does.
            LocalStartError: a part did not start; its last log lines are in the message.
            PropertiesError: a settings file breaks the syntax.
        """
        self.directory.take()
        refuse_started_by_hand(self.directory.path, [one.directory for one in self._bookies])
        if self._metadata.has_zookeeper:
            report("starting ZooKeeper")
            self._metadata.start()
        self.save()
        for bookie in self._new:  # A missing directory of a bookie in the record was removed.
            bookie.directory.mkdir(exist_ok=True)
        initialize()
        self.drop_removed(known)
        wanted = self._without_decommissioned(known(), report)
        _await_gone(registered, wanted, self.insist_on_zookeeper, report)
        report(f"starting {counted(len(wanted), 'bookie')}")
        failed: list[BookKeeperError] = []
        settings = self._bookie_settings()
        started = [
            bookie
            for bookie in wanted
            if self._succeeds(partial(bookie.start, settings, self._given), failed)
        ]
        self._wait(registered, started, failed, report)
        if len(failed) == len(wanted):
            raise failed[0]
        self.keep_settings()  # Only now: new settings that stop a start are not kept.
        return failed

    def _succeeds(self, step: Callable[[], None], failed: list[BookKeeperError]) -> bool:
        """Take a step of one bookie's start; if the others may go on, an error is collected."""
        try:
            step()
        except (LocalStartError, PropertiesError) as error:
            if not self._may_be_partial:
                raise
            failed.append(error)
            return False
        return True

    def _without_decommissioned(
        self, known: Collection[str], report: Callable[[str], None]
    ) -> list[BookieProcess]:
        """Return the bookies to start; where all have lost their cookie, these are all of them."""
        for bookie in self._bookies:
            bookie.is_decommissioned = is_decommissioned(bookie.directory, bookie.bookie_id, known)
        wanted = [bookie for bookie in self._bookies if not bookie.is_decommissioned]
        for bookie in self._bookies if wanted else ():
            if bookie.is_decommissioned:
                report(f"{bookie.bookie_id} was decommissioned and is not started")
        return wanted or self._bookies

    def drop_removed(self, known: Callable[[], Collection[str]]) -> None:
        """Drop bookies that have no directory and, by ``known``, no cookie."""
        lost = [one for one in self._bookies if not one.runs and not one.directory.exists()]
        cookies = known() if lost else ()
        gone = [one for one in lost if is_removed(one.directory, one.bookie_id, cookies)]
        if gone:
            self._bookies = [one for one in self._bookies if one not in gone]
            self._removed += tuple(one.port for one in gone)
            self.save()

    def keep_settings(self) -> None:
        """Let later starts have the settings of this one."""
        self._started_with = self.settings
        for bookie in self._bookies:
            bookie.keep_settings()
        self.save()

    def save(self) -> None:
        """Write into the directory how to start the cluster again."""
        metadata, settings = self._metadata, self._started_with
        where = metadata.uri, tuple(self._ports), metadata.zookeeper_port, metadata.elsewhere
        self.directory.save(ClusterRecord(*where, self._racks, settings, self._removed))

    def _bookie_settings(self) -> dict[str, str]:
        script = value_text(str(self.directory.racks_file))
        return {
            **({RACKS_KEY: script} if self._racks > 1 else {}),
            "metadataServiceUri": value_text(self.uri),
            "httpAdminTokenFile": value_text(str(self.directory.token_file)),
            **self._defaults,
            **self.settings,
        }

    def _wait(
        self,
        registered: Callable[[], frozenset[str]],
        wanted: Sequence[BookieProcess],
        failed: list[BookKeeperError],
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Wait until each bookie is registered, or has ended and its error is in ``failed``."""
        deadline_s = time.monotonic() + START_S_MAX
        missing = running = list(wanted)
        reported = 0
        while missing:
            running = [one for one in running if self._succeeds(one.insist_running, failed)]
            self.insist_on_zookeeper()
            if time.monotonic() > deadline_s:
                raise LocalStartError(
                    f"{missing[0].bookie_id} is not up after {START_S_MAX:.0f} s; "
                    f"{missing[0].log}:\n{missing[0].log_tail()}"
                )
            time.sleep(_POLL_S)
            up = registered()
            missing = [bookie for bookie in running if bookie.bookie_id not in up]
            count = len(running) - len(missing)
            if reported < count < len(wanted):  # The table follows the last one.
                reported = count
                left = some_names([bookie.bookie_id for bookie in missing])
                report(
                    f"{count} of {counted(len(wanted), 'bookie')} registered; waiting for {left}"
                )

    def stop(self) -> None:
        """Stop everything that runs, bookies first; the directory stays."""
        for bookie in self._bookies:
            bookie.ask_to_stop()
        deadline_s = time.monotonic() + STOP_S_MAX
        for bookie in self._bookies:
            bookie.stop(max(0.1, deadline_s - time.monotonic()))
        self._metadata.stop()
        self.directory.release()

    def write_configs(self, directory: Path) -> None:
        """Write the settings of each bookie there, and those of all as ``baseconf.conf``.

        The names are those of Java's `localbookie`, which `bookkeeper shell -localbookie` looks
        for.

        Raises:
            RefusedError: another user can change what is in the directory.
        """
        make_own(directory)
        for bookie in self._bookies:
            write_private(directory / f"{bookie.bookie_id}.conf", bookie.conf.read_text("utf-8"))
        base = f"metadataServiceUri={value_text(self.uri)}\n"
        write_private(directory / "baseconf.conf", base)

    # One bookie ---------------------------------------------------------------------------------

    def kill(self, number: int) -> str:
        """End a bookie (1 is the first) with SIGKILL; return its id."""
        bookie = self._bookies[number - 1]
        bookie.kill()
        return bookie.bookie_id

    def restart(self, number: int, registered: Callable[[], frozenset[str]]) -> None:
        """Start a bookie again that has ended, and wait until it is registered.

        Raises:
            LocalStartError: it did not start.
        """
        bookie = self._bookies[number - 1]
        _await_gone(registered, [bookie], self.insist_on_zookeeper, lambda _: None)
        bookie.start(self._bookie_settings())
        failed: list[BookKeeperError] = []
        self._wait(registered, [bookie], failed)
        for error in failed:
            raise error

    # While it runs ------------------------------------------------------------------------------

    def insist_on_zookeeper(self) -> None:
        """Do nothing where the ZooKeeper runs, or none was started.

        Raises:
            ZooKeeperEndedError: it has ended; nothing works without it.
        """
        again = f"bkctl local {len(self._bookies)} --zookeeper --dir {self.directory.path}"
        self._metadata.insist_running("" if self.directory.is_temporary else again)

    def newly_ended(self) -> Iterator[tuple[str, int, Path]]:
        """Yield id, exit status and log of bookies that ended by themselves since the last call."""
        for bookie in self._bookies:
            if (status := bookie.take_end()) is not None:
                yield bookie.bookie_id, status, bookie.log

    def start_requested(self, warn: Callable[[str], None]) -> None:
        """Start the bookies for which ``bkctl local`` has left a request, new ones included."""
        while (self.directory.bookie(len(self._ports) + 1) / START_REQUEST).exists():
            (port,) = bookie_ports(1, 0, self._ports)
            self._append(port)
            self.save()
        for bookie in self._bookies:
            request = bookie.directory / START_REQUEST
            if not request.exists():
                continue
            if bookie.state().state != "up":
                try:
                    bookie.start(self._bookie_settings())
                except (LocalStartError, PropertiesError) as error:
                    warn(f"bookie {bookie.bookie_id} was not started: {error}")
                    bookie.log_reason(error)  # `local start` waits for it.
            request.unlink(missing_ok=True)

    def states(self) -> list[LocalBookie]:
        """Return the cluster's processes, for a table."""
        return [bookie.state() for bookie in self._bookies]


def _await_gone(
    registered: Callable[[], frozenset[str]],
    bookies: Sequence[BookieProcess],
    insist_on_zookeeper: Callable[[], None],
    report: Callable[[str], None],
) -> None:
    """Wait until no bookie is registered: a killed one stays registered for a while.

    Its registration would be taken for that of the bookie that starts, which has to wait as long
    in any case.
    """
    ids = {bookie.bookie_id for bookie in bookies}
    if not ids & registered():
        return
    report("waiting until the registrations from before a crash have ended")
    deadline_s = time.monotonic() + _GONE_S_MAX
    while left := ids & registered():
        insist_on_zookeeper()
        if time.monotonic() > deadline_s:
            raise LocalStartError(f"{min(left)} is registered by another process")
        time.sleep(_POLL_S)


def _refuse_another(
    directory: Path, known: ClusterRecord, bookies: int, *, zookeeper: bool, elsewhere: str
) -> None:
    """Refuse a directory whose cluster is of another kind, or has more bookies.

    Raises:
        ConflictError: it is.
    """
    if bool(known.zookeeper_port) != zookeeper:
        raise ConflictError(
            f"{directory} was made {'without' if zookeeper else 'with'} --zookeeper"
        )
    if elsewhere != known.elsewhere:
        raise ConflictError(f"{directory} was made with {known.elsewhere or 'metadata of its own'}")
    numbers = known.numbered
    held = sum(bookie_directory(directory, one).exists() for one in numbers) or len(numbers)
    if held > bookies:
        raise ConflictError(
            f"{directory} holds {counted(held, 'bookie')}, not {bookies}; "
            "a decommissioned bookie counts until its directory is removed",
            next_step=f"bkctl local {held} --dir {directory} --background",
        )
