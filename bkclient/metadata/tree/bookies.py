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
from bkclient.metadata.errors import (
    CookieExistsError,
    CookieNotFoundError,
    NotFoundError,
    NotInitializedError,
    RegistrationExistsError,
)
from bkclient.metadata.stored_values import decode_registration
from bkclient.metadata.tree.nodes import (
    Fired,
    NodeExistsError,
    NodeVersionError,
    NoNodeError,
    retry_until_answered,
)
from bkclient.metadata.tree.tree_part import TreePart, checked, version_in, version_of
from bkclient.metadata.versions_and_watches import ANY, NEW, Version, Versioned, Watch
from wire.ids import BookieId, is_valid_bookie_id
from wire.records.bookie_service_info import BookieServiceInfo, encode_service_info

log = Logger()

_WRITTEN_ID: Final = re.compile(r"[A-Za-z0-9._:-]+")


class TreeBookies(TreePart):
    """The registered bookies. BookKeeper 4.18.0, ZKRegistrationManager and ZKRegistrationClient."""

    async def register(
        self, bookie_id: BookieId, info: BookieServiceInfo, *, read_only: bool
    ) -> None:
        """Register a bookie for the life of this session.

        A change to read-only creates the read-only node before it deletes the writable one; the
        change back does the reverse. If another session has the registration, wait until that
        session ends, at most ``registration_wait_s``.

        Raises:
            RegistrationExistsError: the other session has not ended in time.
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
                    log.info(
                        "{path} is registered by an older session; waiting for its end", path=path
                    )
                    # Check the node again, whatever ended the wait.
                    await _ended(gone.addTimeout(wait_s, self._clock))
                finally:
                    self._tree.forget(fired)
            except NoNodeError as error:
                raise NotInitializedError(f"{self._tree.uri}: there is no cluster here") from error
            else:
                return

    async def unregister(self, bookie_id: BookieId) -> None:
        """Delete the bookie's own registrations, writable and read-only."""
        for read_only in (False, True):
            await self._tree.delete_own(zk_paths.registration(bookie_id, read_only=read_only))

    async def writable_bookies(self) -> frozenset[BookieId]:
        """Return the bookies that are registered as writable."""
        return await self._bookies_in(zk_paths.AVAILABLE) - {BookieId(zk_paths.READ_ONLY_NAME)}

    async def read_only_bookies(self) -> frozenset[BookieId]:
        """Return the bookies that are registered as read-only.

        A bookie in both lists is changing its state, and counts as writable.
        """
        # The read-only list first: a bookie that becomes writable between the reads is in a list.
        read_only = await self._bookies_in(zk_paths.READ_ONLY)
        return read_only - await self.writable_bookies()

    async def registered_bookies(self) -> frozenset[BookieId]:
        """Return the bookies that are registered, writable or read-only.

        The writable list is read twice, because a bookie may move in either direction between the
        reads.
        """
        before = await self.writable_bookies()
        return before | await self.read_only_bookies() | await self.writable_bookies()

    async def known_bookies(self) -> frozenset[BookieId]:
        """Return every bookie that has a cookie, registered or not."""
        return await self._bookies_in(zk_paths.COOKIES)

    async def _bookies_in(self, path: str) -> frozenset[BookieId]:
        try:
            names = await self._tree.children(path)
        except NoNodeError:
            await self._require_cluster()  # Without a cluster this is an error, not an empty list.
            return frozenset()
        return frozenset(valid_bookies(path, names))

    async def service_info(self, bookie_id: BookieId) -> BookieServiceInfo:
        """Return the addresses of a registered bookie.

        Raises:
            NotFoundError: the bookie is not registered.
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

        return await self._watch(arm, changed)


class TreeCookies(TreePart):
    """The cookies that bind a bookie's directories to the cluster.

    Java deletes a cookie's node, so versions come from ``version_of``.
    """

    async def read_cookie(self, bookie_id: BookieId) -> Versioned[bytes]:
        """Return a cookie.

        Raises:
            CookieNotFoundError: the bookie has no cookie.
        """
        with cookie_errors(bookie_id):
            node = await self._tree.get(zk_paths.cookie(bookie_id))
        return Versioned(node.value, version_of(node.stat))

    async def write_cookie(self, bookie_id: BookieId, cookie: bytes, version: Version) -> Version:
        """Create (``NEW``) or replace a cookie; return its version.

        Raises:
            CookieExistsError: ``version`` is ``NEW``, and the bookie has a cookie.
            CookieNotFoundError: ``version`` is not ``NEW``, and the bookie has no cookie.
            MetadataVersionError: the cookie has another version.
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
        """Delete a cookie.

        Raises:
            CookieNotFoundError: the bookie has no cookie.
            MetadataVersionError: the cookie has another version.
        """
        path = zk_paths.cookie(bookie_id)
        with cookie_errors(bookie_id, version):
            _created, of_node = await checked(self._tree, path, version)
            await self._tree.delete(path, of_node)


def check_bookie_id(bookie_id: BookieId) -> None:
    """Raise ``IncorrectParameterError`` for an id that we never write.

    Java accepts some more characters; we read them, but do not write them (metadata.md section 4).
    """
    if _WRITTEN_ID.fullmatch(bookie_id) is None or not is_valid_bookie_id(bookie_id):
        raise IncorrectParameterError(f"{bookie_id!r} cannot be a bookie id")


def registration_bytes(bookie_id: BookieId, info: BookieServiceInfo) -> bytes:
    """Return the stored value of a registration.

    Raises:
        IncorrectParameterError: the id or the info must not be written: Java clients that start
            would wait for ever (metadata.md H2).
    """
    check_bookie_id(bookie_id)
    if info.endpoint() is None:
        raise IncorrectParameterError(f"bookie {bookie_id} must have an endpoint for entries")
    return encode_service_info(info)


@contextlib.contextmanager
def cookie_errors(bookie_id: BookieId, version: Version = NEW) -> Iterator[None]:
    """Convert errors of a node to errors of a cookie; ``version`` is the version to replace."""
    try:
        yield
    except NodeExistsError as error:
        raise CookieExistsError(f"bookie {bookie_id} has a cookie") from error
    except NoNodeError as error:
        raise CookieNotFoundError(f"bookie {bookie_id} has no cookie") from error
    except NodeVersionError as error:
        text = f"cookie of {bookie_id}: version {version} is not the last one"
        raise MetadataVersionError(text) from error


def valid_bookies(path: str, names: list[str]) -> list[BookieId]:
    """Return the names that are bookie ids; log and ignore the others (metadata.md H2)."""
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
