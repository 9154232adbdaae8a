"""RepairPart: the nodes of under-replicated ledgers in a tree, and their values."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from twisted.internet.defer import Deferred

from bkclient.errors import IncorrectParameterError
from bkclient.metadata import zk_paths
from bkclient.metadata.errors import IncompatibleLayoutError, MetadataAccessError
from bkclient.metadata.tree.nodes import Fired, NodeExistsError, retry_until_answered, run_together
from bkclient.metadata.tree.tree_part import TreePart
from bkclient.metadata.versions_and_watches import DamagedMark
from wire.errors import FormatError, MetadataFormatError
from wire.ids import LedgerId
from wire.records.underreplication import (
    REPAIR_LAYOUT,
    UnderreplicatedMark,
    decode_check_time,
    decode_lock,
    decode_mark,
    decode_repair_layout,
    encode_repair_layout,
)

T = TypeVar("T")

READS_AT_ONCE: Final = 256

DELAY_S_MAX: Final = 2**31 - 1
"""Seconds of the largest delay before a lost bookie's ledgers are repaired: Java's int."""


class RepairPart(TreePart):
    """A part of the store with nodes in this branch of the tree."""

    _is_prepared = False

    async def _prepare_repair(self) -> None:
        """Create the nodes that Java creates when it opens its manager, once per connection.

        Raises:
            IncompatibleLayoutError: under-replicated ledgers are stored in an unknown form.
        """
        if self._is_prepared:
            return
        await self._tree.make_path(zk_paths.UNDERREPLICATION)
        try:
            await retry_until_answered(
                lambda: self._tree.create(
                    zk_paths.UNDERREPLICATION_LAYOUT, encode_repair_layout(REPAIR_LAYOUT)
                )
            )
        except NodeExistsError:
            await self._check_repair_layout()
        for path in (zk_paths.MARKS, zk_paths.LOCKS):
            await self._tree.make_path(path)
        self._is_prepared = True

    async def _check_repair_layout(self) -> None:
        node = await self._tree.get(zk_paths.UNDERREPLICATION_LAYOUT)
        try:
            fits = decode_repair_layout(node.value) == REPAIR_LAYOUT
        except FormatError:
            fits = False
        if not fits:
            raise IncompatibleLayoutError(
                f"{self._tree.uri}: under-replicated ledgers are kept in an unknown form"
            )

    async def _each(
        self, read: Callable[[str], Coroutine[Deferred[Any], Any, T]], paths: list[str]
    ) -> list[T]:
        """Read many paths, ``READS_AT_ONCE`` at a time."""
        found: list[T] = []
        for start in range(0, len(paths), READS_AT_ONCE):
            found += await run_together(map(read, paths[start : start + READS_AT_ONCE]))
        return found

    async def _below(self, path: str, fired: Fired | None = None) -> list[str]:
        """Return the paths one level below, sorted; empty if the node does not exist."""
        names = await self._tree.children_if_there(path, fired)
        return sorted(f"{path}/{name}" for name in names)


def stored_mark(ledger_id: LedgerId, value: bytes) -> UnderreplicatedMark:
    """Return a ledger's mark.

    Raises:
        MetadataFormatError: the mark cannot be read.
    """
    try:
        return decode_mark(value)
    except FormatError as error:
        raise MetadataFormatError(f"the mark of ledger {ledger_id}: {error}") from error


def readable_mark(
    ledger_id: LedgerId, value: bytes | MetadataAccessError, damaged: DamagedMark | None
) -> UnderreplicatedMark | None:
    """Return a ledger's mark, or call ``damaged`` if it cannot be read.

    Raises:
        MetadataFormatError, MetadataAccessError: the mark cannot be read, and ``damaged`` is None.
    """
    try:
        if isinstance(value, MetadataAccessError):
            raise value
        return stored_mark(ledger_id, value)
    except (MetadataFormatError, MetadataAccessError) as error:
        if damaged is None:
            raise
        damaged(ledger_id, error)
        return None


def name_in_lock(value: bytes) -> str:
    """Return the bookie id in a lock, or "" if the value has none."""
    try:
        return decode_lock(value).bookie_id
    except FormatError:
        return ""


def check_path(check: str) -> str:
    """Return the path of a check's time; raise ``IncorrectParameterError`` for an unknown check."""
    try:
        return zk_paths.CHECK_TIMES[check]
    except KeyError as error:
        raise IncorrectParameterError(
            f"no check {check!r}; there are {', '.join(zk_paths.CHECK_TIMES)}"
        ) from error


def stored_check_time(check: str, value: bytes) -> int | None:
    """Return the time of a check's last end, in ms.

    Raises:
        FormatError: the value cannot be read.
    """
    try:
        return decode_check_time(value)
    except FormatError as error:
        raise FormatError(f"{check_path(check)}: {error}") from error


def encode_delay(delay_s: int) -> bytes:
    """Return the stored form of the delay before a lost bookie's ledgers are repaired."""
    if delay_s < 0:
        raise IncorrectParameterError(f"the delay must be 0 s or more, not {delay_s}")
    return str(delay_s).encode()


def parse_delay(value: bytes) -> int:
    """Return the stored delay in seconds; raise ``MetadataFormatError`` for anything else."""
    error: ValueError | None = None
    try:
        if 0 <= (delay_s := int(value.decode("ascii"))) <= DELAY_S_MAX:
            return delay_s
    except ValueError as found:
        error = found
    raise MetadataFormatError(f"lostBookieRecoveryDelay is {value[:40]!r}") from error
