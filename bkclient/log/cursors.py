"""Named cursors: the committed position of a reader of a log or topic.

Cursors show people and alarms who reads a log, and how far behind. Spark streams continue from
their checkpoints; only ``bkctl log tail --cursor`` continues from its cursor. The stored form for
each log or topic is UTF-8 JSON: ``{"v": 1, "cursors": {name: {"at": "INDEX:ENTRY", "ledger": ledger
id or null, "ms": ms since 1970, "log": id of the log}}}``. Earlier releases store no ``log``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

import attrs

from bkclient.client import Client
from bkclient.concurrency import wall_ms
from bkclient.errors import IncorrectParameterError, MetadataVersionError
from bkclient.log.errors import NoSuchCursorError
from bkclient.log.ledger_list import LedgerList
from bkclient.log.record import FORMAT, Position, decode_json
from bkclient.metadata.errors import MetadataUnavailableError
from wire.ids import LedgerId

CURSORS_MAX: Final = 1000
"""Cursors of one log or topic: their names and positions fit into a node of ZooKeeper."""

CONFLICTS_MAX: Final = 10

_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")


@attrs.frozen
class Cursor:
    """A name, and the first position that its reader has not committed.

    The position of a topic has the ledger id as its index. ``updated_ms`` is in ms since 1970.
    ``log_id`` is the id of the log; empty for a topic, and if unknown.
    """

    name: str
    position: Position
    updated_ms: int
    log_id: str = ""


def check_cursor_name(name: str) -> str:
    """Return the name of a cursor.

    Raises:
        IncorrectParameterError: the name is invalid.
    """
    if _NAME.fullmatch(name) is None:
        raise IncorrectParameterError(
            f"{name!r} cannot be the name of a cursor: up to 200 letters, digits, ., _ and -, "
            "not beginning with a dot"
        )
    return name


class Cursors:
    """The cursors of one log or topic, by name. Keeps no state; changes by compare-and-swap.

    ``source`` is the name of a log, or the complete name of a topic, such as
    ``persistent://tenant/namespace/topic``. ``log_id`` is the id of the log of the positions; empty
    if unknown.
    """

    def __init__(self, client: Client, source: str, *, log_id: str = "") -> None:
        self._client, self.source, self._log_id = client, source, log_id

    async def list(self) -> tuple[Cursor, ...]:
        """Return the cursors, by name.

        Raises:
            LogDamagedError: the stored value is invalid.
        """
        return tuple(sorted((await self._read())[0].values(), key=lambda cursor: cursor.name))

    async def position(self, name: str) -> Position | None:
        """Return a cursor's position; None if it does not exist, or belongs to a deleted log.

        Raises:
            IncorrectParameterError: the name is invalid.
            LogDamagedError: the stored value is invalid.
        """
        found = (await self._read())[0].get(check_cursor_name(name))
        return found.position if found is not None and await self._is_ours(found) else None

    async def advance(self, name: str, position: Position) -> Cursor:
        """Move a cursor forward to a position; return its present value.

        A cursor at a later position is unchanged. A cursor of a deleted log with the same name is
        replaced.

        Raises:
            IncorrectParameterError: the name is invalid, or there are too many cursors.
            NoSuchLogError: the log was deleted; another one may have its name.
            MetadataVersionError: other clients change the cursors all the time.
        """
        check_cursor_name(name)
        log_id = ""
        if not self.is_topic:
            position, log_id = await self._with_ledger(position)
        cursor = Cursor(name, position, wall_ms(self._client.cluster.clock), log_id)
        kept = cursor

        async def advanced(cursors: dict[str, Cursor]) -> bool:
            nonlocal kept
            there = cursors.get(name)
            if there is not None and there.position >= position and await self._is_ours(there):
                kept = there
                return False
            if there is None and len(cursors) >= CURSORS_MAX:
                raise IncorrectParameterError(
                    f"{self.source} has {CURSORS_MAX} cursors, the most allowed: delete unused ones"
                )
            cursors[name] = kept = cursor
            return True

        await self._update(advanced)
        return kept

    async def delete(self, name: str) -> Cursor:
        """Delete a cursor; return its last value.

        Raises:
            NoSuchCursorError: the cursor does not exist.
        """
        deleted: Cursor | None = None

        async def without(cursors: dict[str, Cursor]) -> bool:
            nonlocal deleted
            there = cursors.pop(name, None)
            # If only the answer was lost, the cursor is deleted already.
            deleted = there or deleted
            return there is not None

        await self._update(without)
        if deleted is None:
            raise NoSuchCursorError(f"{self.source} has no cursor {name}")
        return deleted

    async def forget(self, known: tuple[Cursor, ...]) -> None:
        """Delete the ``known`` cursors, except those that were moved since."""

        async def without(cursors: dict[str, Cursor]) -> bool:
            gone = [one.name for one in known if cursors.get(one.name) == one]
            for name in gone:
                del cursors[name]
            return bool(gone)

        await self._update(without)

    @property
    def is_topic(self) -> bool:
        """True if the source is a topic, whose positions have ledger ids instead of indexes."""
        return ":" in self.source

    async def _with_ledger(self, position: Position) -> tuple[Position, str]:
        """Return a position with the id of its ledger, if it is listed already.

        And the log's id.
        """
        ledgers = LedgerList(self._client, self.source)
        record = (await ledgers.read_patiently()).record
        if not record.may_have_id(self._log_id):
            raise ledgers.gone()
        listed = position.index in record
        ledger_id = record.ledger(position.index).ledger_id if listed else None
        return attrs.evolve(position, ledger_id=ledger_id), record.log_id

    async def _is_ours(self, cursor: Cursor) -> bool:
        """Return whether a cursor can belong to the log that has the name now."""
        if self.is_topic:
            return True
        record = (await LedgerList(self._client, self.source).read_patiently()).record
        at = cursor.position
        if not record.may_have_id(cursor.log_id):
            return False
        if at.ledger_id is None:
            return at.index <= record.next_index
        return at.index < record.next_index and record.lists_at(at.index, at.ledger_id)

    async def _read(self) -> tuple[dict[str, Cursor], int]:
        stored = await self._client.store.read_cursors(self.source)
        return decode_cursors(self.source, stored.value), stored.version

    async def _update(self, change: Callable[[dict[str, Cursor]], Awaitable[bool]]) -> None:
        """Change the present cursors; ``change`` returns whether it changed any.

        ``change`` may run again on its own result, because an answer can be lost.
        """
        for _ in range(CONFLICTS_MAX):
            cursors, version = await self._read()
            if not await change(cursors):
                return
            try:
                await self._client.store.write_cursors(
                    self.source, encode_cursors(cursors), version
                )
            except (MetadataVersionError, MetadataUnavailableError):
                continue
            return
        raise MetadataVersionError(f"the cursors of {self.source} are changed all the time")


def encode_cursors(cursors: dict[str, Cursor]) -> bytes:
    """Return the stored form."""
    value = {
        one.name: {
            "at": str(one.position),
            "ledger": one.position.ledger_id,
            "ms": one.updated_ms,
            "log": one.log_id,
        }
        for one in cursors.values()
    }
    return json.dumps({"v": FORMAT, "cursors": value}, separators=(",", ":")).encode()


def decode_cursors(source: str, stored: bytes) -> dict[str, Cursor]:
    """Parse the stored form; empty bytes have no cursors.

    Raises:
        LogDamagedError: the value has another form than ``encode_cursors`` writes.
    """
    if not stored:
        return {}
    return decode_json(
        f"the cursors of {source}",
        stored,
        lambda value: {name: _decoded(name, one) for name, one in value["cursors"].items()},
    )


def _decoded(name: str, value: dict[str, Any]) -> Cursor:
    ledger = value["ledger"]
    position = attrs.evolve(
        Position.parse(value["at"]), ledger_id=None if ledger is None else LedgerId(int(ledger))
    )
    log_id = str(value.get("log", ""))
    return Cursor(check_cursor_name(name), position, int(value["ms"]), log_id)
