"""What a seed is going to do: a cluster, a ledger, who comes, and what goes wrong when.

A plan is drawn before anything happens, so that parts of it can be left out to find the few that
matter. Troubles begin at a time, or with the n-th message of a kind: the worst moments are those.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Collection, Sequence
from random import Random
from typing import Any, Final

import attrs

from wire.codes import DigestType, ProtocolVersion

SIZES: Final = ((3, 3, 2), (2, 2, 1), (2, 1, 1), (4, 2, 2), (3, 2, 2), (5, 3, 2), (3, 3, 3))
STORM_S: Final = 30.0
"""How long things go wrong, before all is healed."""

MESSAGES: Final = (
    "add",
    "add answer",
    "fence",
    "fence answer",
    "recovery read",
    "recovery read answer",
    "recovery add",
    "recovery add answer",
    "read",
    "read answer",
    "mark",
    "ensemble change",
    "close",
)
"""Kinds of messages that can set off a trouble; the last three are writes of the metadata."""

BOOKIE_TROUBLES: Final = (
    "power",
    "power",
    "power in a write",
    "kill",
    "stop",
    "slow disk",
    "bad disk",
    "lose",
    "cut",
    "part",
    "part",
    "slow links",
    "deaf",
    "mute",
    "snap",
    "hold",
    "damage",
    "forgotten",
    "paused",
)
CLIENT_TROUBLES: Final = ("paused", "paused", "paused", "killed", "cut", "forgotten", "expired")
STORE_TROUBLES: Final = ("slow store", "forgetful store")


@attrs.frozen
class Moment:
    """When something begins: at a time, or at the ``number``-th message of a kind."""

    at_s: float = 0.0
    message: str | None = None
    number: int = 0

    def __str__(self) -> str:
        if self.message is None:
            return f"at {self.at_s:.3f} s"
        return f"at {self.message} {self.number}"


@attrs.frozen
class Item:
    """Somebody who comes, or something that goes wrong."""

    kind: str
    who: str
    when: Moment
    for_s: float = 0.0
    number: int = 0

    def __str__(self) -> str:
        return f"{self.kind} {self.who} {self.when}, {self.for_s:.2f} s, {self.number}"


@attrs.frozen(kw_only=True)
class Plan:
    """One simulation, before it happens."""

    seed: int
    size: int
    write: int
    ack: int
    bookies: int
    protocol: ProtocolVersion
    digest: DigestType
    kind: str
    """``plain``, ``ids`` or ``deferred``."""
    entries: int
    haste: float
    """How many adds are made without waiting, as a share."""
    settings: dict[str, Any]
    is_skewed: bool
    hostility: float
    """The share of store operations that lose their request or answer."""
    slowness: float
    """The share of messages that are late."""
    items: tuple[Item, ...]
    workload: str = "ledger"
    """The workload that it is of; see ``workloads``."""
    repair: dict[str, Any] = attrs.field(factory=dict)
    """What autorecovery is told."""
    log: dict[str, Any] = attrs.field(factory=dict)
    """How the log is made."""
    lag_s: float = 0.0
    """How far a session's metadata server may be behind the others."""
    disks: dict[str, int] = attrs.field(factory=dict)
    """What disks bookies have; see ``with_directories``."""
    is_sqlite: bool = False
    """Whether the metadata is in one file, which all processes have."""
    first: int = 0
    """The first entry of the last fragment; those before are on bookies that are not here."""

    def without(self, dropped: Collection[str]) -> Plan:
        """Return the plan without some of its items, given by number, or ``FACTORS`` by name."""
        kept = tuple(item for n, item in enumerate(self.items) if str(n) not in dropped)
        off: dict[str, Any] = {name: 0 for name in FACTORS if name in dropped}
        return attrs.evolve(self, items=kept, **off)

    @property
    def parts(self) -> list[str]:
        """What can be left out; see ``without``."""
        return [*FACTORS, *(str(number) for number in range(len(self.items)))]

    def __str__(self) -> str:
        head = (
            f"E {self.size} Qw {self.write} Qa {self.ack}, {self.bookies} bookies, "
            f"{self.protocol.name}, {self.digest.name}, {self.entries} entries, {self.kind}, "
            f"hostility {self.hostility}, slowness {self.slowness}"
        )
        return "\n".join([head, *(f"  {n}: {item}" for n, item in enumerate(self.items))])


