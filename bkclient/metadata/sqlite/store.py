"""The driver: ``MetadataStore`` on one SQLite file."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bkclient.concurrency import wall_clock
from bkclient.errors import IncorrectParameterError
from bkclient.metadata.sqlite.base import SqliteOptions
from bkclient.metadata.sqlite.bookies import SqliteBookies, SqliteCookies
from bkclient.metadata.sqlite.init_and_format import SqliteAdmin
from bkclient.metadata.sqlite.ledgers import SqliteLedgers
from bkclient.metadata.sqlite.logs import SqliteCursors, SqliteLogs
from bkclient.metadata.sqlite.raw_nodes import SqliteRaw, SqliteSiblings
from bkclient.metadata.sqlite.session import FileSession
from bkclient.metadata.sqlite.underreplication import SqliteElection, SqliteRepair


class SqliteMetadata(
    SqliteLedgers,
    SqliteBookies,
    SqliteCookies,
    SqliteLogs,
    SqliteCursors,
    SqliteAdmin,
    SqliteRaw,
    SqliteSiblings,
    SqliteRepair,
    SqliteElection,
):
    """Implements ``MetadataStore``. A session begins with the first thing that needs one."""


def parse_uri(uri: str) -> Path:
    """Return the file: ``sqlite:///absolute/path`` or ``sqlite:relative/path``.

    Raises:
        IncorrectParameterError: it names no file, or a host.
    """
    scheme, _, rest = uri.partition(":")
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        # Four slashes in all are how others write the same.
        rest = slash + path.lstrip("/") if host in {"", "localhost"} else ""
    if scheme.lower() != "sqlite" or not rest.strip("/") or rest.endswith("/"):
        raise IncorrectParameterError(
            f"{uri!r} names no file: sqlite:///absolute/path or sqlite:relative/path"
        )
    return Path(rest)


def open_sqlite(
    uri: str,
    *,
    reactor: Any,
    session_timeout_s: float,
    chance: random.Random | None = None,
    lock_owner: str | None = None,
    registration_wait_s: float | None = None,
    mark_times: bool = True,
    busy_timeout_s: float = 10.0,
    poll_interval_s: float = 0.2,
    monotonic_s: Callable[[], float] = time.monotonic,
) -> SqliteMetadata:
    """Return a store on a file, not yet connected; nothing is opened before ``connect``.

    Args:
        uri: as for ``parse_uri``.
        reactor: where everything is called back; also the wall clock.
        session_timeout_s: how long what this process owns outlives it.
        chance: the source of tokens and of the order of repairs.
        lock_owner: what locks say of us; the host's name by default.
        registration_wait_s: how long an older session may keep our bookie id.
        mark_times: whether the marks of under-replicated ledgers hold their time.
        busy_timeout_s: how long another process may hold the file locked.
        poll_interval_s: how often other processes' changes are read, while a watch is set.
        monotonic_s: a clock that cannot be set, to check the wall clock by.
    """
    path = parse_uri(uri).absolute()
    return SqliteMetadata(
        uri,
        FileSession(
            path,
            now_s=wall_clock(reactor),
            monotonic_s=monotonic_s,
            session_timeout_s=session_timeout_s,
            busy_timeout_s=busy_timeout_s,
        ),
        SqliteOptions(
            session_timeout_s=session_timeout_s,
            chance=random.Random() if chance is None else chance,
            lock_owner=socket.gethostname() if lock_owner is None else lock_owner,
            registration_wait_s=(
                session_timeout_s * 1.5 + 1 if registration_wait_s is None else registration_wait_s
            ),
            mark_times=mark_times,
            poll_interval_s=poll_interval_s,
        ),
        reactor=reactor,
    )
