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
    requested_port,
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
        """Without ``directory`` a temporary one is created.

        ``settings`` go into each bookie's file; in an existing file only their keys change.
        Settings of earlier starts apply, too, unless ``settings`` changes them. ``defaults`` apply
        to keys that neither sets. The bookies are distributed over ``racks`` racks; the default is
        one, or the number of the existing cluster.

        With ``zookeeper`` the cluster starts a ZooKeeper. With ``uri`` the metadata exists already
        and is not removed.

        Raises:
            RefusedError: the directory contains something else.
            ConflictError: it contains a cluster of another kind, or of more bookies.
        """
        self.directory = LocalDirectory(directory)
        path = self.directory.path
        known = read_record(path)
        self._may_be_partial = known is not None and not settings
        """True if the cluster may start without failed bookies: not if it or settings are new."""
        if known is None:
            # Kept even if this start fails: the next start needs the login of the settings.
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
        """The settings of each bookie, besides those of every local bookie."""
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
        """The bookies that are not in the record yet."""

    def _process(self, number: int, port: int) -> BookieProcess:
        return BookieProcess(host_of(number, self._racks), port, self.directory.bookie(number))

    def _append(self, port: int) -> BookieProcess:
        """Add a bookie to the cluster."""
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
        """Start all processes, and return after every bookie is registered.

        If some bookies of an existing cluster do not start, the others run, and the errors are
        returned. Decommissioned bookies are not started. ``initialize`` creates the cluster in
        empty metadata. ``registered`` returns the registered bookies, ``known`` those with a
        cookie. ``report`` is called with each step as a text.

        Raises:
            ConflictError: the cluster or one of its bookies runs already.
            LocalStartError: a process did not start; its last log lines are in the message.
            PropertiesError: a settings file has a syntax error.
        """
        self.directory.take()
        refuse_started_by_hand(self.directory.path, [one.directory for one in self._bookies])
        if self._metadata.has_zookeeper:
            report("starting ZooKeeper")
            self._metadata.start()
        self.save()
        for bookie in self._new:  # A missing directory of a recorded bookie was removed.
            bookie.directory.mkdir(exist_ok=True)
        initialize()
        self.drop_removed(known)
        wanted = self._without_decommissioned(known(), report)
        _await_gone(registered, wanted, self.require_zookeeper, report)
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
        self.keep_settings()  # Last: settings that prevent a start are not kept.
        return failed

    def _succeeds(self, step: Callable[[], None], failed: list[BookKeeperError]) -> bool:
        """Return whether a step of a start succeeds; an allowed error goes to ``failed``."""
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
        """Return the bookies to start; all of them if every bookie has lost its cookie."""
        for bookie in self._bookies:
            bookie.is_decommissioned = is_decommissioned(bookie.directory, bookie.bookie_id, known)
        wanted = [bookie for bookie in self._bookies if not bookie.is_decommissioned]
        for bookie in self._bookies if wanted else ():
            if bookie.is_decommissioned:
                report(f"{bookie.bookie_id} was decommissioned and is not started")
        return wanted or self._bookies

    def drop_removed(self, known: Callable[[], Collection[str]]) -> None:
        """Drop bookies without a directory and, by ``known``, without a cookie."""
        lost = [one for one in self._bookies if not one.runs and not one.directory.exists()]
        cookies = known() if lost else ()
        gone = [one for one in lost if is_removed(one.directory, one.bookie_id, cookies)]
        if gone:
            self._bookies = [one for one in self._bookies if one not in gone]
            self._removed += tuple(one.first_port for one in gone)
            self.save()

    def keep_settings(self) -> None:
        """Keep the settings of this start for later starts."""
        self._started_with = self.settings
        for bookie in self._bookies:
            bookie.keep_settings()
        self.save()

    def save(self) -> None:
        """Write the record that starts the cluster again to the directory."""
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
            running = [one for one in running if self._succeeds(one.require_running, failed)]
            self.require_zookeeper()
            if time.monotonic() > deadline_s:
                raise LocalStartError(
                    f"{missing[0].bookie_id} is not up after {START_S_MAX:.0f} s; "
                    f"{missing[0].log}:\n{missing[0].log_tail()}"
                )
            time.sleep(_POLL_S)
            up = registered()
            missing = [bookie for bookie in running if bookie.bookie_id not in up]
            count = len(running) - len(missing)
            if reported < count < len(wanted):  # The table reports the last one.
                reported = count
                left = some_names([bookie.bookie_id for bookie in missing])
                report(
                    f"{count} of {counted(len(wanted), 'bookie')} registered; waiting for {left}"
                )

    def stop(self) -> None:
        """Stop all processes, bookies first; the directory stays."""
        for bookie in self._bookies:
            bookie.ask_to_stop()
        deadline_s = time.monotonic() + STOP_S_MAX
        for bookie in self._bookies:
            bookie.stop(max(0.1, deadline_s - time.monotonic()))
        self._metadata.stop()
        self.directory.release()

    def write_configs(self, directory: Path) -> None:
        """Write each bookie's settings to ``directory``, and the common ones as ``baseconf.conf``.

        The names are those of Java's `localbookie`, which `bookkeeper shell -localbookie` reads.

        Raises:
            RefusedError: another user can change files in the directory.
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
            LocalStartError: the bookie did not start.
        """
        bookie = self._bookies[number - 1]
        _await_gone(registered, [bookie], self.require_zookeeper, lambda _: None)
        bookie.start(self._bookie_settings())
        failed: list[BookKeeperError] = []
        self._wait(registered, [bookie], failed)
        for error in failed:
            raise error

    # While it runs ------------------------------------------------------------------------------

    def require_zookeeper(self) -> None:
        """Raise if the cluster's own ZooKeeper has ended.

        Raises:
            ZooKeeperEndedError: it has ended; the cluster cannot work without it.
        """
        again = f"bkctl local {len(self._bookies)} --zookeeper --dir {self.directory.path}"
        self._metadata.require_running("" if self.directory.is_temporary else again)

    def newly_ended(self) -> Iterator[tuple[str, int, Path]]:
        """Yield id, exit status and log of bookies that ended by themselves since the last call."""
        for bookie in self._bookies:
            if (status := bookie.take_end()) is not None:
                yield bookie.bookie_id, status, bookie.log

    def start_requested(self, warn: Callable[[str], None]) -> None:
        """Start the bookies that ``bkctl local`` has requested, new ones included."""
        while (request := self.directory.bookie(len(self._ports) + 1) / START_REQUEST).exists():
            (port,) = bookie_ports(1, requested_port(request), self._ports)
            self._append(port)
            self.save()
        for bookie in self._bookies:
            request = bookie.directory / START_REQUEST
            # A bookie that failed to start may still be ending; the request waits for its end.
            if not request.exists() or bookie.runs:
                continue
            try:
                bookie.start(self._bookie_settings())
            except (LocalStartError, PropertiesError) as error:
                warn(f"bookie {bookie.bookie_id} was not started: {error}")
                bookie.log_reason(error)  # `local start` waits for the reason in the log.
            request.unlink(missing_ok=True)

    def states(self) -> list[LocalBookie]:
        """Return the bookies of the cluster, as rows of a table."""
        return [bookie.state() for bookie in self._bookies]


