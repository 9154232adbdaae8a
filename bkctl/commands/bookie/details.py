"""The bodies of `bookie show` and `bookie test`."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import attrs

from bkclient.admin import cluster_operations, cookies
from bkclient.admin.ledger_scan import walk
from bkclient.admin.sanity_checks import BookieCheck, check_bookie
from bkclient.client import Client
from bkclient.metadata.errors import CookieNotFoundError, MetadataAccessError
from bkclient.metadata.stored_values import BookieState, BookieStatus
from bkclient.metadata.tree.nodes import run_together
from bkclient.replication.recover_bookies import copies_by_bookie, size_of
from bkctl.bookies import ask_bookies, load_rates
from bkctl.bookies.bookie_columns import BookieSummary, is_loopback
from bkctl.bookies.load_rates import LoadFigures
from bkctl.cli.parameter_types import BOOKIE_ID
from bkctl.commands.cookie.stored_cookies import COOKIE_COLUMNS
from bkctl.errors import NothingFoundError, error_message
from bkctl.output.units import counted, human_bytes, human_duration
from bkctl.output.views import (
    BOOKIE,
    LEDGER,
    NEVER,
    WIDE,
    Column,
    Kind,
    declare_view,
    evolve,
    shown,
)
from bkctl.session.session import Session
from bkctl.suggest import no_such_bookie
from wire.ids import BookieId
from wire.records.bookie_service_info import Endpoint
from wire.records.cookie import Cookie


def _endpoints(v: BookieDetails) -> str:
    return ", ".join(f"{one.protocol} {one.host}:{one.port}" for one in v.endpoints) or "-"


def _figure(name: str, doc: str, kind: Kind, **more: Any) -> Column:
    return Column(name, doc, f"figures.{name}", kind, rank=NEVER, **more)


def _uptime_s(v: BookieDetails) -> float | None:
    began_s = None if v.figures is None else v.figures.started_s
    return None if began_s is None else max(0.0, time.time() - began_s)


@shown(
    "bookies",
    BOOKIE,
    Column("state", "writable, read-only or down.", "bookie.state"),
    Column(
        "endpoints",
        "Addresses that the bookie listens on.",
        lambda v: [attrs.asdict(one) for one in v.endpoints],
        Kind.NESTED,
        rank=WIDE,
        cell=_endpoints,
    ),
    Column("free", "Free space on the bookie's disks.", "bookie.free", Kind.BYTES),
    Column("total", "Size of the bookie's disks.", "bookie.total", Kind.BYTES),
    Column(
        "used",
        "Per cent of the bookie's disks in use.",
        "bookie.used_percent",
        Kind.NUMBER,
        cell=lambda v: f"{v.bookie.used_percent:.0f} %",
    ),
    Column(
        "unreachable",
        "The error, if the bookie does not answer.",
        lambda v: v.bookie.unreachable or None,
        rank=1,
        if_any=True,
    ),
    Column("ledgers", "Number of ledgers whose metadata names the bookie.", rank=3, if_any=True),
    Column("not_closed", "Number of these ledgers that are not closed.", rank=3, if_any=True),
    Column(
        "size",
        "Size of the bookie's replicas of closed ledgers, by the metadata.",
        "size_bytes",
        rank=3,
        if_any=True,
    ),
    *(attrs.evolve(one, rank=WIDE) for one in COOKIE_COLUMNS),
    Column(
        "properties",
        "Further properties that the bookie published.",
        "bookie.properties",
        Kind.NESTED,
        rank=WIDE,
        cell=lambda v: "\n".join(f"{k}={t}" for k, t in v.bookie.properties.items()) or "-",
    ),
    Column("rack", "Network location of the bookie.", "bookie.rack", rank=WIDE),
    Column("version", "Version of the bookie, by its metrics.", "figures.version", rank=WIDE),
    Column(
        "uptime_s",
        "Time since the bookie's start, by its metrics.",
        _uptime_s,
        Kind.SECONDS,
        rank=WIDE,
        header="UPTIME",
    ),
    _figure("adds", "Number of adds since the bookie's start.", Kind.COUNT),
    _figure("reads", "Number of reads since the bookie's start.", Kind.COUNT),
    _figure(
        "failures",
        "Adds and reads that failed, reads of missing entries included.",
        Kind.COUNT,
        header="FAILED REQUESTS",
    ),
    _figure("add_p99_ms", "99 of 100 adds took less, in ms.", Kind.NUMBER),
    _figure("read_p99_ms", "99 of 100 reads took less, in ms.", Kind.NUMBER),
    _figure("journal_queue", "Entries that wait for the journal.", Kind.COUNT),
    kw_only=True,
    healthy=lambda v: v.bookie.state == "writable",
)
class BookieDetails:
    """A row of `bookie list`, with the bookie's endpoints, cookie, ledgers and metrics."""

    bookie: BookieSummary
    endpoints: tuple[Endpoint, ...] = ()
    cookie: Cookie | None = None
    ledgers: int | None = None
    not_closed: int | None = None
    size_bytes: int | None = None
    """The payload of the bookie's copies in closed ledgers, if all entries of a ledger had
    equal size.
    """
    figures: LoadFigures | None = None
    """The figures from the bookie's metrics; None if they were not requested or are unknown."""

    @property
    def bookie_id(self) -> BookieId:
        return self.bookie.bookie_id


