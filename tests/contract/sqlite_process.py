"""One process of several on one metadata file; ``test_sqlite`` starts it.

    python -m tests.contract.sqlite_process FILE ROLE ARGUMENTS…

``add COUNT``: allocate ids, create ledgers, and count up the custom metadata of ledger 0 by
compare-and-swap, COUNT times each. ``hold BOOKIE``: register, lock ledger 0, print a line, wait to
be killed. ``make``: make the cluster, print the instance id.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import attrs
from twisted.internet import reactor as the_global_one
from twisted.internet.defer import Deferred
from twisted.internet.task import react

from bkclient.errors import MetadataVersionError
from bkclient.metadata import open_metadata
from bkclient.metadata.errors import AlreadyInitializedError
from tests.bkclient.metadata.values import info, metadata
from wire.ids import BookieId, LedgerId


async def add(store: Any, count: str) -> None:
    for _ in range(int(count)):
        ledger_id = await store.allocate_ledger_id()
        await store.create_ledger(ledger_id, metadata())
        print(ledger_id, flush=True)
        while True:
            found = await store.read_ledger(LedgerId(0))
            number = int(found.value.custom.get("count", b"0")) + 1
            new = attrs.evolve(found.value, custom={"count": b"%d" % number}, creator_token=0)
            try:
                await store.write_ledger(LedgerId(0), new, found.version)
            except MetadataVersionError:
                continue
            break


async def hold(store: Any, bookie: str) -> None:
    bookie_id = BookieId(bookie)
    await store.register(bookie_id, info(bookie_id), read_only=False)
    assert await store.acquire_lock(LedgerId(0))
    print("holding", flush=True)
    await Deferred()


async def make(store: Any) -> None:
    with suppress(AlreadyInitializedError):
        await store.initialize()
    print(await store.instance_id(), flush=True)


ROLES: dict[str, Callable[..., Coroutine[Any, Any, None]]] = {
    "add": add,
    "hold": hold,
    "make": make,
}


async def main(_reactor: Any, path: str, role: str, *arguments: str) -> None:
    store = open_metadata(
        f"sqlite://{path}",
        reactor=the_global_one,
        session_timeout_s=4.0,
    )
    await store.connect()
    try:
        await ROLES[role](store, *arguments)
    finally:
        await store.close()


if __name__ == "__main__":
    react(lambda *arguments: Deferred.fromCoroutine(main(*arguments)), sys.argv[1:])
