"""Which adds of one ledger are confirmed, and what to do when a bookie fails: rules, no I/O.

Events go in, commands come out; the caller carries them out in order and hands back what came of
them. These rules decide when an ensemble changes; ``bkclient.ledger.adds.ensemble_changes`` chooses
the new bookies and stores the ensemble.

Agrees with BookKeeper 4.18.0, LedgerHandle and PendingAddOp, with these stricter rules:

* After an ensemble change every pending add first loses the acks of the replaced bookies, then is
  sent again, and only then is anything confirmed. Java interleaves the three and can confirm adds
  that only Qa - 1 bookies known to the metadata hold.
* Confirming is tried again after every change, also one that replaced nothing.
* What a failed bookie lacks is sent to it again where no bookie could replace it; in Java that add
  waits for ever.
* Once adds have been drained, none is taken any more.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import ClassVar, Final

from bkclient.errors import (
    CHECK_LOGIN,
    ClientClosedError,
    ClientError,
    ClientLedgerFencedError,
    ClientUnauthorizedError,
    IllegalOperationError,
    LoginCutOffError,
    LoginsCutOffError,
    NotEnoughBookiesError,
    ReadOnlyBookieClientError,
    WriteFailedError,
)
from bkclient.quorum.distribution import write_set
from bkclient.quorum.pending_adds import (
    AddsAcked,
    AddsFailed,
    AddsOverdue,
    AddsReady,
    ChangeEnsemble,
    Command,
    Ensemble,
    EnsembleRefused,
    EnsembleStored,
    Event,
    FailAdds,
    GiveUp,
    PendingAdds,
    WriterEnding,
)
from wire.errors import LocalProtocolError
from wire.ids import BookieId, EntryId

FINAL_ERRORS: Final = (
    ClientLedgerFencedError,
    ClientUnauthorizedError,
    IllegalOperationError,
    ClientClosedError,
)
"""What no other bookie would answer differently: these end the writer."""


class AddState(enum.Enum):
    """Where a writer stands."""

    OPEN = enum.auto()
    CHANGING = enum.auto()
    """An ensemble change is in progress: acks are counted, nothing is confirmed."""
    ENDED = enum.auto()


# The rules -------------------------------------------------------------------------------------


class AddQuorum(PendingAdds):
    """What to do when a bookie of one ledger's writer has answered, or failed.

    Args:
        ensemble: the bookies of the last fragment.
        write_quorum: how many bookies get an entry.
        ack_quorum: how many must have it.
        last_confirmed: the LAC to start from.
        delay_changes: keep failed bookies while ack quorums can be met without them.
        allow_changes: without, a failed bookie ends the writer (deferred sync).
        changes_max: how many ensemble changes there may be.
        spans_enough: whether the bookies that acked an entry span enough fault domains.
    """

    def __init__(
        self,
        ensemble: Ensemble,
        write_quorum: int,
        ack_quorum: int,
        *,
        last_confirmed: int = -1,
        delay_changes: bool = False,
        allow_changes: bool = True,
        changes_max: int = 2**31 - 1,
        spans_enough: Callable[[Ensemble], bool] | None = None,
    ) -> None:
        super().__init__(
            ensemble,
            write_quorum,
            ack_quorum,
            last_confirmed=last_confirmed,
            spans_enough=spans_enough,
        )
        self.state = AddState.OPEN
        self._delayed: dict[int, BookieId] = {}
        self._last_failure: AddsFailed | None = None
        self._failures_of: dict[BookieId, ClientError] = {}
        """The last failure of each bookie of the writer."""
        self._given_up: dict[int, BookieId] = {}
        self._stored = ensemble
        self._delay_changes, self._allow_changes = delay_changes, allow_changes
        self._changes, self._changes_max = 0, changes_max

    def handle(self, event: Event) -> list[Command]:
        """Take an event; return what is to be done, in this order.

        Raises:
            LocalProtocolError: the event cannot happen in this state.
        """
        rule = self.TRANSITIONS.get((self.state, type(event)))
        if rule is None:
            raise LocalProtocolError(f"{type(event).__name__} while {self.state.name}")
        return rule(self, event)

    # Acks

    def _ack(self, event: AddsAcked) -> list[Command]:
        self._count(event)
        return self._confirm()

    def _ack_only(self, event: AddsAcked) -> list[Command]:
        self._count(event)
        return []

    # Failures

    def _fail(self, event: AddsFailed) -> list[Command]:
        if self.ensemble[event.index] != event.bookie:
            return []
        self._last_failure = event
        self._failures_of[event.bookie] = event.error
        incomplete = [e for e in event.entries if not self.is_complete(e)]
        if incomplete and isinstance(event.error, FINAL_ERRORS):
            return self._give_up(event.error)
        if self._delay_changes:
            return self._weigh(event)
        if not incomplete:
            return self._note_late_failure(event)
        return self._change({event.index: event.bookie})

    def _note_late_failure(self, event: AddsFailed) -> list[Command]:
        """A bookie failed an add that has its quorum: replace it before the next add goes out."""
        if self._allow_changes:
            self._delayed[event.index] = event.bookie
        return [] if self.state is AddState.CHANGING else self._confirm()

    def _weigh(self, event: AddsFailed) -> list[Command]:
        """Change the ensemble only where an entry cannot reach its quorum without the failed.

        What an entry lacks is remembered also where it has its quorum: an ensemble change may take
        acks away from it again.
        """
        hopeless = 0
        for entry_id in event.entries:
            if entry_id not in self._acks:
                continue
            mask = self._failures[entry_id] = self._failures.get(entry_id, 0) | 1 << event.index
            full = isinstance(event.error, ReadOnlyBookieClientError)
            if not self.is_complete(entry_id) and (full or not self._can_be_enough(entry_id, mask)):
                hopeless |= mask
        if not hopeless:
            return []
        return self._change({i: b for i, b in enumerate(self.ensemble) if hopeless >> i & 1})

    def _can_be_enough(self, entry_id: int, failed: int) -> bool:
        """Return whether an entry has its quorum once all but the failed have acknowledged it."""
        members = write_set(entry_id, self._size, self._write_quorum)
        return self._is_enough(sum(1 << index for index in members) & ~failed)

    def _change(self, failed: dict[int, BookieId]) -> list[Command]:
        if not self._allow_changes:
            return self._give_up(WriteFailedError("a bookie failed, and none may be replaced"))
        self._delayed.update(failed)
        if self.state is AddState.CHANGING:
            return []
        self.state, self._stored, self._given_up = AddState.CHANGING, self.ensemble, {}
        return self._next_change()

    def _next_change(self) -> list[Command]:
        self._changes += 1
        if self._changes > self._changes_max:
            error = f"more than {self._changes_max} ensemble changes"
            return self._give_up(WriteFailedError(error))
        failed, self._delayed = tuple(sorted(self._delayed.items())), {}
        self._given_up.update(failed)
        return [ChangeEnsemble(failed, EntryId(self._head))]

    def _ready(self, event: AddsReady) -> list[Command]:  # noqa: ARG002 - one signature for all.
        return self._change({}) if self._delayed else []

    def _still_changing(self, event: AddsReady) -> list[Command]:  # noqa: ARG002
        return []

    # Ensemble changes

    def _stored_change(self, event: EnsembleStored) -> list[Command]:
        """Go on with what failed meanwhile, or release: un-ack all, send all, confirm."""
        self._stored = event.ensemble
        self._delayed = {i: b for i, b in self._delayed.items() if self._stored[i] == b}
        if self._delayed:
            return self._next_change()
        replaced = [i for i in range(self._size) if self.ensemble[i] != self._stored[i]]
        kept = [i for i, b in self._given_up.items() if self._stored[i] == b]
        self._take_back(replaced, kept)
        self.ensemble, self.state = self._stored, AddState.OPEN
        return [*self._send_again(sorted(replaced + kept)), *self._confirm()]

    # The end

    def _refused(self, event: EnsembleRefused) -> list[Command]:
        error, failure = event.error, self._last_failure
        if isinstance(error, NotEnoughBookiesError) and failure is not None:
            failed = self._failures_of
            if all(isinstance(cause, LoginCutOffError) for cause in failed.values()):
                text = f"the login was refused by {', '.join(failed)}: {failure.error}"
                return self._give_up(LoginsCutOffError(f"{text}; {CHECK_LOGIN}"))
            text = f"{error}; bookie {failure.bookie} failed: {failure.error}"
            return self._give_up(NotEnoughBookiesError(text))
        return self._give_up(error)

    def _overdue(self, event: AddsOverdue) -> list[Command]:
        return self._give_up(event.error)

    def _give_up(self, error: ClientError) -> list[Command]:
        return [GiveUp(error), *self._drain(error)]

    def _end(self, event: WriterEnding) -> list[Command]:
        return self._drain(event.error)

    def _drain(self, error: ClientError) -> list[Command]:
        self.state, self.ended_by = AddState.ENDED, error
        pending = tuple(EntryId(entry_id) for entry_id in sorted(self._acks))
        self._acks, self._failures, self._delayed = {}, {}, {}
        return [FailAdds(pending, error)] if pending else []

    def _ignore(self, event: Event) -> list[Command]:  # noqa: ARG002
        return []

    TRANSITIONS: ClassVar[dict[tuple[AddState, type], Callable[..., list[Command]]]] = {
        (AddState.OPEN, AddsReady): _ready,
        (AddState.OPEN, AddsAcked): _ack,
        (AddState.OPEN, AddsFailed): _fail,
        (AddState.OPEN, AddsOverdue): _overdue,
        (AddState.OPEN, WriterEnding): _end,
        (AddState.CHANGING, AddsReady): _still_changing,
        (AddState.CHANGING, AddsAcked): _ack_only,
        (AddState.CHANGING, AddsFailed): _fail,
        (AddState.CHANGING, AddsOverdue): _overdue,
        (AddState.CHANGING, EnsembleStored): _stored_change,
        (AddState.CHANGING, EnsembleRefused): _refused,
        (AddState.CHANGING, WriterEnding): _end,
        (AddState.ENDED, AddsAcked): _ignore,
        (AddState.ENDED, AddsFailed): _ignore,
        (AddState.ENDED, AddsOverdue): _ignore,
        (AddState.ENDED, EnsembleStored): _ignore,
        (AddState.ENDED, EnsembleRefused): _ignore,
        (AddState.ENDED, WriterEnding): _ignore,
    }