def to_json(plan: Plan) -> str:
    """Return a plan as it is kept: what a seed means changes with the plans that are drawn."""

    def plain(_plan: type, _field: Any, value: Any) -> Any:
        return value.name if isinstance(value, enum.Enum) else value

    return json.dumps(attrs.asdict(plan, value_serializer=plain), indent=1) + "\n"


def from_json(text: str) -> Plan:
    """Return the plan that ``to_json`` has kept."""
    kept = json.loads(text)
    kept["protocol"] = ProtocolVersion[kept["protocol"]]
    kept["digest"] = DigestType[kept["digest"]]
    items = [Item(**(item | {"when": Moment(**item["when"])})) for item in kept["items"]]
    return Plan(**(kept | {"items": tuple(items)}))


FACTORS: Final = ("hostility", "slowness", "is_skewed")
"""What makes everything worse, and can be switched off."""


def _anything(seed: int, rng: Random) -> Plan:
    """Everything there is, in any number."""
    size, write, ack = rng.choice(SIZES)
    bookies = size + rng.choice([0, 1, 1, 2, 3])
    items = [*_actors(rng), *_troubles(rng, bookies, ack)]
    return draw(seed, rng, (size, write, ack), bookies, items)


def _churn(seed: int, rng: Random) -> Plan:
    """Bookies of a striped ledger are late or fail, one after the other, within a few adds."""
    size, write, ack = rng.choice([(4, 2, 2), (3, 2, 2), (5, 3, 2), (3, 3, 2), (3, 2, 1)])
    bookies = size + rng.choice([1, 2, 3])
    entries = rng.choice([2, 3, 4, 6])
    adds = write * entries
    items = []
    for _ in range(rng.choice([1, 2, 3])):
        when = at_message(rng, ["add", "add answer"], adds)
        items.append(Item("hold", "w", when, rng.choice([0.1, 0.5, 3.0])))
    for _ in range(rng.choice([1, 1, 2, 3])):
        when = at_message(rng, ["add answer", "add answer", "add", "ensemble change"], adds)
        kind = rng.choice(["snap", "snap", "kill", "cut"])
        kind = "kill" if when.message == "ensemble change" else kind
        items.append(Item(kind, some_bookie(rng, bookies), when, a_while(rng)))
    if rng.random() < 0.6:
        items.append(Item("slow store", "store", Moment(0.0), 20.0))
    if rng.random() < 0.3:
        items.append(Item("recover", "r0", Moment(rng.uniform(0.5, 20))))
    return draw(
        seed, rng, (size, write, ack), bookies, items, kind="plain", entries=entries, haste=1.0
    )


def _race(seed: int, rng: Random) -> Plan:
    """Few entries, on few bookies; the writer stands still, and recoverers meet."""
    size, write, ack = rng.choice(SIZES)
    bookies = size + rng.choice([0, 1, 2])
    items = []
    for number in range(rng.choice([1, 2, 2, 3])):
        when = at_message(rng, ["add", "add answer", "fence", "mark", "recovery read", "close"])
        if rng.random() < 0.3 or number == 0:
            when = Moment(rng.uniform(0, 0.3))
        items.append(Item("recover", f"r{number}", when))
    if rng.random() < 0.5:
        items.append(Item("tail", "t0", Moment(rng.uniform(0, 0.5))))
    for _ in range(rng.choice([1, 2, 3, 4, 5])):
        who, kind = rng.choice(["w", "w", "r0", "r0", "r1"]), "paused"
        if rng.random() < 0.65:
            who = some_bookie(rng, bookies)
            kind = rng.choice(
                ["snap", "snap", "hold", "hold", "deaf", "mute", "mute", "damage", "power", "part"]
            )
        items.append(Item(kind, who, at_message(rng, MESSAGES), a_while(rng), rng.randrange(9)))
    entries = rng.choice([1, 1, 2, 3, 4])
    return draw(
        seed, rng, (size, write, ack), bookies, items, kind="plain", entries=entries, haste=1.0
    )


