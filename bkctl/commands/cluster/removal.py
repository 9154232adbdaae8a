"""What `cluster format` and `cluster nuke` do: show what would be lost, ask, and take it away."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any, Final

import attrs

from bkclient.admin.ledger_scan import walk
from bkclient.blocking import with_store
from bkclient.metadata import zk_paths
from bkclient.metadata.access import store_options
from bkclient.metadata.api import NotInitializedError
from bkclient.repair.autorecovery import count_marks
from bkctl.errors import ConflictError
from bkctl.output.units import counted, human_bytes
from bkctl.session.check_names import LEDGERS, LIVE_BOOKIES
from bkctl.session.safety import Objection, heed, named
from wire.ids import BookieId

if TYPE_CHECKING:
    from bkclient.metadata.api import MetadataStore
    from bkctl.session.session import Session

_INIT_BEGINS_WITH: Final = {zk_paths.AVAILABLE, zk_paths.READ_ONLY, zk_paths.INSTANCE_ID}
"""What Java's init makes before the layout."""


@attrs.frozen
class ClusterFormatted:
    """A cluster that has forgotten everything; ``was`` is its former instance id."""

    uri: str
    instance_id: str
    was: str | None
    ledgers: int


@attrs.frozen
class ClusterRemoved:
    """A cluster that is gone; ``was`` is None where there was none."""

    uri: str
    was: str | None
    ledgers: int


@attrs.frozen(kw_only=True)
class Stock:
    """What a cluster's metadata holds, and who uses it."""

    instance_id: str | None
    ledgers: int
    not_closed: int
    unreadable: int
    size_bytes: int
    marks: int
    cookies: tuple[BookieId, ...]
    logs: tuple[str, ...]
    registered: tuple[BookieId, ...]

    def lines(self) -> list[str]:
        """Return what would be lost, for people."""
        ledgers = f"{counted(self.ledgers, 'ledger')} with {human_bytes(self.size_bytes)}"
        rest = [
            f"{number} {what}"
            for number, what in (
                (self.not_closed, "not closed, whose bytes nobody has counted"),
                (self.unreadable, "unreadable"),
            )
            if number
        ]
        return [
            ledgers + (f" ({', '.join(rest)})" if rest else ""),
            *_counted_names(self.cookies, "cookie"),
            *_counted_names(self.logs, "log"),
            *([f"{counted(self.marks, 'mark')} of ledgers that lack replicas"] * bool(self.marks)),
        ]


def _counted_names(names: Collection[str], what: str) -> list[str]:
    return [f"{counted(len(names), what)}: {named(names)}"] if names else []


async def stock(store: MetadataStore) -> Stock | None:
    """Return what there is; None where there is no cluster. Walks over all ledgers.

    Raises:
        ConflictError: there is a root without a layout, and more in it than a cut init leaves.
    """
    try:
        await store.layout()
    except NotInitializedError:
        return await _without_layout(store)
    ledgers = not_closed = unreadable = size_bytes = 0
    async for one in walk(store):
        ledgers += 1
        if one.metadata is None:
            unreadable += 1
        elif one.metadata.is_closed:
            size_bytes += one.metadata.length
        else:
            not_closed += 1
    return Stock(
        instance_id=await store.instance_id(),
        ledgers=ledgers,
        not_closed=not_closed,
        unreadable=unreadable,
        size_bytes=size_bytes,
        marks=await count_marks(store),
        cookies=tuple(sorted(await store.known_bookies())),
        logs=tuple(await store.list_logs()),
        registered=tuple(sorted(await store.writable_bookies() | await store.read_only_bookies())),
    )


async def _without_layout(store: MetadataStore) -> Stock | None:
    """Return what there is where nothing says how ledgers are kept: nobody can count them."""
    try:
        nodes = set(await store.dump())
    except NotInitializedError:
        return None
    more = sorted(nodes - _INIT_BEGINS_WITH)
    if more:
        raise ConflictError(
            f"{store.uri} has no LAYOUT, and is not empty: {named(more)}",
            next_step="nobody can tell which ledgers there are; put LAYOUT back first",
        )
    if not nodes:
        return None
    return Stock(
        instance_id=await store.instance_id(),
        ledgers=0,
        not_closed=0,
        unreadable=0,
        size_bytes=0,
        marks=0,
        cookies=(),
        logs=(),
        registered=(),
    )