def named(session: Session, words: Sequence[str]) -> tuple[BookieId, ...]:
    """Return the bookies that a command line names; ``-`` reads ids from stdin.

    Raises:
        NothingFoundError: stdin contains no id.
    """
    found = tuple(map(BookieId, session.input.words(words, BOOKIE_ID)))
    if words and not found:
        raise NothingFoundError("no bookie ids on stdin")
    return found


def show(session: Session, bookie_ids: Sequence[str], *, ledgers: bool) -> None:
    """Print the details of bookies; without ids, of all bookies, with the sum of their space.

    Raises:
        NothingFoundError: a named bookie is not registered and has no cookie.
    """
    wanted = named(session, bookie_ids)
    if len(wanted) == 1:
        _show_one(session, wanted[0], count_ledgers=ledgers)
        return
    found = _asked(session, wanted, count_ledgers=ledgers)
    if ask_bookies.reads_figures(session):
        found = _with_figures(session, found)
    session.emit_all(found, BookieDetails)
    if not wanted and found:
        session.finish()
        free, total = space([one.bookie for one in found])
        session.note(f"together {human_bytes(free)} free of {human_bytes(total)}")


def _show_one(session: Session, bookie_id: BookieId, *, count_ledgers: bool) -> None:
    """Print the details of one bookie, with the figures of its metrics.

    Raises:
        NothingFoundError: the bookie is not registered and has no cookie.
    """
    session.about = f"bookie {bookie_id}"
    found = _asked(session, [bookie_id], count_ledgers=count_ledgers)
    session.emit(_with_figures(session, found)[0])


def _asked(
    session: Session, wanted: Sequence[BookieId], *, count_ledgers: bool
) -> list[BookieDetails]:
    with session.waiting_for_bookies():
        return session.call(
            details, wanted, count_ledgers=count_ledgers, within_s=session.answers_within_s
        )


def _with_figures(session: Session, found: Sequence[BookieDetails]) -> list[BookieDetails]:
    """Return bookies with the figures of their metrics, asked in parallel.

    A filter on figures drops a bookie without figures, so a warning has the reason.
    """
    answers = ask_bookies.figures_of(session, [one.bookie for one in found])
    complete = []
    for one, figures in zip(found, answers, strict=True):
        if isinstance(figures, load_rates.LoadFigures):
            complete.append(evolve(one, figures=figures))
            continue
        complete.append(one)
        if figures is not None:
            why = error_message(figures)
        elif session.options.filters and one.bookie.state != "down":
            why = "it publishes no HTTP server"
        else:
            continue
        session.warn(f"the metrics of bookie {one.bookie_id} are unknown: {why}")
    return complete


