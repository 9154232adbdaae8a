"""Registrations and cookies in a tree.

BookKeeper 4.18.0, ZKRegistrationManager and ZKRegistrationClient; metadata.md sections 5 and 6.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Final

from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as TwistedTimeoutError
from twisted.logger import Logger

from bkclient.errors import IncorrectParameterError, MetadataVersionError
from bkclient.metadata import zk_paths
from bkclient.metadata.api import ANY, NEW, Version, Versioned, Watch
from bkclient.metadata.errors import (
    CookieExistsError,
    CookieNotFoundError,
    NotFoundError,
    NotInitializedError,
    RegistrationExistsError,
)
from bkclient.metadata.stored_values import decode_registration
from bkclient.metadata.tree.incarnations import checked, version_in, version_of
from bkclient.metadata.tree.nodes import (
    Fired,
    NodeExistsError,
    NodeVersionError,
    NoNodeError,
    StandingWatch,
    retry_until_answered,
)
from bkclient.metadata.tree.store_part import TreePart
from wire.ids import BookieId, is_valid_bookie_id
from wire.records.service_info import BookieServiceInfo, encode_service_info

log = Logger()

_WRITTEN_ID: Final = re.compile(r"[A-Za-z0-9._:-]+")


class TreeBookies(TreePart):
    """The registered bookies. BookKeeper 4.18.0, ZKRegistrationManager and ZKRegistrationClient."""

    async def register(
        self, bookie_id: BookieId, info: BookieServiceInfo, *, read_only: bool
    ) -> None:
        """Announce a bookie for the life of this session.

        Going read-only makes the read-only entry before it removes the writable one; the other
        way round the same. An entry of another session is waited for, a bit longer than the
        session time-out, then:

        Raises:
            RegistrationExistsError: the other session stayed.
        """
        value = registration_bytes(bookie_id, info)
        if read_only:
            await self._tree.make_path(zk_paths.READ_ONLY)
        await self._announce(zk_paths.registration(bookie_id, read_only=read_only), value)
        await self._tree.delete_own(zk_paths.registration(bookie_id, read_only=not read_only))

    async def _announce(self, path: str, value: bytes) -> None:
        deadline_s = self._clock.seconds() + self._registration_wait_s
        while True:
            try:
                await retry_until_answered(lambda: self._tree.create(path, value, ephemeral=True))
            except NodeExistsError as error:
                gone: Deferred[None] = Deferred()
                fired = _once(gone)
                stat = await self._tree.stat(path, fired)
                try:
                    if stat is None:
                        continue
                    if stat.owner == self._tree.session_id:
                        return
                    wait_s = deadline_s - self._clock.seconds()
                    if wait_s <= 0:
                        raise RegistrationExistsError(
                            f"{path.rpartition('/')[2]} is registered by another session, which"
                            f" has not ended within {self._registration_wait_s:g} s"
                        ) from error
                    log.info("{path} is held by an older session; waiting", path=path)
                    # Whatever ended the wait: look again.
                    await _ended(gone.addTimeout(wait_s, self._clock))
                finally:
                    self._tree.forget(fired)
            except NoNodeError as error:
                raise NotInitializedError(f"{self._tree.uri}: there is no cluster here") from error
            else:
                return

    async def unregister(self, bookie_id: BookieId) -> None:
        """Take the bookie's own registrations away (either kind)."""
        for read_only in (False, True):
            await self._tree.delete_own(zk_paths.registration(bookie_id, read_only=read_only))

    async def writable_bookies(self) -> frozenset[BookieId]:
        """Return the bookies that are registered as writable."""
        return await self._bookies_in(zk_paths.AVAILABLE) - {BookieId(zk_paths.READ_ONLY_NAME)}

    async def read_only_bookies(self) -> frozenset[BookieId]:
        """Return the bookies that are registered as read-only.

        A bookie in both lists is on its way from one to the other, and counts as writable.
        """
        # The read-only list first: a bookie that becomes writable in between is in one of them.
        read_only = await self._bookies_in(zk_paths.READ_ONLY)
        return read_only - await self.writable_bookies()

    async def registered_bookies(self) -> frozenset[BookieId]:
        """Return the bookies that are registered, writable or read-only.

        The writable ones are read twice: a bookie may go from one list to the other, in either
        direction.
        """
        before = await self.writable_bookies()
        return before | await self.read_only_bookies() | await self.writable_bookies()

    async def known_bookies(self) -> frozenset[BookieId]:
        """Return every bookie that has a cookie, alive or not."""
        return await self._bookies_in(zk_paths.COOKIES)

    async def _bookies_in(self, path: str) -> frozenset[BookieId]:
        try:
            names = await self._tree.children(path)
        except NoNodeError:
            await self._insist_cluster()  # A cluster that is not there has no empty lists.
            return frozenset()
        return frozenset(valid_bookies(path, names))

    async def service_info(self, bookie_id: BookieId) -> BookieServiceInfo:
        """Return where a registered bookie listens.

        Raises:
            NotFoundError: it is not registered.
        """
        for read_only in (False, True):
            path = zk_paths.registration(bookie_id, read_only=read_only)
            node = await self._tree.get_if_there(path)
            if node is not None:
                return decode_registration(bookie_id, node.value)
        raise NotFoundError(f"bookie {bookie_id} is not registered")

    async def watch_bookies(self, changed: Callable[[], None]) -> Watch:
        """Call ``changed`` after each change of the writable or read-only set."""

        async def arm(fired: Fired) -> None:
            await self._tree.children_or_creation(zk_paths.AVAILABLE, fired)
            await self._tree.children_or_creation(zk_paths.READ_ONLY, fired)

        return await StandingWatch(self._tree, arm, changed).start()


