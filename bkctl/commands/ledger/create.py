"""`ledger create`, and the options of all commands that create ledgers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import attrs

from bkclient.admin import one_shot_adds
from bkclient.errors import LedgerIdOverflowError
from bkclient.ledger.creation import NewLedger
from bkctl.commands.ledger.delete import shortened
from bkctl.errors import UsageError
from bkctl.output.views import LEDGER, field, shown
from wire.codes import DigestType
from wire.ids import BookieId, LedgerId

if TYPE_CHECKING:
    from bkclient.client import Client
    from bkclient.ledger.writer import LedgerWriter
    from bkctl.session.session import Session


@shown("ledgers", bare=True)
class LedgerCreated:
    """A new ledger without a writer; any client may add to it."""

    ledger_id: LedgerId = field(LEDGER)
    ensemble_size: int = field("Bookies of a fragment.")
    write_quorum: int = field("Copies of an entry.")
    ack_quorum: int = field("Copies before an ack.")
    ensemble: tuple[BookieId, ...] = field("Bookies of the first ensemble.")


def create(session: Session, /, **wanted: Any) -> None:
    """Create an empty ledger and print its id."""
    new = new_ledger(session, **wanted)
    if session.plans_only([plan_of(new)]):
        return
    warn_of_chosen_id(session, new)
    ledger_id, made = session.call(one_shot_adds.create_handed_over, new)
    session.emit(
        LedgerCreated(
            ledger_id, made.ensemble_size, made.write_quorum, made.ack_quorum, made.ensemble
        )
    )


def plan_of(new: NewLedger) -> str:
    """Return a sentence that describes the planned ledger."""
    meta = "".join(f", {key}={shortened(value)}" for key, value in new.custom.items())
    return (
        f"create a ledger: ensemble {new.ensemble_size}, write quorum {new.write_quorum}, ack "
        f"quorum {new.ack_quorum}, digest {new.digest_type.name.lower()}{meta}"
    )


def new_ledger(
    session: Session,
    *,
    ensemble_size: int,
    write_quorum: int,
    ack_quorum: int,
    digest: str,
    password_file: str | None,
    meta: Sequence[tuple[str, str]],
    wanted_id: LedgerId | None,
) -> NewLedger:
    """Return the ledger that the options of ``ledger create`` describe.

    Raises:
        UsageError: the quorums do not fit, or the password file cannot be read.
    """
    if ensemble_size < write_quorum:
        raise UsageError(
            f"-W {write_quorum} is more than -E {ensemble_size}: an entry cannot have more "
            "replicas than the ensemble has bookies",
            next_step=f"give -E {write_quorum} or more, or -W {ensemble_size} or less",
        )
    if write_quorum < ack_quorum:
        raise UsageError(
            f"-A {ack_quorum} is more than -W {write_quorum}: only the bookies of the write quorum "
            "confirm an entry",
            next_step=f"give -A {write_quorum} or less",
        )
    return NewLedger(
        ensemble_size=ensemble_size,
        write_quorum=write_quorum,
        ack_quorum=ack_quorum,
        digest_type=DigestType[digest.upper()],
        password=session.questions.password(password_file),
        custom={key: text.encode(errors="surrogateescape") for key, text in meta},
        ledger_id=wanted_id,
    )


def warn_of_chosen_id(session: Session, new: NewLedger) -> None:
    """Warn if a ledger with the chosen id may have existed."""
    if new.ledger_id is None:
        return
    generated = session.call(_generated_id)
    if generated is not None and new.ledger_id < generated:
        session.warn(
            f"ledger {new.ledger_id} may have existed: a writer of a deleted ledger of this id "
            "could still close or add to the new one; without --ledger-id the id is a new one"
        )


async def _generated_id(client: Client) -> LedgerId | None:
    """Allocate and return a new ledger id; None if the layout has no more ids."""
    try:
        return await client.store.allocate_ledger_id()
    except LedgerIdOverflowError:
        return None


async def create_for_writing(client: Client, new: NewLedger) -> LedgerWriter:
    """Create a ledger for this process to write and close."""
    return await client.create_ledger(**attrs.asdict(new))
