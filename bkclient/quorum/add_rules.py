"""The rules of a ledger's adds: which are confirmed, and when a bookie is replaced. No I/O.

Events go in, commands come out; the caller carries out the commands in order and passes their
results as events. The rules decide when an ensemble changes;
``bkclient.ledger.adds.ensemble_changes`` chooses the new bookies and stores the ensemble.

Agrees with BookKeeper 4.18.0, LedgerHandle and PendingAddOp, with these stricter rules:

* After an ensemble change every pending add first loses the acks of the replaced bookies, then is
  sent again, and only then is anything confirmed. Java interleaves the three and can confirm adds
  that only Qa - 1 bookies known to the metadata store.
* Confirming is tried again after every change, also one that replaced nothing.
* If no bookie can replace a failed one, the entries that it lacks are sent to it again. In Java
  the add waits for ever.
* After the adds have been drained, no add is accepted.
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
"""Errors that every other bookie would return, too: they end the writer."""


class AddState(enum.Enum):
    """A state of a writer."""

    OPEN = enum.auto()
    CHANGING = enum.auto()
    """An ensemble change is in progress: acks are counted, but no add is confirmed."""
    ENDED = enum.auto()


# The rules -------------------------------------------------------------------------------------


class AddQuorum(PendingAdds):
    """The reactions of one ledger's writer to answers and failures of its bookies.

    Args:
        ensemble: the bookies of the last fragment.
        write_quorum: the number of bookies that get an entry.
        ack_quorum: the number of bookies that must have stored an entry.
        last_confirmed: the first LAC.
        delay_changes: keep failed bookies while ack quorums can be reached without them.
        allow_changes: if False, a failed bookie ends the writer (deferred sync).
        changes_max: the largest number of ensemble changes.
        spans_enough: returns whether the bookies that acked an entry span enough fault domains.
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
        """Handle an event; return the commands, in order.

        Raises:
            LocalProtocolError: the event cannot occur in this state.
        """
        rule = self.TRANSITIONS.get((self.state, type(event)))
        if rule is None:
            raise LocalProtocolError(f"{type(event).__name__} while {self.state.name}")
        return rule(self, event)

    @property
    def last_error(self) -> ClientError | None:
        """The error of the last bookie that failed."""
        return None if self._last_failure is None else self._last_failure.error

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
        """Note a failure of an add that has its quorum: replace the bookie before the next add."""
        if self._allow_changes:
            self._delayed[event.index] = event.bookie
        return [] if self.state is AddState.CHANGING else self._confirm()

    def _weigh(self, event: AddsFailed) -> list[Command]:
        """Change the ensemble only if an entry cannot reach its quorum without the failed bookies.

        Failures of entries with a quorum are noted, too: an ensemble change may remove acks again.
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
        """Return whether an entry has its quorum if all but the failed bookies acknowledge it."""
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
        """Change the ensemble again after further failures, else un-ack all, send all, confirm."""
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