def _partial(seed: int, rng: Random) -> Plan:
    """The adds get to some bookies only; what became of them is for recoverers to find out."""
    size, write, ack = rng.choice([(3, 3, 2), (3, 3, 3), (2, 2, 1), (3, 2, 2), (4, 3, 2)])
    bookies = size + rng.choice([0, 1])
    items = [
        Item("mute", f"b{number + 1}", Moment(0.0), rng.choice([2.0, 25.0]), 1)
        for number in range(bookies)
        if rng.random() < 0.5
    ]
    for number in range(rng.choice([1, 2, 2, 3])):
        items.append(Item("recover", f"r{number}", Moment(rng.uniform(0.05, 1.5))))
        if rng.random() < 0.6:
            kind = rng.choice(["paused", "forgotten", "forgotten"])
            when = at_message(rng, ["fence answer", "recovery read answer", "recovery add"], 8)
            items.append(Item(kind, f"r{number}", when, rng.uniform(0.5, 6)))
    for _ in range(rng.choice([0, 1, 2])):
        kind = rng.choice(["slow links", "deaf", "damage", "snap", "hold"])
        when = at_message(
            rng, ["fence", "recovery read", "recovery read answer", "fence answer"], 8
        )
        items.append(Item(kind, some_bookie(rng, bookies), when, rng.uniform(0.2, 6)))
    items.append(Item("tail", "t0", Moment(rng.uniform(0, 0.3))))
    entries = rng.choice([1, 2, 2, 3])
    return draw(
        seed, rng, (size, write, ack), bookies, items, kind="plain", entries=entries, haste=1.0
    )


def _fences(seed: int, rng: Random) -> Plan:
    """Bookies lose their power around a fence, and the writer comes back later."""
    size, write, ack = rng.choice([(3, 3, 2), (2, 2, 1), (2, 1, 1), (3, 2, 2)])
    bookies = size + rng.choice([0, 1])
    items = [
        Item("recover", "r0", Moment(rng.uniform(0, 0.3))),
        Item("nap", "w", at_message(rng, ["add", "add answer", "mark"]), rng.uniform(3, 20)),
    ]
    for _ in range(rng.choice([1, 2, 3, size])):
        kind = rng.choice(["power", "power", "kill", "power in a write"])
        when = at_message(rng, ["fence", "fence answer", "recovery read answer", "close"])
        for_s = rng.choice([0.02, 0.5, 2.0])
        who = some_bookie(rng, bookies)
        items.append(Item(kind, who, when, for_s, rng.randrange(1, 10)))
    if rng.random() < 0.4:
        items.append(Item("delete", "d0", Moment(rng.uniform(1, 4))))
    entries, haste = rng.choice([2, 4, 10]), rng.choice([0.2, 0.7, 1.0])
    return draw(
        seed, rng, (size, write, ack), bookies, items, kind="plain", entries=entries, haste=haste
    )


def _unsynced(seed: int, rng: Random) -> Plan:
    """Deferred sync, forces, and bookies that die before they have synced."""
    size, write, ack = rng.choice([(3, 3, 2), (2, 2, 2), (3, 2, 2), (3, 3, 3)])
    bookies = size + rng.choice([0, 0, 1])
    items = []
    for _ in range(rng.choice([1, 2, 3])):
        kind = rng.choice(["power", "power", "power in a write", "cut", "deaf", "bad disk"])
        when = Moment(rng.uniform(0, 1.5))
        if rng.random() < 0.5:
            when = at_message(rng, ["add", "add answer"])
        for_s = rng.choice([0.02, 0.2, 2.0])
        items.append(Item(kind, some_bookie(rng, size), when, for_s, rng.randrange(1, 30)))
    items += [Item("tail", "t0", Moment(0.1)), Item("recover", "r0", Moment(rng.uniform(1, 20)))]
    return draw(
        seed, rng, (size, write, ack), bookies, items, kind="deferred", entries=10, haste=0.3
    )


THEMES: Final = (_anything, _churn, _race, _partial, _fences, _unsynced, _anything)
"""One after the other, by the seed."""


