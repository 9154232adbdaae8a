"""What clients saw, as values: one JSON line for each event."""

from __future__ import annotations

import enum
import hashlib
import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs


class Kind(str, enum.Enum):
    """What a client saw."""

    BEGAN = "began"
    """The client's process is ready; ``note`` has the ids of its processes."""
    CREATED = "created"
    """A writer has a new ledger; ``note`` is its digest type."""
    ACKED = "acked"
    """The adds ``first`` to ``last`` were acknowledged, in this order."""
    REFUSED = "refused"
    """The add of entry ``first`` failed."""
    CLOSED = "closed"
    """The writer closed the ledger behind entry ``last``."""
    READ = "read"
    """A reader got the entries from ``first`` on; ``sums`` has one for each."""
    END = "end"
    """A reader is at the end of a closed ledger; ``last`` is the last entry."""
    FAILED = "failed"
    """What a client was asked to do came to nothing; ``note`` is the error."""


@attrs.frozen(kw_only=True)
class Event:
    """One event. ``handle`` tells apart the ledgers that one client has open."""

    client: str
    kind: Kind
    handle: int = 0
    ledger: int = -1
    first: int = -1
    last: int = -1
    sums: tuple[str, ...] = ()
    note: str = ""

    def line(self) -> str:
        """Return the event as a line of JSON."""
        return json.dumps(attrs.asdict(self)) + "\n"


def parse(lines: Iterable[str]) -> Iterator[Event]:
    """Yield the events in a client's output.

    Other lines are passed over: warnings of a library, and the half line of a killed process.
    """
    for line in lines:
        if line.startswith("{") and line.endswith("}\n"):
            found = json.loads(line)
            sums, kind = tuple(found.pop("sums")), Kind(found.pop("kind"))
            yield Event(kind=kind, sums=sums, **found)


def events_in(directory: Path) -> list[Event]:
    """Return the events of all clients that wrote ``*.events`` in a directory."""
    found: list[Event] = []
    for path in sorted(directory.glob("*.events")):
        with path.open(encoding="utf-8", errors="replace") as file:
            found += parse(file)
    return found


def payload(ledger: int, entry: int) -> bytes:
    """Return the payload that every writer gives an entry: its ids determine all bytes."""
    size = entry * 7919 % 500
    return b"%d/%d;" % (ledger, entry) + random.Random(ledger << 32 | entry).randbytes(size)


def checksum(data: bytes) -> str:
    """Return a checksum of a payload."""
    return hashlib.blake2b(data, digest_size=8).hexdigest()
