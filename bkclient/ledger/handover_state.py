"""The hand-over state of a ledger, in its metadata, while it has no writer."""

from __future__ import annotations

import json
from typing import ClassVar, Final

import attrs

from bkclient.errors import ClientError
from wire.ids import NO_ENTRY, EntryId, LedgerId
from wire.ledger_metadata import LedgerMetadata

HANDOVER_KEY: Final = "bkctl.handover"
WRITER_KEY: Final = "bkctl.writer"
_FORMAT: Final = 1


class NotHandedOverError(ClientError):
    """The ledger's last writer did not hand it over, so no client can add to it any more."""

    exit_status: ClassVar[int] = 7

    def __init__(self, ledger_id: LedgerId, why: str) -> None:
        super().__init__(f"ledger {ledger_id}{why}")
        self.hint = (  # type: ignore[misc] # of this ledger
            f"`bkctl ledger recover {ledger_id}` closes the ledger, and stops a writer that still "
            "runs"
        )


@attrs.frozen
class HandoverState:
    """The position at which the next writer continues."""

    last: EntryId
    length: int

    def encode(self) -> bytes:
        """Return the value of the key."""
        value = {"v": _FORMAT, "last": self.last, "length": self.length}
        return json.dumps(value, separators=(",", ":")).encode()


def decode_handover(ledger_id: LedgerId, value: bytes) -> HandoverState:
    """Parse the key's value.

    Raises:
        NotHandedOverError: the value has an unknown form.
    """
    try:
        found = json.loads(value)
        version, last, length = found["v"], int(found["last"]), int(found["length"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        why = f": its {HANDOVER_KEY} cannot be understood: {error}"
        raise NotHandedOverError(ledger_id, why) from error
    if version != _FORMAT or last < NO_ENTRY or length < 0:
        raise NotHandedOverError(ledger_id, f": its {HANDOVER_KEY} is {value!r}")
    return HandoverState(EntryId(last), length)


def confirmed_by_handover(ledger_id: LedgerId, metadata: LedgerMetadata) -> EntryId:
    """Return the last entry that the metadata itself proves confirmed; -1 if it proves none.

    A writer stores the key only after every earlier add has its ack quorum. So a reader may read up
    to that entry at once, while the last entry on the bookies still has an older LAC.
    """
    value = metadata.custom.get(HANDOVER_KEY)
    if value is None:
        return NO_ENTRY
    try:
        return decode_handover(ledger_id, value).last
    except NotHandedOverError:
        return NO_ENTRY
