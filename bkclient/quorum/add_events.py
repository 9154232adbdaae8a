"""What a writer's rules are told, and what they want done: events in, commands out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Union

import attrs

from bkclient.errors import ClientError
from wire.ids import BookieId, EntryId

Ensemble = tuple[BookieId, ...]

# Events ----------------------------------------------------------------------------------------


@attrs.frozen
class AddsAcked:
    """A bookie has stored entries that it was sent as member ``index`` of the ensemble."""

    index: int
    bookie: BookieId
    entries: Sequence[int]


@attrs.frozen
class AddsFailed:
    """A bookie refused entries, did not answer in time, or its connection went."""

    index: int
    bookie: BookieId
    entries: Sequence[int]
    error: ClientError


@attrs.frozen
class AddsReady:
    """Pushed adds are about to be sent."""


@attrs.frozen
class EnsembleStored:
    """The metadata says that the ensemble is this from the first unconfirmed entry on."""

    ensemble: Ensemble


@attrs.frozen
class EnsembleRefused:
    """The change could not be made."""

    error: ClientError


@attrs.frozen
class AddsOverdue:
    """The oldest add has waited longer than the add-quorum time-out."""

    error: ClientError


@attrs.frozen
class WriterEnding:
    """The writer closes: what is pending fails with ``error``."""

    error: ClientError


Event = Union[
    AddsAcked, AddsFailed, AddsReady, EnsembleStored, EnsembleRefused, AddsOverdue, WriterEnding
]


# Commands --------------------------------------------------------------------------------------


@attrs.frozen
class ConfirmAdds:
    """Tell the application, in order, that ``first`` to ``last`` are safe."""

    first: EntryId
    last: EntryId


@attrs.frozen
class ChangeEnsemble:
    """Replace failed bookies from ``first_entry`` on; answer ``EnsembleStored`` or ``-Refused``."""

    failed: tuple[tuple[int, BookieId], ...]
    first_entry: EntryId


@attrs.frozen
class SendAgain:
    """Send pending entries to the bookie that has come in at ``index``."""

    index: int
    bookie: BookieId
    entries: tuple[EntryId, ...]


@attrs.frozen
class FailAdds:
    """Tell the application that ``entries`` (ascending) failed: their outcome is unknown."""

    entries: tuple[EntryId, ...]
    error: ClientError


@attrs.frozen
class GiveUp:
    """Nothing can be added any more because of ``error``.

    Comes before ``FailAdds``: who hears that an add failed finds the handle ended.
    """

    error: ClientError


Command = Union[ConfirmAdds, ChangeEnsemble, SendAgain, FailAdds, GiveUp]