class TreeCookies(TreePart):
    """The cookies that tie a bookie's directories to the cluster.

    Java removes a cookie's node; hence ``incarnations``.
    """

    async def read_cookie(self, bookie_id: BookieId) -> Versioned[bytes]:
        """Raise ``CookieNotFoundError`` where there is none."""
        with cookie_errors(bookie_id):
            node = await self._tree.get(zk_paths.cookie(bookie_id))
        return Versioned(node.value, version_of(node.stat))

    async def write_cookie(self, bookie_id: BookieId, cookie: bytes, version: Version) -> Version:
        """Create (``NEW``) or replace a cookie; return its version.

        Raises:
            CookieExistsError: ``NEW``, and there is one.
            CookieNotFoundError: not ``NEW``, and there is none.
            MetadataVersionError: it has another version.
        """
        path = zk_paths.cookie(bookie_id)
        if version == NEW:
            check_bookie_id(bookie_id)
            with cookie_errors(bookie_id):
                await self._tree.create_with_parents(path, cookie)
            return (await self.read_cookie(bookie_id)).version
        with cookie_errors(bookie_id, version):
            created, of_node = await checked(self._tree, path, version)
            return version_in(created, await self._tree.set(path, cookie, of_node))

    async def remove_cookie(self, bookie_id: BookieId, version: Version = ANY) -> None:
        """Raise ``CookieNotFoundError`` or ``MetadataVersionError`` where it cannot be."""
        path = zk_paths.cookie(bookie_id)
        with cookie_errors(bookie_id, version):
            _created, of_node = await checked(self._tree, path, version)
            await self._tree.delete(path, of_node)


def check_bookie_id(bookie_id: BookieId) -> None:
    """Raise ``IncorrectParameterError`` for an id that we never write.

    Java takes some more characters, which are read but not written (metadata.md section 4).
    """
    if _WRITTEN_ID.fullmatch(bookie_id) is None or not is_valid_bookie_id(bookie_id):
        raise IncorrectParameterError(f"{bookie_id!r} cannot be a bookie id")


def registration_bytes(bookie_id: BookieId, info: BookieServiceInfo) -> bytes:
    """Return what is stored for a registered bookie.

    Raises:
        IncorrectParameterError: no such id or info may be written: starting Java clients would
            wait for ever (metadata.md H2).
    """
    check_bookie_id(bookie_id)
    if info.endpoint() is None:
        raise IncorrectParameterError(f"bookie {bookie_id} must say where it serves entries")
    return encode_service_info(info)


def no_cookie(bookie_id: BookieId) -> CookieNotFoundError:
    """Return the error for a bookie without a cookie."""
    return CookieNotFoundError(f"bookie {bookie_id} has no cookie")


@contextlib.contextmanager
def cookie_errors(bookie_id: BookieId, version: Version = NEW) -> Iterator[None]:
    """Raise the errors of a node as those of a cookie; ``version`` is the one to replace."""
    try:
        yield
    except NodeExistsError as error:
        raise CookieExistsError(f"bookie {bookie_id} has a cookie") from error
    except NoNodeError as error:
        raise no_cookie(bookie_id) from error
    except NodeVersionError as error:
        text = f"cookie of {bookie_id}: version {version} is not the last one"
        raise MetadataVersionError(text) from error


def valid_bookies(path: str, names: list[str]) -> list[BookieId]:
    """Return the bookies among names; the others are logged and left out (metadata.md H2)."""
    valid = []
    for name in names:
        if is_valid_bookie_id(name):
            valid.append(BookieId(name))
        elif name != zk_paths.READ_ONLY_NAME:
            at = zk_paths.shown(f"{path}/{name}")
            log.warn("ignored {path}: the name is not a bookie id", path=at)
    return valid


def _once(waiter: Deferred[None]) -> Fired:
    def fired() -> None:
        if not waiter.called:
            waiter.callback(None)

    return fired


async def _ended(waiter: Deferred[None]) -> None:
    try:
        await waiter
    except TwistedTimeoutError:
        return
