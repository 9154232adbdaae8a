"""Cluster operations, one function each, for commands and scripts.

All except ``init_cluster`` have a ``Client`` as first argument: ``await list_bookies(client)``, or
``BlockingClient.call(admin.list_bookies)``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeVar

import attrs
from twisted.internet import defer
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime

from bkclient.errors import ClientError, ReadFailedError, RequestTimeoutError, refusal
from bkclient.metadata import zk_paths
from bkclient.metadata.errors import UNREADABLE, NotFoundError
from bkclient.metadata.stored_values import BookieState, BookieStatus, bookie_states
from bkclient.metadata.tree.store import MetadataStore
from bkclient.metadata.versions_and_watches import Versioned
from wire.codes import ReadFlag, ReturnCode
from wire.digest import Entry
from wire.ids import NO_ENTRY, BookieId, EntryId, LedgerId
from wire.ledger_metadata import LedgerMetadata
from wire.records.bookie_service_info import BookieServiceInfo

if TYPE_CHECKING:
    from bkclient.client import Client
    from bkclient.ledger.recovery_run import ProgressReport
    from wire.messages import Response

T = TypeVar("T")

ANSWERS_WITHIN_S: Final = 10.0
"""Seconds that a bookie may take to connect and answer if all bookies are asked."""

# The cluster -----------------------------------------------------------------------------------


@attrs.frozen
class ClusterIdentity:
    """The id of a cluster and the layout of its metadata; None for values that cannot be read."""

    instance_id: str | None
    layout: str | None
    damaged: Mapping[str, Exception]
    """The errors of unreadable nodes, by name."""


async def read_identity(client: Client) -> ClusterIdentity:
    """Return the id and the layout of the cluster, as far as they can be read.

    Raises:
        NotInitializedError: the cluster does not exist.
    """
    instance_id = layout = None
    damaged: dict[str, Exception] = {}
    try:
        instance_id = await client.store.instance_id()
    except UNREADABLE as error:
        damaged[zk_paths.INSTANCE_ID] = error
    try:
        layout = (await client.store.layout()).name
    except UNREADABLE as error:
        damaged[zk_paths.LAYOUT] = error
    return ClusterIdentity(instance_id, layout, damaged)


# Ledgers ---------------------------------------------------------------------------------------


async def read_metadata(client: Client, ledger_id: LedgerId) -> Versioned[LedgerMetadata]:
    """Return a ledger's metadata with its version.

    Raises:
        NoSuchLedgerError: the ledger does not exist.
    """
    return await client.read_metadata(ledger_id)


async def confirmed_end(client: Client, ledger_id: LedgerId) -> tuple[EntryId, int]:
    """Return the last confirmed entry and the payload bytes up to it, without fencing.

    Raises:
        NoSuchLedgerError: the ledger does not exist.
        ClientError: too few bookies answered, or the last entry cannot be read.
    """
    with contextlib.closing(await client.open_ledger(ledger_id, recover=False)) as reader:
        last = reader.last_add_confirmed
        if reader.is_closed:
            return last, reader.length
        return (last, (await reader.read_entry(last)).length) if last >= 0 else (last, 0)


async def recover_ledger(
    client: Client, ledger_id: LedgerId, progress: ProgressReport | None = None
) -> LedgerMetadata:
    """Fence a ledger's writer, find the last entry and close the ledger; return the final metadata.

    A closed ledger is unchanged.

    Raises:
        NoSuchLedgerError: the ledger does not exist.
        LedgerRecoveryError: the ledger cannot be recovered now; trying again is safe.
    """
    reader = await client.open_ledger(ledger_id, recover=True, progress=progress)
    reader.close()
    return reader.metadata


@attrs.frozen
class FenceReport:
    """The result of fencing: fenced bookies, the others with reasons, and whether it is enough.

    ``covered`` is True if no ack quorum is left that could accept an add of the old writer.
    """

    ledger_id: LedgerId
    was_closed: bool
    fenced: tuple[BookieId, ...]
    failed: dict[BookieId, ClientError]
    covered: bool


async def fence_ledger(client: Client, ledger_id: LedgerId) -> FenceReport:
    """Mark a ledger as in recovery and fence the bookies of its last fragment; do not close it.

    Waits for every bookie to answer or time out. The mark alone already keeps the writer from
    changing the ledger's metadata.

    Raises:
        NoSuchLedgerError: the ledger does not exist.
        MetadataStoreError: the mark could not be stored, and no writer was fenced.
    """
    from bkclient.ledger.reads.replica_read import as_client_error
    from bkclient.ledger.recovery_run import mark
    from bkclient.quorum.read_rules import NEGATIVE, LacQuorum
    from wire.messages import ReadRequest

    local = await client.local_metadata(ledger_id)
    metadata = await mark(client.cluster, local, ledger_id)
    if metadata.is_closed:
        return FenceReport(ledger_id, was_closed=True, fenced=(), failed={}, covered=True)
    keys = client.keys_of(ledger_id, metadata)
    request = ReadRequest(ledger_id, NO_ENTRY, ReadFlag.FENCE, keys.master_key)
    ensemble = metadata.last_fragment.ensemble
    answers = await DeferredList(
        [client.cluster.pool.send(bookie, request) for bookie in ensemble], consumeErrors=True
    )
    quorum = LacQuorum(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
    failed: dict[BookieId, ClientError] = {}
    for index, (succeeded, answer) in enumerate(answers):
        bookie = ensemble[index]
        error = _fence_error(bookie, answer) if succeeded else as_client_error(answer)
        if error is None or isinstance(error, NEGATIVE):
            quorum.answered(index, None)
        else:
            quorum.failed(index, error)
            failed[bookie] = error
    fenced = tuple(bookie for bookie in ensemble if bookie not in failed)
    covered = not isinstance(quorum.result, ClientError)
    return FenceReport(ledger_id, was_closed=False, fenced=fenced, failed=failed, covered=covered)


def _fence_error(bookie: BookieId, response: Response) -> ClientError | None:
    if response.rc is ReturnCode.EOK:
        return None
    return refusal(response.rc, ReadFailedError, f"bookie {bookie}")


# Bookies ---------------------------------------------------------------------------------------


async def list_bookies(client: Client) -> tuple[BookieStatus, ...]:
    """Return every bookie that is registered or has a cookie, by id."""
    store = client.store
    writable = await store.writable_bookies()
    read_only = await store.read_only_bookies()
    known = await store.known_bookies()
    return tuple(
        [
            BookieStatus(bookie_id, state, await _service_info(store, bookie_id, state))
            for bookie_id, state in bookie_states(writable, read_only, known).items()
        ]
    )


async def _service_info(
    store: MetadataStore, bookie_id: BookieId, state: BookieState
) -> BookieServiceInfo | None:
    if state is BookieState.DOWN:
        return None
    try:
        return await store.service_info(bookie_id)
    except (NotFoundError, *UNREADABLE):
        # The registration was deleted, or has no address.
        return None


@attrs.frozen
class BookieInfo:
    """The disks of one bookie, in bytes, summed over its ledger directories."""

    bookie_id: BookieId
    total_bytes: int
    free_bytes: int


async def bookie_info(
    client: Client, bookie_id: BookieId, within_s: float = ANSWERS_WITHIN_S
) -> BookieInfo:
    """Ask a bookie for its disk sizes, within ``within_s`` for connection and answer.

    Raises:
        BookieUnavailableError: the bookie cannot be reached.
        RequestTimeoutError: the bookie does not answer.
    """
    from bkclient.placement.free_space import ask_sizes

    sizes = await in_time(
        ask_sizes(client.cluster.pool, bookie_id), bookie_id, within_s, client.cluster.clock
    )
    return BookieInfo(bookie_id, sizes.total_bytes or 0, sizes.free_bytes or 0)


async def in_time(
    asked: Deferred[T], bookie_id: BookieId, within_s: float, clock: IReactorTime
) -> T:
    """Return a bookie's answer.

    Raises:
        RequestTimeoutError: the answer takes longer than ``within_s``.
    """
    try:
        return await asked.addTimeout(within_s, clock)
    except defer.TimeoutError as error:
        text = f"bookie {bookie_id}: no answer within {within_s:.3g} s"
        raise RequestTimeoutError(text) from error


async def read_entry_from(
    client: Client, bookie_id: BookieId, ledger_id: LedgerId, entry_id: EntryId
) -> Entry:
    """Read one entry from one bookie, whatever the LAC; the digest is verified.

    Raises:
        ClientError: the bookie does not return it.
    """
    from bkclient.ledger.reads.answer_verifier import AnswerVerifier
    from wire.messages import ReadRequest

    metadata = (await client.read_metadata(ledger_id)).value
    verifier = AnswerVerifier(ledger_id, client.keys_of(ledger_id, metadata).digester)
    answer: Deferred[Response] = client.cluster.pool.send(
        bookie_id, ReadRequest(ledger_id, entry_id)
    )
    return verifier.entry(bookie_id, await answer, entry_id)


# The cluster -----------------------------------------------------------------------------------


async def init_cluster(store: MetadataStore, layout: str | None = None) -> str:
    """Make a new cluster in a metadata store that is connected; return its instance id.

    Raises:
        AlreadyInitializedError: there is one.
    """
    return await store.initialize(layout)
