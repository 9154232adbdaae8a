"""Commands on a metadata file with rows that no bookie and no client writes."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Final

import pytest

from bkclient.metadata import zk_paths
from bkclient.metadata.tree.bookies import registration_bytes
from tests.bkclient.metadata.values import B1, B2, closed, info
from tests.bkctl.commands.cluster.test_metadata_commands import at
from wire.ledger_metadata import encode_for_write
from wire.records.cookie import Cookie, encode_cookie
from wire.records.underreplication import (
    AuditorVote,
    LockData,
    UnderreplicatedMark,
    encode_lock,
    encode_mark,
    encode_vote,
)

SESSION: Final = 1
NUMBERED: Final = ("ledger", "mark", "lock", "vote")
ROWS: Final[dict[str, tuple[object, bytes, int | None]]] = {
    "ledger": (1, encode_for_write(closed()), None),
    "mark": (1, encode_mark(UnderreplicatedMark((B1,), 1)), None),
    "lock": (1, encode_lock(LockData(B1)), SESSION),
    "vote": (0, encode_vote(AuditorVote(B1)), SESSION),
    "cookie": (B1, encode_cookie(Cookie(B1, "/j", ("/l",), None, "cluster")), None),
    "avail": (B1, registration_bytes(B1, info(B1)), SESSION),
    "avail_ro": (B2, registration_bytes(B2, info(B2)), SESSION),
    "log": ("orders", b"?", None),
    "cursors": ("log/orders", b"{}", None),
    "meta": (zk_paths.LOST_BOOKIE_DELAY, b"30", None),
}
COMMANDS: Final = (
    "doctor",
    "cluster status",
    "cluster tree --depth 9",
    "ledger list",
    "bookie list",
    "log list",
    "autorecovery list",
    "autorecovery active",
    "autorecovery delay",
)


def changes() -> dict[str, tuple[str, object]]:
    found: dict[str, tuple[str, object]] = {}
    for kind in ROWS:
        key = "zzz" if kind in NUMBERED else 5
        copied = "SELECT kind, ?, value, version, ctime_ms, owner FROM node"
        found[f"{kind}: key"] = f"INSERT INTO node {copied} WHERE kind = '{kind}' LIMIT 1", key
        for column in ("value", "version", "ctime_ms", "owner"):
            statement = f"UPDATE node SET {column} = ? WHERE kind = '{kind}'"
            found[f"{kind}: {column}"] = statement, "abc"
        found[f"{kind}: number"] = f"UPDATE node SET value = ? WHERE kind = '{kind}'", 5
    for column in ("expires_ms", "timeout_ms", "pid"):
        found[f"session: {column}"] = f"UPDATE session SET {column} = ?", "abc"
    found["a sequence"] = "UPDATE seq SET next = ?", "abc"
    found["the last change"] = "UPDATE sqlite_sequence SET seq = ? WHERE name = 'change'", "abc"
    odd_text = "SELECT 'mark', CAST(? AS TEXT), x'00', 0, 0, NULL"
    found["text that is not UTF-8"] = f"INSERT INTO node {odd_text}", b"\xffa"
    return found


CHANGES: Final = changes()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A cluster with a row of each kind, in a file."""
    found = tmp_path / "metadata.db"
    at(f"sqlite://{found}", "cluster", "init")
    with sqlite3.connect(found) as connection:
        now_ms = int(time.time() * 1000)
        connection.execute(
            "INSERT INTO session VALUES(?, ?, ?, 1)", (SESSION, now_ms + 10**7, 2 * 10**7)
        )
        connection.executemany(
            "INSERT INTO node VALUES(?, ?, ?, 0, ?, ?)",
            [(kind, key, value, now_ms, owner) for kind, (key, value, owner) in ROWS.items()],
        )
    connection.close()
    return found


def damage(path: Path, name: str) -> None:
    statement, value = CHANGES[name]
    with sqlite3.connect(path) as connection:
        connection.execute(statement, (value,))
    connection.close()


@pytest.mark.parametrize("name", CHANGES)
def test_no_command_takes_damage_for_a_bug(path: Path, name: str) -> None:
    damage(path, name)
    for command in COMMANDS:
        found = at(f"sqlite://{path}", *command.split(), ok=False)
        assert "bug" not in found.out + found.err, (command, found)


@pytest.mark.parametrize(
    ("kind", "command"),
    [
        ("mark", "doctor"),
        ("mark", "cluster status"),
        ("mark", "autorecovery list"),
        ("lock", "autorecovery active"),
        ("ledger", "ledger list"),
        ("cookie", "bookie list"),
        ("log", "log list"),
    ],
)
def test_a_key_of_the_wrong_type_is_named_and_its_removal_too(
    path: Path, kind: str, command: str
) -> None:
    damage(path, f"{kind}: key")
    words = command.split()
    said = at(f"sqlite://{path}", *words, ok=False)
    key = "'zzz'" if kind in NUMBERED else "'5'"
    assert f"{path} is damaged: a {kind} row has the key {key}" in said.err
    remedy = said.err.partition("with sqlite3: ")[2].partition(" [BK")[0]
    with sqlite3.connect(path) as connection:
        connection.execute(remedy)
    connection.close()
    assert "damaged" not in at(f"sqlite://{path}", *words, ok=False).err


def test_a_value_that_was_stored_as_text_by_hand_counts(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(
            "UPDATE node SET value = '90' WHERE key = ?", (zk_paths.LOST_BOOKIE_DELAY,)
        )
    connection.close()
    assert "1m30s" in at(f"sqlite://{path}", "autorecovery", "delay").out