def _await_gone(
    registered: Callable[[], frozenset[str]],
    bookies: Sequence[BookieProcess],
    require_zookeeper: Callable[[], None],
    report: Callable[[str], None],
) -> None:
    """Wait until none of the bookies is registered: a killed bookie stays registered for a while.

    Its old registration would look like that of the new process, which must wait for its end
    anyway.
    """
    ids = {bookie.bookie_id for bookie in bookies}
    if not ids & registered():
        return
    report("waiting until the registrations from before a crash have ended")
    deadline_s = time.monotonic() + _GONE_S_MAX
    while left := ids & registered():
        require_zookeeper()
        if time.monotonic() > deadline_s:
            raise LocalStartError(f"{min(left)} is registered by another process")
        time.sleep(_POLL_S)


def _refuse_another(
    directory: Path, known: ClusterRecord, bookies: int, *, zookeeper: bool, elsewhere: str
) -> None:
    """Refuse a directory whose cluster is of another kind, or has more bookies.

    Raises:
        ConflictError: the directory has another cluster.
    """
    if bool(known.zookeeper_port) != zookeeper:
        raise ConflictError(
            f"{directory} was made {'without' if zookeeper else 'with'} --zookeeper"
        )
    if elsewhere != known.elsewhere:
        raise ConflictError(f"{directory} was made with {known.elsewhere or 'metadata of its own'}")
    numbers = known.numbered
    existing = sum(bookie_directory(directory, one).exists() for one in numbers) or len(numbers)
    if existing > bookies:
        raise ConflictError(
            f"{directory} holds {counted(existing, 'bookie')}, not {bookies}; "
            "a decommissioned bookie counts until its directory is removed",
            next_step=f"bkctl local {existing} --dir {directory} --background",
        )