def format_cluster(session: Session, force: Collection[str], *, option: str = "--force") -> None:
    """Show what would be lost, ask, and format the cluster's metadata.

    Raises:
        RefusedError: a safety check says no, or nobody confirmed.
        ConflictError: it is another cluster than was shown.
    """
    found: Stock | None = _with_store(session, stock)
    if found is not None:
        objections = (*_registered(found, LIVE_BOOKIES), *_ledgers(found))
        heed(session, objections, force, option=option)
    if session.dry_run:
        if found is None:
            session.plan([f"make a cluster at {session.uri}"])
            return
        lost = [f"remove {line}" for line in found.lines()]
        session.plan([*lost, "give the cluster a new instance id"])
        return
    if found is not None:
        _confirm(session, found, "Format the metadata of cluster")

    async def work(store: MetadataStore) -> str:
        await _insist_same(store, found)
        return await store.format()

    made: str = _with_store(session, work)
    was = found.instance_id if found else None
    session.emit(ClusterFormatted(session.uri, made, was, found.ledgers if found else 0))


def insist_root(session: Session, root: str | None) -> None:
    """Refuse where the service URI names another root than is meant, if one is said to be meant.

    Raises:
        ConflictError: it is another one.
    """
    _, _, path = session.uri.partition("://")[2].partition("/")
    has = f"/{path}".rstrip("/")
    if root is not None and root.rstrip("/") != has:
        raise ConflictError(
            f"{session.uri} has the root {has}, not {root}",
            next_step="is -u or BKCTL_SERVICE_URI another's?",
        )


def nuke(session: Session, instance_id: str | None, force: Collection[str]) -> None:
    """Show what would be lost, ask unless the cluster's id is given, and remove the cluster.

    Raises:
        RefusedError: a safety check says no, or nobody confirmed.
        ConflictError: it is another cluster than was named or shown.
        ClusterInUseError: there is what is not the cluster's.
    """
    found: Stock | None = _with_store(session, stock)
    if found is None:
        session.emit(ClusterRemoved(session.uri, None, 0))
        return
    if instance_id is not None and instance_id != found.instance_id:
        raise ConflictError(
            f"this is the cluster {found.instance_id}, not {instance_id}",
            next_step="is -u or BKCTL_SERVICE_URI another's?",
        )
    heed(session, (*_registered(found, ""), *_ledgers(found)), force)
    if session.dry_run:
        lost = [f"remove {line}" for line in found.lines()]
        session.plan([*lost, f"remove the cluster {found.instance_id}"])
        return
    if instance_id is None:
        _confirm(session, found, "Remove the cluster")

    async def work(store: MetadataStore) -> None:
        await _insist_same(store, found)
        await store.nuke()

    _with_store(session, work)
    session.emit(ClusterRemoved(session.uri, found.instance_id, found.ledgers))


def _with_store(session: Session, work: Callable[[MetadataStore], Any]) -> Any:
    """Run ``work`` on the store of the session's cluster, which need not be there."""
    return with_store(session.uri, work, **store_options(session.config, session.uri))


async def _insist_same(store: MetadataStore, shown: Stock | None) -> None:
    """Make sure that nobody has made, formatted or removed the cluster since it was shown.

    Raises:
        ConflictError: somebody has.
    """
    try:
        found = await store.instance_id()
    except NotInitializedError:
        found = None
    if found != (shown.instance_id if shown else None):
        raise ConflictError(
            "the cluster is another one than a moment ago; nothing was changed",
            next_step="another process formats it: check again",
        )


def _registered(found: Stock, check: str) -> Iterator[Objection]:
    if found.registered:
        verb = "is" if len(found.registered) == 1 else "are"
        yield Objection(
            check,
            f"{counted(len(found.registered), 'bookie')} {verb} registered: "
            f"{named(found.registered)}",
            "stop them first (one that was killed is forgotten when its session times out)",
        )


def _ledgers(found: Stock) -> Iterator[Objection]:
    if found.ledgers:
        yield Objection(
            LEDGERS,
            f"{counted(found.ledgers, 'ledger')} would be lost: nothing else says where they are",
            "`bkctl ledger list` shows them",
        )


def _confirm(session: Session, found: Stock, what: str) -> None:
    session.confirm(
        [
            f"Of the metadata at {session.uri} this will be lost for good:",
            *(f"  {line}" for line in found.lines()),
        ],
        f"{what} {found.instance_id}?",
        proof=found.instance_id or session.uri,
    )
