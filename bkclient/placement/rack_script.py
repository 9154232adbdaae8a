"""The rack of each bookie, by the operator's script.

Agrees with BookKeeper 4.18.0, ScriptBasedMapping and NetworkTopology: the script gets hosts as
arguments and prints one location for each, such as ``/rack1``, separated by white space. Locations
are remembered; hosts without one are asked for again after some time.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from typing import ClassVar, Final

import attrs
from twisted.internet.defer import DeferredLock
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from bkclient.config.auth import simple_name
from bkclient.errors import ClientError
from bkclient.placement.rack import DEFAULT_RACK
from wire.ids import BookieId

log = Logger()

ASK_AGAIN_S: Final = 60.0
"""Seconds that a bookie stays in the default rack before the script runs again."""

SCRIPT_TIMEOUT_S: Final = 10.0

_RESOLVER: Final = "ScriptBasedMapping"

RunScript = Callable[[Sequence[str]], Awaitable[str]]
"""Runs the script with these arguments and returns its output; raises ``ScriptError``."""

HostOf = Callable[[BookieId], Awaitable[str]]
"""Returns the host of a bookie."""


@attrs.frozen
class RackScript:
    """The script that knows the racks, and this host's name for it, if its rack matters."""

    run: RunScript
    local_host: str | None = None


_LOCATION: Final = re.compile(r"(/[^/\s]+)+")


def is_script_resolver(class_name: str | None) -> bool:
    """Return whether a ``reppDnsResolverClass`` uses the script: Java's class for it, or none."""
    return simple_name(class_name or _RESOLVER) == _RESOLVER


class ScriptError(ClientError):
    """The topology script failed."""

    hint: ClassVar[str] = "run the script of networkTopologyScriptFileName by hand to see why"


@attrs.define(eq=False)
class Topology:
    """The racks of bookies. One script runs at a time."""

    _clock: IReactorTime
    """The clock of repeated questions."""
    _run: RunScript
    """Runs the script."""
    _host_of: HostOf
    """Returns the host of a bookie."""
    _local_host: str | None = None
    """This host's name for the script; None if its rack does not matter."""
    _arguments_max: int = 100
    """``networkTopologyScriptNumberArgs``."""
    _strict: bool = False
    """A script that fails even without arguments is an error, every time."""
    _remember_s: float = 0.0
    """Seconds for which the rack of a lost bookie is remembered."""
    _is_checked: bool = attrs.field(default=False, init=False)
    local_rack: str | None = attrs.field(default=None, init=False)
    """The rack of this host, if it matters and is known."""
    _racks: dict[BookieId, str] = attrs.field(factory=dict, init=False)
    _asked_s: dict[BookieId, float] = attrs.field(factory=dict, init=False)
    _gone_s: dict[BookieId, float] = attrs.field(factory=dict, init=False)
    _asking: DeferredLock = attrs.field(factory=DeferredLock, init=False)

    def rack_of(self, bookie: BookieId) -> str:
        """Return a bookie's rack; ``DEFAULT_RACK`` if unknown."""
        return self._racks.get(bookie, DEFAULT_RACK)

    async def learn(self, bookies: Collection[BookieId]) -> None:
        """Ask for the unknown racks of bookies; they stay unknown if the script fails.

        Bookies that are not in ``bookies`` are forgotten after some time.

        Raises:
            ScriptError: with ``strict``, if the script cannot be run at all.
        """
        is_known = self._racks.keys() == set(bookies) and not any(map(self._is_due, bookies))
        if is_known and not self._asking.locked:
            return
        async with self._asking:
            await self._begin()
            self._forget(self._asked_s.keys() - set(bookies))
            wanted = [bookie for bookie in sorted(bookies) if self._is_due(bookie)]
            for start in range(0, len(wanted), self._arguments_max):
                await self._learn(wanted[start : start + self._arguments_max])

    def _forget(self, missing: Collection[BookieId]) -> None:
        now_s = self._clock.seconds()
        self._gone_s = {bookie: self._gone_s.get(bookie, now_s) for bookie in missing}
        for bookie, gone_s in tuple(self._gone_s.items()):
            if now_s - gone_s >= self._remember_s:
                del self._gone_s[bookie], self._asked_s[bookie]
                self._racks.pop(bookie, None)

    async def _begin(self) -> None:
        """Run the script once without arguments, as Java does at start; then ask for this host.

        If that fails, all racks stay unknown, and a warning says so.
        """
        if self._is_checked:
            return
        try:
            await self._run(())
            if self._local_host is not None:
                (rack,) = await self._ask([self._local_host])
                self.local_rack = None if rack == DEFAULT_RACK else rack
        except ScriptError as error:
            if self._strict:
                raise
            log.warn("the topology script does not work: {error}", error=error)
        self._is_checked = True

    def _is_due(self, bookie: BookieId) -> bool:
        if self.rack_of(bookie) != DEFAULT_RACK:
            return False
        asked_s = self._asked_s.get(bookie)
        return asked_s is None or self._clock.seconds() - asked_s >= ASK_AGAIN_S

    async def _learn(self, bookies: Sequence[BookieId]) -> None:
        for bookie in bookies:
            self._asked_s[bookie] = self._clock.seconds()
        self._racks.update(dict.fromkeys(bookies, DEFAULT_RACK))
        hosts = await self._hosts(bookies)
        if not hosts:
            return
        try:
            racks = await self._ask(list(hosts.values()))
        except ClientError as error:
            log.warn("cannot read the racks of bookies: {error}", error=error, bookies=list(hosts))
        else:
            self._racks.update(zip(hosts, racks, strict=True))

    async def _hosts(self, bookies: Sequence[BookieId]) -> dict[BookieId, str]:
        """Return the host of each bookie; skip a lost one whose id is not an address.

        To replace that bookie, the racks of the others are needed.
        """
        hosts = {}
        for bookie in bookies:
            try:
                hosts[bookie] = await self._host_of(bookie)
            except ClientError as error:
                log.info(
                    "cannot determine the rack of {bookie}: {error}", bookie=bookie, error=error
                )
        return hosts

    async def _ask(self, hosts: Sequence[str]) -> list[str]:
        said = (await self._run(hosts)).split()
        if len(said) != len(hosts):
            raise ScriptError(f"it printed {len(said)} locations for {len(hosts)} hosts")
        return list(_checked(said))


def _checked(said: Sequence[str]) -> Iterator[str]:
    for location in said:
        if _LOCATION.fullmatch(location):
            yield location
        else:
            log.warn("no location: {location!r}", location=location)
            yield DEFAULT_RACK


def run_script(path: str, hosts: Sequence[str], *, timeout_s: float = SCRIPT_TIMEOUT_S) -> str:
    """Run the script and return its output. Blocks; the script is killed after ``timeout_s``.

    Raises:
        ScriptError: the script cannot be run, failed, or did not end.
    """
    try:
        done = subprocess.run(
            [path, *hosts],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        text = f"{path} did not end within {timeout_s:g} s and was killed"
        raise ScriptError(text) from error
    except OSError as error:
        raise ScriptError(f"{path}: {error.strerror or error}") from error
    if done.returncode:
        stderr_lines = done.stderr.decode(errors="replace").strip().splitlines()
        words = f": {stderr_lines[-1]}" if stderr_lines else ""
        raise ScriptError(f"{path} ended with status {done.returncode}{words}")
    return done.stdout.decode(errors="replace")
