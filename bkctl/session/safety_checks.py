"""Safety checks: the objections to a command, and overriding each by its name.

The question before a change (yes or no, or an id to type) is in ``questions``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Final

import attrs

from bkctl.errors import RefusedError

if TYPE_CHECKING:
    from bkctl.session.session import Session
    from wire.ids import BookieId

NAMED_MAX: Final = 10
"""Maximum number of names in a message."""


@attrs.frozen
class Objection:
    """The reason against a change, and the step to do first.

    ``check`` is the name for ``--force``; empty if the objection cannot be overridden.
    """

    check: str
    why: str
    next_step: str


def refuse_unless_forced(
    session: Session,
    objections: Iterable[Objection],
    force: Collection[str],
    *,
    option: str = "--force",
) -> None:
    """Refuse if any objection is not overridden; the error names all of them.

    A dry run reports them, and is refused after its plan.

    Raises:
        RefusedError: an objection is not overridden.
    """
    left: list[tuple[str, str]] = []
    for one in objections:
        override = f"{option} {one.check}" if one.check else ""
        is_named = not override or override in one.next_step
        way = one.next_step if is_named else f"{one.next_step}, or {override}"
        if one.check and one.check in force:
            session.warn(f"overridden: {one.why}")
        elif session.dry_run:
            session.note(f"refused{' without ' if override else ''}{override}: {one.why}")
            session.refused = session.refused or way
        else:
            left.append((one.why, way))
    if left:
        why, way = left[0]
        if len(left) > 1:  # Each step is next to its reason.
            why, way = "; and ".join(f"{why} ({way})" for why, way in left), ""
        raise RefusedError(why, next_step=way)


def while_registered(
    bookies: Collection[BookieId], check: str = "", *, instead: str = ""
) -> Iterator[Objection]:
    """Yield the objection to a change of bookies' data: they are registered, so they run.

    ``instead`` is an alternative.
    """
    if not bookies:
        return
    one = len(bookies) == 1
    verb, do, which = ("is", "it runs", "bookie") if one else ("are", "they run", "bookies")
    step = (
        f"stop the {which} first (a killed bookie stays registered for zkTimeout, 10 s by default)"
    )
    yield Objection(
        check,
        f"{some_names(bookies)} {verb} registered: {do}",
        f"{step}, or {instead}" if instead else step,
    )


def some_names(values: Collection[object]) -> str:
    """Return the first names of many, for a sentence."""
    shown = ", ".join(map(str, list(values)[:NAMED_MAX]))
    more = len(values) - NAMED_MAX
    return f"{shown} and {more} more" if more > 0 else shown
