"""``bkctl explain``: what an error means, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bkctl.commands.about.explanations import ALIASES, ErrorName, all_errors
from bkctl.errors import NothingFoundError
from bkctl.suggest import did_you_mean

if TYPE_CHECKING:
    from bkctl.session.session import Session


def explain(session: Session, *, names: Sequence[str]) -> None:
    """Print what errors mean, what they exit with, and what to do; without a name all names.

    Raises:
        NothingFoundError: there is no such error.
    """
    known = all_errors()
    if not names:
        session.emit_all(map(ErrorName, known.values()), ErrorName)
        return
    for given in names:
        name = "BK-" + given.strip("[]").upper().removeprefix("BK-").replace("_", "-")
        name = ALIASES.get(name, name)
        if name not in known:
            raise NothingFoundError(
                f"there is no error {name}{did_you_mean(name, [*known, *ALIASES])}",
                next_step="`bkctl explain` lists all",
            )
        session.emit(known[name])
