"""What a seed of the workload ``repair`` does: ledgers lose replicas, and workers repair them."""

from __future__ import annotations

from random import Random
from typing import Any, Final

import attrs

from tests.sim.engine.plan import (
    STORM_S,
    Item,
    Moment,
    Plan,
    a_while,
    at_message,
    draw,
    some_bookie,
)

SIZES: Final = ((3, 3, 2), (2, 2, 2), (4, 2, 2), (3, 2, 2), (5, 3, 2), (3, 3, 3))
STEPS: Final = 160
"""Steps of a worker, in messages and operations on the metadata, within which it may die."""

MOMENTS: Final = (
    "repair read answer",
    "repair add",
    "repair add answer",
    "swap",
    "marked",
    "unmarked",
)
"""What sets off a trouble of those who repair."""

SPOILERS: Final = (
    "killed",
    "killed",
    "paused",
    "paused",
    "expired",
    "forgotten",
)


def lost_bookie(seed: int, rng: Random) -> Plan:
    """One bookie is lost, and perhaps another later."""
    sizes, bookies = _sizes(rng)
    items = [*workers(rng), *_losses(rng, bookies, rng.choice([1, 1, 2])), *_spoilers(rng, 2)]
    return repairs(seed, rng, sizes, bookies, items)


def lost_rack(seed: int, rng: Random) -> Plan:
    """Several bookies are lost at once."""
    sizes, bookies = _sizes(rng)
    at_s = rng.uniform(0.5, 8)
    items = [
        Item("lose", f"b{number + 1}", Moment(at_s + rng.uniform(0, 0.5)))
        for number in rng.sample(range(bookies), rng.choice([2, 2, 3]))
    ]
    return repairs(seed, rng, sizes, bookies, [*workers(rng), *items, *_spoilers(rng, 2)])


def flapping(seed: int, rng: Random) -> Plan:
    """A bookie goes and comes back, again and again."""
    sizes, bookies = _sizes(rng)
    who, at_s, items = some_bookie(rng, bookies), rng.uniform(0.5, 3), workers(rng)
    for _ in range(rng.choice([2, 3, 5])):
        away_s = rng.choice([0.5, 9.0, 11.0, 14.0]) * rng.uniform(0.8, 1.2)
        items.append(Item(rng.choice(["power", "kill", "stop"]), who, Moment(at_s), away_s))
        at_s += away_s + rng.choice([0.2, 2.0, 5.0])
    return repairs(seed, rng, sizes, bookies, [*items, *_spoilers(rng, 2)])


def dying_worker(seed: int, rng: Random) -> Plan:
    """Workers die between any two steps, or stand still there."""
    sizes, bookies = _sizes(rng)
    items = [*workers(rng), *_losses(rng, bookies, 1)]
    for _ in range(rng.choice([1, 2, 3, 4])):
        kind = rng.choice(["killed", "killed", "paused", "expired"])
        when = Moment(0.0, "repair step", rng.randint(1, STEPS))
        for_s = rng.choice([0.5, 3.0, 12.0])
        items.append(Item(kind, _some_worker(rng), when, for_s))
    return repairs(seed, rng, sizes, bookies, items)


def crowd(seed: int, rng: Random) -> Plan:
    """Workers and operators at the same ledgers; bookies drop what is not theirs."""
    sizes, bookies = _sizes(rng)
    items = [*workers(rng, 2), *_losses(rng, bookies, 1)]
    for number in range(rng.choice([1, 2, 2])):
        when = Moment(rng.uniform(0.5, 20))
        if rng.random() < 0.5:
            when = at_message(rng, MOMENTS, 12)
        items.append(Item("move", f"m{number}", when, 0.0, rng.randrange(bookies) + 1))
    for _ in range(rng.choice([0, 1, 2])):
        kind = rng.choice(["paused", "paused", "expired", "forgotten"])
        who = rng.choice(["a0", "a1", "m0"])
        items.append(Item(kind, who, at_message(rng, MOMENTS, 12), rng.choice([0.5, 4.0, 14.0])))
    if rng.random() < 0.4:
        items.append(Item("delete", "d0", _some_time(rng), 0.0, rng.randrange(9)))
    return repairs(seed, rng, sizes, bookies, items)