def draw(
    seed: int,
    rng: Random,
    sizes: tuple[int, int, int],
    bookies: int,
    items: list[Item],
    **fixed: Any,
) -> Plan:
    size, write, ack = sizes
    drawn: dict[str, Any] = {
        "kind": rng.choice(["plain"] * 6 + ["ids", "deferred"]),
        "entries": rng.choice([1, 2, 3, 4, 10, 40]),
        "haste": rng.choice([0.0, 0.5, 0.9, 1.0]),
    }
    return Plan(
        seed=seed,
        size=size,
        write=write,
        ack=ack,
        bookies=bookies,
        protocol=rng.choice(list(ProtocolVersion)),
        digest=rng.choice([DigestType.CRC32C] * 3 + [DigestType.MAC, DigestType.CRC32]),
        settings=client_settings(rng),
        is_skewed=rng.random() < 0.2,
        hostility=rng.choice([0.0, 0.0, 0.02, 0.1]),
        slowness=rng.choice([0.0, 0.02, 0.1]),
        items=(*items, *_half_open(seed, bookies), *_clock_set(seed, bookies)),
        **(drawn | fixed),
    )


def _half_open(seed: int, bookies: int) -> list[Item]:
    """Let a bookie's connections be forgotten, for good; by chance of its own, beside all else."""
    rng = Random(f"{seed} half-open")
    if rng.random() < 0.75:
        return []
    return [Item("half-open", some_bookie(rng, bookies), a_moment(rng))]


def _clock_set(seed: int, bookies: int) -> list[Item]:
    """Let clocks of bookies be set, forwards or back; by chance of its own as well."""
    rng = Random(f"{seed} clock")
    return [
        Item("clock", some_bookie(rng, bookies), a_moment(rng), rng.choice([-1, 1]) * by_s)
        for by_s in rng.sample([5.0, 3600.0, 8 * 86400.0], rng.choice([0, 0, 0, 1, 2]))
    ]


def some_bookie(rng: Random, bookies: int) -> str:
    return f"b{rng.randrange(bookies) + 1}"


def a_while(rng: Random) -> float:
    return rng.choice([0.02, 0.5, 3.0, 15.0]) * rng.uniform(0.5, 1.5)


def client_settings(rng: Random) -> dict[str, Any]:
    return {
        "add_timeout_s": rng.choice([1, 5]),
        "read_timeout_s": rng.choice([1, 5]),
        "delay_ensemble_change": rng.random() < 0.2,
        "add_quorum_timeout_s": rng.choice([-1, -1, -1, 3]),
        "recovery_read_batch_size": rng.choice([1, 1, 4]),
        "speculative_read_timeout_ms": rng.choice([2000, 100]),
        "explicit_lac_interval_ms": rng.choice([0, 0, 300]),
        "sticky_reads": rng.random() < 0.2,
    }


def _actors(rng: Random) -> list[Item]:
    actors = [Item("recover", f"r{n}", a_moment(rng)) for n in range(rng.choice([0, 1, 1, 2, 3]))]
    if rng.random() < 0.5:
        actors.append(Item("tail", "t0", Moment(rng.uniform(0, 1))))
    if rng.random() < 0.3:
        actors.append(Item("peek", "p0", Moment(rng.uniform(0, 2))))
    if rng.random() < 0.1:
        actors.append(Item("intrude", "i0", a_moment(rng)))
    if rng.random() < 0.05:
        actors.append(Item("delete", "d0", a_moment(rng)))
    return actors


def a_moment(rng: Random) -> Moment:
    if rng.random() < 0.5:
        return Moment(rng.choice([0.01, 0.1, 2.0, 10.0]) * rng.random())
    return at_message(rng, MESSAGES)


def at_message(rng: Random, kinds: Sequence[str], numbers: int = 20) -> Moment:
    number = min(numbers, rng.choice([1, 1, 2, 3, 4, rng.randint(1, numbers)]))
    return Moment(0.0, rng.choice(kinds), number)


def _troubles(rng: Random, bookies: int, ack: int) -> list[Item]:
    troubles, lost = [], 0
    for _ in range(rng.choice([0, 1, 2, 3, 3, 4, 6, 9])):
        where = rng.random()
        if where < 0.6:
            who, kind = some_bookie(rng, bookies), rng.choice(BOOKIE_TROUBLES)
        elif where < 0.9:
            who, kind = rng.choice(["w", "w", "r0", "r1", "t0"]), rng.choice(CLIENT_TROUBLES)
        else:
            who, kind = "store", rng.choice(STORE_TROUBLES)
        if kind == "lose":
            lost += 1
            if lost >= ack:
                kind = "power"
        troubles.append(Item(kind, who, a_moment(rng), a_while(rng), rng.randrange(1, 60)))
    return troubles
