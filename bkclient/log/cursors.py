"""Named cursors: how far a reader of a log or topic says that it has come.

Cursors are for people and alarms: who reads a log, and how far behind. Spark streams go on from
their checkpoints; only ``bkctl log tail --cursor`` goes on from its cursor. Stored is UTF-8 JSON
for each log or topic: ``{"v": 1, "cursors": {name: {"at": "INDEX:ENTRY", "ledger": ledger id or
null, "ms": ms since 1970, "log": id of the log}}}``. Earlier releases store no ``log``.
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
    ``log_id`` is that of the log; empty for a topic, and if unknown.
    """

    name: str
    position: Position
    updated_ms: int
    log_id: str = ""


def check_cursor_name(name: str) -> str:
    """Return the name of a cursor.

    Raises:
        IncorrectParameterError: a cursor cannot have this name.
    """
    if _NAME.fullmatch(name) is None:
        raise IncorrectParameterError(
            f"{name!r} cannot be the name of a cursor: up to 200 letters, digits, ., _ and -, "
            "not beginning with a dot"
        )
    return name


class Cursors:
    """The cursors of one log or topic, by name. Keeps nothing; changes by compare-and-swap.

    ``source`` is the name of a log, or the complete name of a topic, such as
    ``persistent://tenant/namespace/topic``. ``log_id`` is that of the log whose positions these
    are; empty if unknown.
    """

    def __init__(self, client: Client, source: str, *, log_id: str = "") -> None:
        self._client, self.source, self._log_id = client, source, log_id

    async def list(self) -> tuple[Cursor, ...]:
        """Return the cursors, by name.

        Raises:
            LogDamagedError: the stored value cannot be understood.
        """
        return tuple(sorted((await self._read())[0].values(), key=lambda cursor: cursor.name))

    async def position(self, name: str) -> Position | None:
        """Return where a cursor is; None if it does not exist, or is of a log that was deleted.

        Raises:
            IncorrectParameterError: a cursor cannot have this name.
            LogDamagedError: the stored value cannot be understood.
        """
        found = (await self._read())[0].get(check_cursor_name(name))
        return found.position if found is not None and await self._is_ours(found) else None

    async def advance(self, name: str, position: Position) -> Cursor:
        """Move a cursor to a position, and never back; return where it is now.

        A cursor that is further stays. That of a deleted log, whose name another log has now, is
        replaced.

        Raises:
            IncorrectParameterError: the name cannot be, or there are too many cursors.
            NoSuchLogError: the log was deleted; another one may have its name.
            MetadataVersionError: others change the cursors all the time.
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
        """Delete a cursor; return what it was.

        Raises:
            NoSuchCursorError: there is none of this name.
        """
        deleted: Cursor | None = None

        async def without(cursors: dict[str, Cursor]) -> bool:
            nonlocal deleted
            there = cursors.pop(name, None)
            deleted = there or deleted  # Where only the answer was lost, it is gone already.
            return there is not None

        await self._update(without)
        if deleted is None:
            raise NoSuchCursorError(f"{self.source} has no cursor {name}")
        return deleted

    async def forget(self, known: tuple[Cursor, ...]) -> None:
        """Delete cursors as they are known: one that was moved since is kept."""

        async def without(cursors: dict[str, Cursor]) -> bool:
            gone = [one.name for one in known if cursors.get(one.name) == one]
            for name in gone:
                del cursors[name]
            return bool(gone)

        await self._update(without)

    @property
    def is_topic(self) -> bool:
        """Whether the source is a topic, whose positions have ledger ids instead of indexes."""
        return ":" in self.source

    async def _with_ledger(self, position: Position) -> tuple[Position, str]:
        """Return a position with the id of its ledger, if that is listed already; and the log's."""
        ledgers = LedgerList(self._client, self.source)
        record = (await ledgers.read_patiently()).record
        if not record.may_have_id(self._log_id):
            raise ledgers.gone()
        listed = position.index in record
        ledger_id = record.ledger(position.index).ledger_id if listed else None
        return attrs.evolve(position, ledger_id=ledger_id), record.log_id

    async def _is_ours(self, cursor: Cursor) -> bool:
        """Return whether a cursor can be of the log that has the name now."""
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
        """Change the cursors, whatever they are by now; ``change`` returns whether it did.

        ``change`` may run again on what it has stored: an answer can be lost.
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
    """Return what is stored."""
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
    """Read what is stored; empty bytes hold no cursors.

    Raises:
        LogDamagedError: it is nothing that ``encode_cursors`` writes.
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