def outage(seed: int, rng: Random) -> Plan:
    """The metadata service is away, slow or forgetful, while a bookie is lost."""
    sizes, bookies = _sizes(rng)
    items = [*workers(rng), *_losses(rng, bookies, 1)]
    for _ in range(rng.choice([1, 2, 3])):
        kind = rng.choice(["outage", "outage", "slow store", "forgetful store"])
        items.append(Item(kind, "store", _some_time(rng), rng.choice([1.0, 5.0, 12.0])))
    return repairs(seed, rng, sizes, bookies, items)


def live_writer(seed: int, rng: Random) -> Plan:
    """Bookies of other ledgers are lost, next to a writer whose own are all there."""
    sizes = rng.choice([(3, 3, 2), (2, 2, 2), (3, 2, 2)])
    bookies = sizes[0] + rng.choice([2, 3])
    items = workers(rng)
    for _ in range(rng.choice([1, 2, 3])):
        kind = rng.choice(["lose", "power", "stop", "kill", "rot"])
        items.append(Item(kind, f"x{rng.randrange(3)}", _some_time(rng), rng.choice([2.0, 14.0])))
    items.append(Item("suspect", "m9", Moment(rng.uniform(0.5, 6)), 0.0, rng.randrange(sizes[0])))
    plan = repairs(seed, rng, sizes, bookies, [*items, *_spoilers(rng, 2)])
    settings = plan.settings | {"add_timeout_s": 5, "read_timeout_s": 5}
    # A half-open connection hides the writer's latest entries: that is a reason to fence it.
    kept = tuple(item for item in plan.items if item.kind not in {"recover", "half-open"})
    return attrs.evolve(plan, entries=40, haste=0.0, slowness=0.0, settings=settings, items=kept)


THEMES: Final = (lost_bookie, lost_rack, flapping, dying_worker, crowd, outage, live_writer)
"""One after the other, by the seed."""


def _sizes(rng: Random) -> tuple[tuple[int, int, int], int]:
    sizes = rng.choice(SIZES)
    return sizes, sizes[0] + rng.choice([1, 2, 2, 3])


def repairs(
    seed: int, rng: Random, sizes: tuple[int, int, int], bookies: int, items: list[Item]
) -> Plan:
    if rng.random() < 0.3:
        items.append(Item("rot", some_bookie(rng, bookies), Moment(rng.uniform(0.5, 20))))
    if rng.random() < 0.2:
        items.append(Item("recover", "r0", Moment(rng.uniform(1, 20))))
    plan = draw(seed, rng, sizes, bookies, items, kind="plain")
    return attrs.evolve(
        plan,
        entries=rng.choice([0, 2, 5, 30]),
        hostility=rng.choice([0.0, 0.0, 0.02]),
        workload="repair",
        repair=_settings(rng),
    )


def _settings(rng: Random) -> dict[str, Any]:
    return {
        "lost_bookie_recovery_delay_s": rng.choice([0, 0, 3]),
        "bookie_check_interval_s": rng.choice([0, 5, 20]),
        "ledger_check_interval_s": rng.choice([7, 10_000]),
        "replicas_check_interval_s": rng.choice([0, 0, 9]),
        "verified_percentage": 100,
        "open_ledger_grace_ms": rng.choice([500, 3000]),
        "failed_ledger_grace_ms": rng.choice([1000, 8000]),
        "repair_backoff_ms": rng.choice([100, 1000]),
    }


def workers(rng: Random, at_least: int = 1) -> list[Item]:
    count = max(at_least, rng.choice([1, 2, 2, 3]))
    return [Item("autorecovery", f"a{n}", Moment(rng.uniform(0, 1))) for n in range(count)]


def _some_worker(rng: Random) -> str:
    return rng.choice(["a0", "a0", "a0", "a1", "a2"])


def _some_time(rng: Random) -> Moment:
    if rng.random() < 0.5:
        return Moment(rng.uniform(0.2, STORM_S * 0.7))
    return at_message(rng, MOMENTS, 12)


def _losses(rng: Random, bookies: int, count: int) -> list[Item]:
    return [
        Item("lose", some_bookie(rng, bookies), Moment(rng.uniform(0.3, 12))) for _ in range(count)
    ]


def _spoilers(rng: Random, count_max: int) -> list[Item]:
    return [
        Item(rng.choice(SPOILERS), _some_worker(rng), _some_time(rng), a_while(rng))
        for _ in range(rng.randint(0, count_max))
    ]
