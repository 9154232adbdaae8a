"""Writers that a shell keeps from one ``ledger add`` to the next.

Outside a shell each add claims its ledger and releases it: two writes of metadata. A shell keeps
the writer until the ledger is closed, the shell switches to another cluster, or ends; then it
releases the ledger. Until then no other client can add to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import attrs

from bkclient.errors import LedgerClosedError, NoSuchLedgerError
from bkctl.errors import error_message
from wire.errors import BookKeeperError

if TYPE_CHECKING:
    from bkclient.blocking import BlockingClient
    from bkclient.ledger.writer import LedgerWriter
    from bkctl.session.session import Session
    from wire.ids import LedgerId

Report = Callable[[str, bool], object]
"""Called with a message about a ledger, and whether it is a failure."""


@attrs.frozen
class WriterInUse:
    """A writer, and its connection."""

    client: BlockingClient
    writer: LedgerWriter


class ShellWriters:
    """The writers of a shell, by the service URI of the cluster and the id of the ledger."""

    def __init__(self) -> None:
        self._writers: dict[tuple[str, LedgerId], WriterInUse] = {}

    def get(self, uri: str, ledger_id: LedgerId) -> LedgerWriter | None:
        """Return the writer of a ledger, if the shell has it and it can still write."""
        kept = self._writers.get((uri, ledger_id))
        return kept.writer if kept is not None and kept.writer.is_writable else None

    def keep(self, uri: str, client: BlockingClient, writer: LedgerWriter) -> None:
        """Keep the writer of a ledger."""
        self._writers[uri, writer.ledger_id] = WriterInUse(client, writer)

    def __iter__(self) -> Iterator[LedgerId]:
        """Yield the ledgers whose writers can still write."""
        return (one.writer.ledger_id for one in self._writers.values() if one.writer.is_writable)

    def release(self, report: Report) -> bool:
        """Release all ledgers; return whether that succeeded."""
        done = True
        while self._writers:
            _, kept = self._writers.popitem()
            if kept.writer.is_writable:
                done = _release(kept, report) and done
        return done


def _release(kept: WriterInUse, report: Report) -> bool:
    from bkclient.admin.one_shot_adds import release_ledger

    ledger = f"ledger {kept.writer.ledger_id}"
    try:
        kept.client.call(lambda _client: release_ledger(kept.writer))
    except (LedgerClosedError, NoSuchLedgerError) as error:
        # Closed by `ledger recover` with all confirmed entries, or deleted by `ledger delete`.
        report(f"this shell no longer writes to {ledger}: {error_message(error)}", False)
    except (BookKeeperError, KeyboardInterrupt) as error:
        recover = f"`bkctl ledger recover {kept.writer.ledger_id}` closes it"
        report(f"{ledger} was not released: {error_message(error)}; {recover}", True)
        return False
    else:
        report(f"{ledger} released, after entry {kept.writer.last_add_confirmed}", False)
    return True


def writer_in_use(session: Session, ledger_id: LedgerId) -> LedgerWriter | None:
    """Return the shell's writer of a ledger; None without a shell."""
    writers = session.host.writers
    return None if writers is None else writers.get(session.uri, ledger_id)


def take(session: Session, ledger_id: LedgerId) -> LedgerWriter:
    """Return the writer of a ledger: the shell's, else a new one.

    Raises:
        ClientError: its last writer has not released it.
    """
    from bkclient.admin import one_shot_adds

    kept = writer_in_use(session, ledger_id)
    if kept is not None:
        return kept
    writer = session.call(one_shot_adds.claim_ledger, ledger_id)
    if session.host.writers is not None:
        session.host.writers.keep(session.uri, session.cluster.client, writer)
    return writer


def give_back(session: Session, writer: LedgerWriter) -> None:
    """Release the ledger; in a shell only publish the last entry to readers."""
    from bkclient.admin.one_shot_adds import release_ledger

    if session.host.writers is None:
        session.run(release_ledger, writer)
    else:
        session.run(writer.publish_lac)