def space(found: Sequence[BookieSummary]) -> tuple[int, int]:
    """Return free and total bytes; bookies of one host with equal totals share their disks."""
    disks = {
        ("" if is_loopback(one.host) else one.host, one.total): one.free
        for one in found
        if one.free is not None
    }
    return sum(free or 0 for free in disks.values()), sum(total or 0 for _, total in disks)


async def details(
    client: Client, wanted: Sequence[BookieId], *, count_ledgers: bool, within_s: float
) -> list[BookieDetails]:
    """Return the details of bookies, asking those in service; in the order wanted, else by id."""
    known = {one.bookie_id: one for one in await cluster_operations.list_bookies(client)}
    missing = [bookie_id for bookie_id in wanted if bookie_id not in known]
    if missing:
        raise NothingFoundError(
            no_such_bookie(missing[0], known),
            next_step="`bkctl bookie list` lists the bookies",
        )
    chosen = [known[bookie_id] for bookie_id in dict.fromkeys(wanted or known)]
    racks = await ask_bookies.racks_of(client, chosen)
    found = await run_together(
        _details(client, one, racks.get(one.bookie_id), within_s) for one in chosen
    )
    return await _with_ledgers(client, found) if count_ledgers else found


async def _with_ledgers(client: Client, found: Sequence[BookieDetails]) -> list[BookieDetails]:
    """Count the ledgers and bytes of each bookie, in one walk over all ledgers."""
    ledgers: Counter[BookieId] = Counter()
    not_closed: Counter[BookieId] = Counter()
    sizes: Counter[BookieId] = Counter()
    async for one in walk(client.store):
        if one.metadata is not None:
            ledgers.update(one.metadata.all_bookies())
            if not one.metadata.is_closed:
                not_closed.update(one.metadata.all_bookies())
            for bookie_id, copies in copies_by_bookie(one.metadata).items():
                sizes[bookie_id] += size_of(one.metadata, copies) or 0
    return [
        evolve(
            one,
            ledgers=ledgers[one.bookie_id],
            not_closed=not_closed[one.bookie_id],
            size_bytes=sizes[one.bookie_id],
        )
        for one in found
    ]


async def _details(
    client: Client, one: BookieStatus, rack: str | None, within_s: float
) -> BookieDetails:
    found = BookieDetails(
        bookie=await ask_bookies.ask_bookie(client, one, rack, within_s=within_s),
        endpoints=() if one.info is None else one.info.endpoints,
    )
    with contextlib.suppress(CookieNotFoundError, MetadataAccessError):
        found = evolve(found, cookie=(await cookies.read(client, one.bookie_id)).cookie)
    return found


def test(session: Session, *, bookie_id: BookieId | None, entries: int) -> None:
    """Test one bookie; without an id, the bookie of the settings.

    Raises:
        NothingFoundError: the bookie is not registered.
    """
    if session.plans_only([f"write, read and delete a ledger of {counted(entries, 'entry')}"]):
        return
    if bookie_id is None:
        from bkctl.bookies.stopped_bookie import stopped_bookie

        bookie_id = stopped_bookie(session).bookie_id
    session.about = f"bookie {bookie_id}"
    states = {one.bookie_id: one.state for one in session.call(cluster_operations.list_bookies)}
    if states.get(bookie_id) in {None, BookieState.DOWN}:
        hangs = f"bookie {bookie_id} is not registered: it does not run, or its process hangs"
        raise NothingFoundError(
            hangs if bookie_id in states else no_such_bookie(bookie_id, states),
            next_step="`bkctl bookie list` lists the bookies",
        )
    session.emit(session.call(check_bookie, bookie_id, entries))


declare_view(
    BookieCheck,
    "tests",
    BOOKIE,
    LEDGER,
    Column("entries", "Number of entries."),
    Column("write_s", "Time to write the entries."),
    Column("read_s", "Time to read the entries."),
    sentence=lambda v: (
        f"bookie {v.bookie_id} is sane: {counted(v.entries, 'entry')} written in "
        f"{human_duration(v.write_s)}, read in {human_duration(v.read_s)}"
    ),
)
