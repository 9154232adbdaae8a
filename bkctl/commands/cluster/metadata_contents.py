"""The contents of a cluster's metadata: shown before it is formatted, removed or restored."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

import attrs

from bkclient.admin.ledger_scan import walk
from bkclient.metadata import zk_paths
from bkclient.metadata.errors import NotInitializedError
from bkclient.replication.autorecovery_admin import count_marks
from bkctl.errors import ConflictError
from bkctl.output.units import counted, human_bytes
from bkctl.session.safety_checks import some_names
from wire.ids import BookieId

if TYPE_CHECKING:
    from bkclient.metadata.tree.store import MetadataStore

_INIT_BEGINS_WITH: Final = {zk_paths.AVAILABLE, zk_paths.READ_ONLY, zk_paths.INSTANCE_ID}
"""The nodes that Java's init creates before the layout."""


@attrs.frozen(kw_only=True)
class MetadataContents:
    """The contents of a cluster's metadata, and its registered bookies."""

    instance_id: str | None
    ledgers: int
    not_closed: int
    unreadable: int
    size_bytes: int
    marks: int
    cookies: tuple[BookieId, ...]
    logs: tuple[str, ...]
    registered: tuple[BookieId, ...]
    has_layout: bool = True
    """False after an interrupted init: only the instance id exists."""

    @property
    def is_empty(self) -> bool:
        """True if nothing would be lost: no ledger, mark, cookie, log or registered bookie."""
        contents = self.ledgers, self.marks, self.cookies, self.logs, self.registered
        return not any(contents)

    def lines(self) -> list[str]:
        """Return what would be lost, as texts to print."""
        ledgers = f"{counted(self.ledgers, 'ledger')} with {human_bytes(self.size_bytes)}"
        rest = [
            f"{number} {what}"
            for number, what in (
                (self.not_closed, "not closed, of unknown size"),
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
    return [f"{counted(len(names), what)}: {some_names(names)}"] if names else []


async def read_contents(store: MetadataStore) -> MetadataContents | None:
    """Return the contents of a cluster; None without a cluster. Walks over all ledgers.

    Raises:
        ConflictError: the root has no layout, but more nodes than an interrupted init leaves.
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
    return MetadataContents(
        instance_id=await store.instance_id(),
        ledgers=ledgers,
        not_closed=not_closed,
        unreadable=unreadable,
        size_bytes=size_bytes,
        marks=await count_marks(store),
        cookies=tuple(sorted(await store.known_bookies())),
        logs=tuple(await store.list_logs()),
        registered=tuple(sorted(await store.registered_bookies())),
    )


async def _without_layout(store: MetadataStore) -> MetadataContents | None:
    """Return the contents of a root without a layout, whose ledgers cannot be counted."""
    try:
        nodes = set(await store.dump())
    except NotInitializedError:
        return None
    more = sorted(nodes - _INIT_BEGINS_WITH)
    if more:
        raise ConflictError(
            f"{store.uri} has no LAYOUT, and is not empty: {some_names(more)}",
            next_step="restore the node LAYOUT first; without it the ledgers cannot be found",
        )
    if not nodes:
        return None
    return MetadataContents(
        instance_id=await store.instance_id(),
        ledgers=0,
        not_closed=0,
        unreadable=0,
        size_bytes=0,
        marks=0,
        cookies=(),
        logs=(),
        registered=(),
        has_layout=False,
    )
