"""A look at a real ZooKeeper: the same as the store sees, over connections that break."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from bkclient.admin import cluster_operations
from bkclient.concurrency import for_each
from bkclient.metadata.errors import MetadataAccessError, MetadataUnavailableError
from bkclient.metadata.versions_and_watches import NEW
from bkclient.metadata.zookeeper_reader import open_metadata_reader
from bkclient.metadata.zookeeper_reader.reader import ZooKeeperReader
from bkctl.commands.local.zookeeper import ZooKeeperProcess
from tests.bkclient.metadata.values import B1, B2, B3, closed, info, metadata
from tests.contract.metadata_drivers import ZooKeeperDriver
from tests.support import reactor
from wire.ids import LedgerId

pytestmark = pytest.mark.interop

LEDGERS = 3000
LONG_IDS = (2**31 + 7, 2**40, 2**62)


@contextmanager
def looking(uri: str, **options: Any) -> Iterator[ZooKeeperReader]:
    found = open_metadata_reader(uri, **{"session_timeout_s": 6.0, **options})
    assert found is not None
    try:
        yield found
    finally:
        found.close()


def ids_of(found: ZooKeeperReader) -> list[LedgerId]:
    return [ledger_id for ids in found.ledger_ranges(None) for ledger_id in ids]


@pytest.fixture
def filled(zk_driver: ZooKeeperDriver) -> ZooKeeperDriver:
    """Return a cluster with some ledgers and bookies."""

    async def fill() -> None:
        store = await zk_driver.open(uri=zk_driver.direct_uri)

        async def create(ledger_id: int) -> None:
            await store.create_ledger(LedgerId(ledger_id), closed(last=ledger_id % 1000))

        await for_each([*range(LEDGERS), *LONG_IDS], create, 100)
        await store.register(B1, info(B1), read_only=False)
        await store.register(B2, info(B2), read_only=True)
        await store.write_cookie(B3, b"", NEW)

    zk_driver.run(fill())
    return zk_driver


class _Client:
    def __init__(self, store: Any) -> None:
        self.store = store


def test_it_sees_what_the_store_sees(filled: ZooKeeperDriver) -> None:
    store = filled.stores[-1]

    async def seen() -> Any:
        ids = [i async for some in store.ledger_ranges() for i in some]
        last = await store.read_ledger(ids[-1])
        return ids, last, await cluster_operations.list_bookies(_Client(store))  # type: ignore[arg-type]

    ids, last, bookies = filled.run(seen())
    with looking(filled.direct_uri) as found:
        assert ids_of(found) == ids == [*range(LEDGERS), *LONG_IDS]
        ledgers = [one for some in found.ledgers(ids) for one in some]
        assert [one.ledger_id for one in ledgers] == ids
        assert ledgers[-1].stored == last
        assert found.bookies() == bookies
        assert found.replication_note() is None


def test_what_was_cut_is_asked_again(filled: ZooKeeperDriver) -> None:
    with looking(filled.uri) as found:
        ids = ids_of(found)
        reactor.call(filled.proxy.cut)
        listed, cuts = [], 0
        for some in found.ledgers(ids):
            listed += [one.ledger_id for one in some]
            if len(listed) > 500 * (cuts + 1):
                reactor.call(filled.proxy.cut)
                cuts += 1
        assert listed == ids
        assert cuts >= 3


def test_whoever_takes_longer_than_the_session_lives_loses_nothing(
    filled: ZooKeeperDriver,
) -> None:
    with looking(filled.direct_uri, session_timeout_s=1.0) as found:
        ids = ids_of(found)
        answered = found.ledgers(ids)
        listed = [one.ledger_id for one in next(answered)]
        time.sleep(3)  # As a pager does that nobody scrolls.
        listed += [one.ledger_id for some in answered for one in some]
        assert listed == ids


def test_a_server_that_has_gone_is_told_in_time(filled: ZooKeeperDriver) -> None:
    with looking(filled.uri, session_timeout_s=1.0) as found:
        ids = ids_of(found)
        filled.proxy.accepts = False
        reactor.call(filled.proxy.cut)
        began_s = time.monotonic()
        with pytest.raises(MetadataUnavailableError, match="no ZooKeeper answered within 1 s"):
            list(found.ledgers(ids))
        assert time.monotonic() - began_s < 60


def test_only_who_may_look_sees_a_cluster_that_is_its_creators(zk_driver: ZooKeeperDriver) -> None:
    at = zk_driver.at(f"{zk_driver.root}/secure", "hierarchical")
    auth = [("digest", "bookie:secret")]

    async def fill() -> None:
        store = await zk_driver.open(uri=at, auth_data=auth, secure=True)
        await store.initialize()
        await store.create_ledger(LedgerId(1), metadata())

    zk_driver.run(fill())
    with looking(at, auth_data=auth) as found:
        assert [one.ledger_id for some in found.ledgers(ids_of(found)) for one in some] == [1]
    with looking(at) as found, pytest.raises(MetadataAccessError, match="access denied"):
        ids_of(found)


def test_closing_ends_the_session_on_the_server(
    zk_driver: ZooKeeperDriver, contract_zookeeper: ZooKeeperProcess
) -> None:
    with looking(zk_driver.direct_uri, session_timeout_s=60.0) as found:
        found.bookies()
        sessions = _sessions(contract_zookeeper)
    # Left alone it would live for six seconds, the longest that this server gives.
    gone = zk_driver.until(lambda: _sessions(contract_zookeeper) < sessions, timeout_s=5.0)
    reactor.run(gone)


def _sessions(server: ZooKeeperProcess) -> int:
    with socket.create_connection((server.host, server.port), timeout=5) as connection:
        connection.sendall(b"mntr")
        answer = b"".join(iter(lambda: connection.recv(4096), b"")).decode()
    (line,) = [line for line in answer.splitlines() if "zk_global_sessions" in line]
    return int(line.split()[1])
