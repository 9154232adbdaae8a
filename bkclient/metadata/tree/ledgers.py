"""Ledger metadata in a tree. BookKeeper 4.18.0, AbstractZkLedgerManager."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing
from typing import Final

import attrs
from twisted.logger import Logger

from bkclient.errors import (
    IncorrectParameterError,
    LedgerExistsError,
    MetadataVersionError,
    NoSuchLedgerError,
)
from bkclient.metadata import zk_paths
from bkclient.metadata.errors import (
    MetadataAccessError,
    MetadataUnavailableError,
    NotInitializedError,
)
from bkclient.metadata.stored_values import IDS_AT_ONCE, as_stored, decode_stored, not_readable
from bkclient.metadata.tree.nodes import (
    ATTEMPTS_MAX,
    AnswerLostError,
    NodeExistsError,
    NodeVersionError,
    NoNodeError,
    NotEmptyError,
    retry_until_answered,
)
from bkclient.metadata.tree.tree_part import TreePart
from bkclient.metadata.versions_and_watches import ANY, StoredLedger, Version, Versioned, Watch
from bkclient.metadata.zk_paths import Digits, LedgerLayout
from wire.errors import MetadataFormatError
from wire.ids import LEDGER_ID_REFUSED, LedgerId
from wire.ledger_metadata import LedgerMetadata, decode_metadata, encode_for_write

log = Logger()

_FORMAT_WITH_TOKEN: Final = 3


class TreeLedgers(TreePart):
    """Ledger metadata with compare-and-swap. BookKeeper 4.18.0, AbstractZkLedgerManager."""

    async def create_ledger(
        self, ledger_id: LedgerId, metadata: LedgerMetadata, *, is_allocated: bool = False
    ) -> Version:
        """Store new metadata; return its version.

        A retry that finds its own ``creator_token`` succeeds. With ``is_allocated`` the caller can
        take another id, so there is no retry after a lost answer: if the ledger is missing, it may
        have been created, closed and deleted.

        Raises:
            LedgerExistsError: another client's ledger has this id, or may have had it.
            IncorrectParameterError: the id is ``LEDGER_ID_REFUSED`` or negative.
            MetadataFormatError: the metadata is not valid for writing.
            MetadataUnavailableError: the outcome is unknown.
        """
        check_new_id(ledger_id)
        metadata = with_token(metadata, self._chance.randrange(1, 2**63 - 1))
        value, path = encode_for_write(metadata), await self._path_of(ledger_id)
        for attempt in range(ATTEMPTS_MAX):
            try:
                return (await self._tree.create_with_parents(path, value)).version
            except AnswerLostError as error:
                if attempt + 1 == ATTEMPTS_MAX:
                    raise
                if is_allocated:
                    return await self._version_of_own(ledger_id, value, metadata, error)
            except NodeExistsError as error:
                return await self._version_of_own(ledger_id, value, metadata, error)
        raise AssertionError("the last attempt returns or raises")

    async def _version_of_own(
        self, ledger_id: LedgerId, value: bytes, metadata: LedgerMetadata, error: Exception
    ) -> Version:
        """Return the version of a ledger that we created.

        0, an old version, if it has changed since.

        Raises:
            LedgerExistsError: the stored metadata is not ours.
        """
        token = metadata.creator_token
        try:
            node = await self._tree.get(await self._path_of(ledger_id))
            stored = decode_metadata(node.value)
        except (NoNodeError, MetadataFormatError):
            is_ours = False
        else:
            is_ours = token != 0 and stored.creator_token == token
        if not is_ours:
            raise LedgerExistsError(f"ledger {ledger_id} exists, or has existed") from error
        return node.stat.version if node.value == value else 0

    async def read_ledger(self, ledger_id: LedgerId) -> Versioned[LedgerMetadata]:
        """Return the metadata; without a creation time in it, ``ctime_ms`` is the store's.

        Raises:
            NoSuchLedgerError: the ledger does not exist.
            MetadataSerializationError: the metadata cannot be read.
        """
        try:
            node = await self._tree.get(await self._path_of(ledger_id))
        except NoNodeError as error:
            raise NoSuchLedgerError.of(ledger_id) from error
        except MetadataAccessError as error:
            raise not_readable(ledger_id, error) from error
        return Versioned(
            decode_stored(ledger_id, node.value, node.stat.ctime_ms), node.stat.version
        )

    async def read_ledgers(self, ids: Sequence[LedgerId]) -> AsyncGenerator[list[StoredLedger]]:
        """Yield very many ledgers in the order of ``ids``, in groups as they arrive.

        Deleted ledgers are left out; an unreadable ledger has its ``error``. No value is older than
        the call. Close the generator (``aclosing``) unless it is read to its end.
        """
        path_of, at = (await self._ledger_layout()).path_of, 0
        async with aclosing(self._values([path_of(ledger_id) for ledger_id in ids])) as values:
            async for some in values:
                yield [
                    StoredLedger(ledger_id, None, not_readable(ledger_id, found))
                    if isinstance(found, MetadataAccessError)
                    else as_stored(ledger_id, *found)
                    for ledger_id, found in zip(ids[at : at + len(some)], some, strict=True)
                    if found is not None
                ]
                at += len(some)

    async def write_ledger(
        self, ledger_id: LedgerId, metadata: LedgerMetadata, version: Version
    ) -> Version:
        """Replace the metadata if it still has ``version``; return the new version.

        Raises:
            NoSuchLedgerError: the ledger does not exist, or was deleted.
            MetadataVersionError: the metadata has another version.
            MetadataUnavailableError: the outcome is unknown.
        """
        value, path = encode_for_write(metadata), await self._path_of(ledger_id)
        with ledger_errors(ledger_id, version):
            return await self._tree.set(path, value, version)

    async def remove_ledger(self, ledger_id: LedgerId, version: Version = ANY) -> None:
        """Delete the metadata, and parents that are empty now.

        With the version ``ANY`` a missing ledger is not an error. After a lost answer the
        deletion has succeeded if the ledger is missing, with any version.

        Raises:
            NoSuchLedgerError: the ledger does not exist, and ``version`` is not ``ANY``.
            MetadataVersionError: the metadata has another version.
        """
        path = await self._path_of(ledger_id)
        if version == ANY:
            with contextlib.suppress(NoNodeError):
                await retry_until_answered(lambda: self._tree.delete(path))
        else:
            with ledger_errors(ledger_id, version):
                try:
                    await self._tree.delete(path, version)
                except AnswerLostError:
                    if await self._tree.stat(path) is not None:
                        raise
        if (await self._ledger_layout()).prunes:
            await self._prune(zk_paths.parent(path))

    async def _prune(self, path: str) -> None:
        """Delete empty nodes upwards. A failure does not matter: the ledger is deleted."""
        while path:
            try:
                await self._tree.delete(path)
            except (NotEmptyError, MetadataUnavailableError):
                return
            except NoNodeError:
                pass
            path = zk_paths.parent(path)

    async def ledger_ranges(
        self, *, after: LedgerId | None = None
    ) -> AsyncIterator[tuple[LedgerId, ...]]:
        """Yield the ids of all ledgers above ``after``, ascending, at most 10 000 at a time.

        An error ends the iteration with that error, never as the end of the list.
        """
        layout = await self._ledger_layout()
        for spelling in layout.spellings:
            async for leaf in self._leaves(spelling, (), -1 if after is None else after):
                found = await self._ids_in(layout, spelling, leaf, -1 if after is None else after)
                for at in range(0, len(found), IDS_AT_ONCE):
                    yield tuple(found[at : at + IDS_AT_ONCE])

    async def _leaves(
        self, spelling: Digits, names: tuple[str, ...], after: int
    ) -> AsyncIterator[tuple[str, ...]]:
        if len(names) == spelling.depth:
            yield names
            return
        for below in spelling.inner_among(names, await self._names_in(names), after):
            async for leaf in self._leaves(spelling, below, after):
                yield leaf

    async def _names_in(self, names: tuple[str, ...]) -> list[str]:
        path = "".join(f"/{name}" for name in names)
        try:
            return await self._tree.children(path, fresh=True)
        except NoNodeError as error:
            if path:
                return []  # Pruned since the parent was read.
            raise NotInitializedError(f"{self._tree.uri}: the cluster is gone") from error

    async def _ids_in(
        self, layout: LedgerLayout, spelling: Digits, leaf: tuple[str, ...], after: int
    ) -> list[LedgerId]:
        names = await self._names_in(leaf)
        found, strange = layout.ledgers_among(spelling, leaf, names, after)
        for path in strange:
            log.warn("ignored {path}: the node is not a ledger", path=zk_paths.shown(path))
        return found

    async def watch_ledger(self, ledger_id: LedgerId, changed: Callable[[], None]) -> Watch:
        """Call ``changed`` after each change or deletion of the metadata."""
        path = await self._path_of(ledger_id)
        return await self._watch(lambda fired: self._tree.stat(path, fired), changed)

    async def _path_of(self, ledger_id: LedgerId) -> str:
        return (await self._ledger_layout()).path_of(ledger_id)


def check_new_id(ledger_id: LedgerId) -> None:
    """Raise ``IncorrectParameterError`` for an id that no new ledger may have."""
    if not 0 <= ledger_id < LEDGER_ID_REFUSED:
        raise IncorrectParameterError(
            f"a ledger id must be 0 to {LEDGER_ID_REFUSED - 1}, not {ledger_id}"
        )


def with_token(metadata: LedgerMetadata, token: int) -> LedgerMetadata:
    """Return the metadata with a creator token, if it has none and its format has the field."""
    if metadata.creator_token or metadata.format_version < _FORMAT_WITH_TOKEN:
        return metadata
    return attrs.evolve(metadata, creator_token=token)


@contextlib.contextmanager
def ledger_errors(ledger_id: LedgerId, version: Version) -> Iterator[None]:
    """Convert errors of a node to errors of its ledger; ``version`` is the version to replace."""
    try:
        yield
    except NoNodeError as error:
        raise NoSuchLedgerError.of(ledger_id) from error
    except NodeVersionError as error:
        text = f"ledger {ledger_id}: version {version} is not the last one"
        raise MetadataVersionError(text) from error
