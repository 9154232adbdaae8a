"""Every order of events that a writer's rules can meet: a model of its bookies, and a walk.

``Model`` is the world around one ``AddQuorum`` and the oracle at once: it knows what each bookie
holds and what the store says, and looks at every command that the rules give. ``explore`` walks all
orders of its moves. States that cannot differ in what follows count as one: bookies are told apart
by what they hold and not by name, and without striping not by their place in the ensemble either.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import attrs

from bkclient.errors import BookieUnavailableError, NotEnoughBookiesError
from bkclient.quorum.add_rules import AddQuorum, AddState
from bkclient.quorum.distribution import write_set
from bkclient.quorum.pending_adds import (
    AddsAcked,
    AddsFailed,
    AddsReady,
    ChangeEnsemble,
    Command,
    ConfirmAdds,
    EnsembleRefused,
    EnsembleStored,
    FailAdds,
    GiveUp,
    SendAgain,
)
from wire.ids import BookieId

T = TypeVar("T")

LOST = BookieUnavailableError("gone")
PLENTY = 99


def _twin(one: T) -> T:
    """Return a shallow copy; ``copy.copy`` takes several times as long."""
    twin = object.__new__(type(one))
    twin.__dict__.update(one.__dict__)
    return twin


def names(size: int) -> tuple[BookieId, ...]:
    return tuple(BookieId(f"b{number}") for number in range(1, size + 1))


@attrs.frozen
class Move:
    """What can happen next; ``index`` and ``entry`` say to which copy on its way."""

    kind: str
    index: int = 0
    entry: int = 0


class Model:
    """One writer, its bookies and the stored metadata.

    Args:
        rules: the rules under test, fresh.
        entries: how many adds there will be.
        failures: how many copies may fail.
        spares: bookies beside those of the ensemble.
    """

    def __init__(
        self,
        rules: AddQuorum,
        write: int,
        ack: int,
        entries: int,
        failures: int,
        spares: int = PLENTY,
    ) -> None:
        size = len(rules.ensemble)
        self.rules, self.size, self.write, self.ack = rules, size, write, ack
        self.unpushed, self.failures, self.spares = entries, failures, spares
        self.stored, self.stored_from = rules.ensemble, 0
        self.used = size
        self.sent = [0] * size
        """For each place in the rules' ensemble the entries on their way, as bits."""
        self.held: dict[BookieId, int] = {}
        """For each bookie the entries on its disk, as bits."""
        self.change: ChangeEnsemble | None = None
        self.confirmed = -1

    def fork(self) -> Model:
        forked, rules = _twin(self), _twin(self.rules)
        rules._acks, rules._failures = rules._acks.copy(), rules._failures.copy()
        rules._delayed, rules._given_up = rules._delayed.copy(), rules._given_up.copy()
        forked.rules, forked.sent, forked.held = rules, self.sent.copy(), self.held.copy()
        return forked

    def key(self) -> object:
        """Return what the future depends on."""
        rules, stored, pending = self.rules, self.stored, -1 << self.confirmed + 1
        delayed, given_up, held = rules._delayed, rules._given_up, self.held
        failing = () if self.change is None else [index for index, _ in self.change.failed]
        acks, failures = rules._acks.items(), rules._failures.items()
        columns = [
            (
                bookie == stored[i],
                sent & pending,
                # A late failure of any confirmed entry is as good as that of another.
                bool(self.failures and sent & ~pending),
                held.get(bookie, 0) & pending,
                # Whom it is about: nobody, the bookie that was there, or the one that is to come.
                (i in delayed) + (delayed.get(i) == stored[i]),
                (i in given_up) + (given_up.get(i) == stored[i]),
                i in failing,
                sum([1 << e for e, mask in acks if mask >> i & 1]),
                sum([1 << e for e, mask in failures if mask >> i & 1]) if failures else 0,
            )
            for i, (bookie, sent) in enumerate(zip(rules.ensemble, self.sent, strict=True))
        ]
        if self.size == self.write and self.spares == PLENTY:
            columns.sort()
        left = None if self.spares == PLENTY else self.size + self.spares - self.used
        return (
            rules.state,
            rules._head,
            tuple(rules._acks),
            self.stored_from,
            self.change is None,
            self.unpushed,
            self.failures,
            left,
            tuple(columns),
        )

    def moves(self) -> Iterator[Move]:
        """Yield what can happen next.

        The ack of a confirmed entry is left out: it changes nothing but that it cannot fail later.
        """
        if self.rules.state is AddState.ENDED:
            return
        if self.unpushed:
            yield Move("push")
        if self.change is not None:
            yield Move("store")
        for index, sent in enumerate(self.sent):
            confirmed = False
            for entry in range(sent.bit_length()):
                if not sent >> entry & 1:
                    continue
                if entry > self.confirmed:
                    yield Move("ack", index, entry)
                elif confirmed:
                    continue
                confirmed |= entry <= self.confirmed
                if self.failures:
                    yield Move("fail", index, entry)

    def make(self, move: Move) -> None:
        if move.kind == "push":
            self.unpushed -= 1
            entry = self.rules.push()
            self.do(self.rules.handle(AddsReady()))
            for index in write_set(entry, self.size, self.write):
                self.sent[index] |= 1 << entry
        elif move.kind == "store":
            self.store()
        else:
            self.answer(move)

    def answer(self, move: Move) -> None:
        bookie, entry = self.rules.ensemble[move.index], move.entry
        self.sent[move.index] &= ~(1 << entry)
        if move.kind == "ack":
            self.held[bookie] = self.held.get(bookie, 0) | 1 << entry
            self.do(self.rules.handle(AddsAcked(move.index, bookie, (entry,))))
        else:
            self.failures -= 1
            self.do(self.rules.handle(AddsFailed(move.index, bookie, (entry,), LOST)))

    def store(self) -> None:
        change, self.change = self.change, None
        assert change is not None
        ensemble = list(self.stored)
        for index, bookie in change.failed:
            if ensemble[index] == bookie and self.used < self.size + self.spares:
                self.used += 1
                ensemble[index] = BookieId(f"b{self.used}")
        if ensemble == list(self.stored) and any(ensemble[i] == b for i, b in change.failed):
            self.do(self.rules.handle(EnsembleRefused(NotEnoughBookiesError("none left"))))
            return
        assert change.first_entry >= self.stored_from, "I10: a fragment goes back"
        self.stored, self.stored_from = tuple(ensemble), change.first_entry
        before = self.rules.ensemble
        commands = self.rules.handle(EnsembleStored(self.stored))
        for index, (old, new) in enumerate(zip(before, self.rules.ensemble, strict=True)):
            if old != new:  # What the old bookie still says is nobody's business.
                self.sent[index] = 0
        self.do(commands)

    def do(self, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, ConfirmAdds):
                assert command.first == self.confirmed + 1, "I9: out of order"
                for entry in range(command.first, command.last + 1):
                    self.check(entry)
                self.confirmed = command.last
            elif isinstance(command, SendAgain):
                assert self.rules.ensemble[command.index] == command.bookie
                # I11: nobody gets an entry who is not at that place in the stored metadata.
                assert self.stored[command.index] == command.bookie, "I11: not published"
                for entry in command.entries:
                    self.sent[command.index] |= 1 << entry
            elif isinstance(command, ChangeEnsemble):
                assert self.change is None
                assert command.first_entry == self.confirmed + 1, "I10: a fragment skips entries"
                self.change = command
            else:
                assert isinstance(command, (GiveUp, FailAdds))

    def check(self, entry: int) -> None:
        """I1: a confirmed entry is on Qa bookies where the stored metadata says to look."""
        assert entry >= self.stored_from, "I10: confirmed below a fragment that is stored"
        holders = [
            index
            for index in write_set(entry, self.size, self.write)
            if self.held.get(self.stored[index], 0) >> entry & 1
        ]
        assert len(holders) >= self.ack, f"I1: entry {entry} is on {len(holders)} bookies only"

    def check_end(self) -> None:
        """L1: with nothing under way every add has been confirmed, or has failed."""
        assert self.rules.state is AddState.ENDED or self.confirmed == self.rules.last_pushed, "L1"


def explore(
    rules: AddQuorum, write: int, ack: int, entries: int, failures: int, spares: int = PLENTY
) -> int:
    """Walk every interleaving; return how many states there are."""
    start = Model(rules, write, ack, entries, failures, spares)
    seen, stack = {start.key()}, [start]
    while stack:
        model = stack.pop()
        moves = list(model.moves())
        if all(move.kind == "fail" for move in moves):
            model.check_end()
        for move in moves:
            following = model.fork()
            following.make(move)
            if (key := following.key()) not in seen:
                seen.add(key)
                stack.append(following)
    return len(seen)
