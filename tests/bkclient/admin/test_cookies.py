"""What the cluster has on a bookie whose cookie is to go."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from bkclient.admin import cookies
from bkclient.client import Client
from bkclient.errors import IllegalOperationError
from bkclient.metadata.tree.store import MetadataStore
from bkclient.metadata.versions_and_watches import NEW
from tests.bkclient.metadata.values import closed, metadata
from tests.bkclient.worlds import World
from wire.ids import BookieId, EntryId, LedgerId
from wire.ledger_metadata import Fragment
from wire.records.bookie_service_info import BOOKIE_RPC, BookieServiceInfo, Endpoint
from wire.records.cookie import Cookie, encode_cookie

INFO = BookieServiceInfo((Endpoint("bookie", 3181, "h", BOOKIE_RPC),))
A, B, C = (BookieId(f"b{n}") for n in (1, 2, 3))


def held_by(*ensemble: BookieId) -> tuple[Fragment, ...]:
    return (Fragment(EntryId(0), ensemble),)


def test_open_ledgers_and_only_copies_rely_on_a_bookie() -> None:
    world = World(3)
    client = world.client()

    async def scenario() -> cookies.DependentLedgers:
        store = client.store
        await store.create_ledger(LedgerId(1), metadata(fragments=held_by(A, B)))
        for ledger_id, ensemble in ((2, (A, B)), (3, (B, C)), (4, (A, BookieId("gone:1")))):
            await store.create_ledger(LedgerId(ledger_id), metadata(fragments=held_by(*ensemble)))
            ended = closed()
            ended = metadata(
                state=ended.state, last_entry_id=ended.last_entry_id, fragments=held_by(*ensemble)
            )
            await store.write_ledger(LedgerId(ledger_id), ended, 0)
        return await cookies.reliance_on(client, A)

    found = world.run(scenario())
    assert (found.registered, found.ledgers) == (True, 3)
    assert found.not_closed == (1,)
    assert found.only_here == (4,)
    assert found.unreadable == ()


def test_a_ledger_that_cannot_be_read_may_list_anybody() -> None:
    world = World(1)
    client = world.client()
    world.run(client.store.create_ledger(LedgerId(1), metadata(fragments=held_by(B, C))))
    (path,) = [path for path in world.run(client.store.dump()) if path.endswith("L0001")]
    world.metadata.set(path, b"damaged")
    assert world.run(cookies.reliance_on(client, A)).unreadable == (1,)


def test_a_cookie_that_is_none_is_listed_with_what_is_wrong() -> None:
    world = World(0)
    client = world.client()
    good = Cookie("b1", "/j", ("/l",))

    async def scenario() -> list[cookies.StoredCookie]:
        await client.store.write_cookie(A, encode_cookie(good), NEW)
        await client.store.write_cookie(B, b"nonsense", NEW)
        return await cookies.list_cookies(client)

    first, second = world.run(scenario())
    assert (first.bookie_id, first.cookie) == (A, good)
    assert (second.bookie_id, second.cookie) == (B, None)
    assert "nonsense" in second.problem


class _RegistersMeanwhile:
    """A store on which a bookie registers right after its cookie was removed."""

    def __init__(self, store: MetadataStore, other: MetadataStore, *, is_new: bool) -> None:
        self._store, self._other, self._is_new = store, other, is_new

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def remove_cookie(self, bookie_id: BookieId, version: int) -> None:
        await self._store.remove_cookie(bookie_id, version)
        if self._is_new:
            await self._other.write_cookie(bookie_id, b"new", NEW)
        await self._other.register(bookie_id, INFO, read_only=False)


@pytest.mark.parametrize("is_new", [False, True])
def test_a_bookie_that_registers_while_its_cookie_goes_keeps_it(*, is_new: bool) -> None:
    world = World(0)
    client, other = world.client(), world.client()
    store = client.store
    world.run(store.write_cookie(A, b"old", NEW))
    interrupted = _RegistersMeanwhile(store, other.store, is_new=is_new)
    deleting = cookies.delete_cookies(cast("Client", SimpleNamespace(store=interrupted)), [A])
    if is_new:
        assert world.run(deleting) == (A,)
    else:
        with pytest.raises(IllegalOperationError, match="b1 is running"):
            world.run(deleting)
    assert world.run(store.read_cookie(A)).value == (b"new" if is_new else b"old")
