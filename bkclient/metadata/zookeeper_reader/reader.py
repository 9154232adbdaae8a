"""Reads of a cluster in ZooKeeper: ledgers, bookies, and the switch of autorecovery."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from bkclient.errors import MetadataStoreError
from bkclient.metadata import zk_paths
from bkclient.metadata.errors import MetadataAccessError, NotFoundError, NotInitializedError
from bkclient.metadata.stored_values import (
    IDS_AT_ONCE,
    BookieState,
    BookieStatus,
    as_stored,
    bookie_states,
    decode_registration,
    known_layout,
    layout_in_force,
    not_readable,
)
from bkclient.metadata.versions_and_watches import StoredLedger
from bkclient.metadata.zookeeper_reader import frames
from wire.ids import BookieId, LedgerId, is_valid_bookie_id

if TYPE_CHECKING:
    from bkclient.metadata.zk_paths import Digits, LedgerLayout
    from bkclient.metadata.zk_uri import ZooKeeperUri
    from bkclient.metadata.zookeeper_reader.frames import Answer, Body
    from bkclient.metadata.zookeeper_reader.read_session import ReadSession
    from wire.records.bookie_service_info import BookieServiceInfo

_NODES_AT_ONCE: Final = 16
"""The most lists of names that are read together, if they are short."""

_NAMES_AT_ONCE: Final = 1000
"""The number of names in one read from which lists are read singly again."""

Names = tuple[str, ...]


class ZooKeeperReader:
    """A cluster in ZooKeeper, as of the first read or later; after ``close``, of the next read.

    ``warn`` is called for invalid nodes. Every method may raise the errors of ``ReadSession.ask``,
    and ``MetadataAccessError`` if access is denied.
    """

    def __init__(self, session: ReadSession, uri: ZooKeeperUri) -> None:
        self._session, self._uri = session, uri
        self._layout_found: LedgerLayout | None = None
        self._note: bytes | None = None
        self._instance_id: bytes | None = None
        self.warn: Callable[[str], object] = lambda _text: None

    def begin(self) -> None:
        """Connect, and read the nodes that all reads need; otherwise the first read does this.

        Raises:
            NotInitializedError: there is no cluster.
            IncompatibleLayoutError: the cluster's layout is unknown, or not the requested one.
        """
        self._layout()

    def close(self) -> None:
        """End the session; the next read begins another session, with newer data."""
        self._session.close()
        self._layout_found = None

    def ledger_ranges(self, after: LedgerId | None) -> Iterator[Sequence[LedgerId]]:
        """Yield the ids of all ledgers above ``after``, ascending.

        Raises:
            NotInitializedError: there is no cluster.
            IncompatibleLayoutError: the cluster's layout is unknown, or not the requested one.
        """
        layout, least = self._layout(), -1 if after is None else after
        for spelling in layout.spellings:
            for leaf, names in self._leaves(spelling, [()], least):
                found, strange = layout.ledgers_among(spelling, leaf, names, least)
                for path in strange:
                    self.warn(f"ignored {zk_paths.shown(path)}: the node is not a ledger")
                for at in range(0, len(found), IDS_AT_ONCE):
                    yield found[at : at + IDS_AT_ONCE]

    def _leaves(
        self, spelling: Digits, nodes: Sequence[Names], after: int
    ) -> Iterator[tuple[Names, list[str]]]:
        """Yield the nodes with ledgers and the names in them, below ``nodes`` of one level."""
        at, size = 0, 1
        while at < len(nodes):
            some = nodes[at : at + size]
            lists = self._children("".join(f"/{name}" for name in node) for node in some)
            at += size
            for node, names in zip(some, lists, strict=True):
                if names is None and not node:
                    raise NotInitializedError(f"{self._uri.text}: the cluster is gone")
                if len(node) < spelling.depth:
                    yield from self._leaves(
                        spelling, spelling.inner_among(node, names or (), after), after
                    )
                elif names is not None:
                    yield node, names
            # Read lists of ten thousand names singly, and many short lists together.
            is_short = sum(len(names or ()) for names in lists) < _NAMES_AT_ONCE
            size = min(2 * size, _NODES_AT_ONCE) if is_short else 1

    def ledgers(self, ids: Sequence[LedgerId]) -> Iterator[list[StoredLedger]]:
        """Yield ledgers in the order of ``ids``, in groups as they arrive; skip deleted ledgers."""
        path_of, at = self._layout().path_of, 0
        bodies = (frames.get_data(self._uri.root + path_of(ledger_id)) for ledger_id in ids)
        for answers in self._session.ask(bodies):
            found = []
            some = ids[at : at + len(answers)]
            for ledger_id, (wrong, answer) in zip(some, answers, strict=True):
                if wrong == 0:
                    found.append(as_stored(ledger_id, *frames.data_of(answer)))
                elif wrong == frames.NO_AUTH:
                    why = not_readable(ledger_id, self._denied(path_of(ledger_id)))
                    found.append(StoredLedger(ledger_id, None, why))
                else:
                    self._check(path_of(ledger_id), wrong)
            at += len(answers)
            yield found

    def bookies(self) -> tuple[BookieStatus, ...]:
        """Return every bookie that is registered or has a cookie, by id."""
        self._layout()
        # The read-only list first: a bookie that becomes writable between the reads is in a list.
        paths = (zk_paths.READ_ONLY, zk_paths.AVAILABLE, zk_paths.COOKIES)
        read_only, writable, known = map(self._bookies_among, paths, self._children(paths))
        found = bookie_states(writable, read_only, known)
        up = [bookie for bookie, state in found.items() if state is not BookieState.DOWN]
        infos = self._infos(up)
        return tuple(BookieStatus(one, state, infos.get(one)) for one, state in found.items())

    def _bookies_among(self, path: str, names: Iterable[str] | None) -> frozenset[BookieId]:
        found = []
        for name in names or ():
            if is_valid_bookie_id(name):
                found.append(BookieId(name))
            elif name != zk_paths.READ_ONLY_NAME:
                at = zk_paths.shown(f"{path}/{name}")
                self.warn(f"ignored {at}: the name is not a bookie id")
        return frozenset(found)

    def _infos(self, bookies: Sequence[BookieId]) -> dict[BookieId, BookieServiceInfo]:
        """Return the readable info of the bookies that are still registered."""
        paths = [
            zk_paths.registration(bookie, read_only=read_only)
            for bookie in bookies
            for read_only in (False, True)
        ]
        values = iter(self._values(paths))
        found = {}
        for bookie, value, other in zip(bookies, values, values, strict=True):
            either = other if value is None else value
            if isinstance(either, bytes):
                try:
                    found[bookie] = decode_registration(bookie, either)
                except NotFoundError:
                    continue
        return found

    def replication_note(self) -> bytes | None:
        """Return the note of the disabled switch; ``None`` while autorecovery is enabled."""
        self._layout()
        return self._note

    def instance_id(self) -> str | None:
        """Return the cluster's instance id, or ``None``."""
        self._layout()
        return None if self._instance_id is None else self._instance_id.decode(errors="replace")

    def _layout(self) -> LedgerLayout:
        if self._layout_found is None:
            stored, note, instance_id = self._values(
                (zk_paths.LAYOUT, zk_paths.REPLICATION_DISABLED, zk_paths.INSTANCE_ID)
            )
            if isinstance(stored, MetadataAccessError):
                raise stored
            self._note = b"" if isinstance(note, MetadataAccessError) else note
            self._instance_id = instance_id if isinstance(instance_id, bytes) else None
            found = layout_in_force(
                self._uri.text, None if stored is None else known_layout(stored), self._uri.layout
            )
            self._layout_found = zk_paths.LAYOUTS[found.name]
        return self._layout_found

    # Reads

    def _values(self, paths: Iterable[str]) -> list[bytes | MetadataAccessError | None]:
        """Return the nodes' values or access errors; None for nodes that do not exist."""
        paths = list(paths)
        bodies = [frames.get_data(self._uri.root + path) for path in paths]
        return [
            self._denied(path)
            if wrong == frames.NO_AUTH
            else frames.data_of(answer)[0]
            if self._is_there(path, wrong)
            else None
            for path, (wrong, answer) in zip(paths, self._answers(bodies), strict=True)
        ]

    def _children(self, paths: Iterable[str]) -> list[list[str] | None]:
        """Return the names of the nodes' children; None for nodes that do not exist."""
        paths = list(paths)
        bodies = [frames.get_children(self._uri.root + path) for path in paths]
        return [
            frames.names_of(answer) if self._is_there(path, wrong) else None
            for path, (wrong, answer) in zip(paths, self._answers(bodies), strict=True)
        ]

    def _answers(self, bodies: Sequence[Body]) -> Sequence[Answer]:
        if self._layout_found is None:
            # The reads see every write that was complete before them, on any server.
            first = frames.sync(self._uri.root)
            return self._flat([first, *bodies])[1:]
        return self._flat(bodies)

    def _flat(self, bodies: Iterable[Body]) -> list[Answer]:
        return [answer for answers in self._session.ask(bodies) for answer in answers]

    def _denied(self, path: str) -> MetadataAccessError:
        return MetadataAccessError.denied(zk_paths.shown(self._uri.text + path))

    def _is_there(self, path: str, wrong: int) -> bool:
        if wrong:
            self._check(path, wrong)
        return wrong == 0

    def _check(self, path: str, wrong: int) -> None:
        """Raise the error of an answer, except for a missing node."""
        if wrong in {frames.NO_AUTH, frames.AUTH_FAILED}:
            raise self._denied(path)
        if wrong != frames.NO_NODE:
            raise MetadataStoreError(f"{self._uri.text}: ZooKeeper answers with error {wrong}")
