"""``bkctl explain``: what an error means, and what to do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from bkctl.commands.about.explanations import ALIASES, ErrorName, all_errors
from bkctl.errors import NothingFoundError
from bkctl.suggest import did_you_mean

if TYPE_CHECKING:
    from bkctl.session.session import Session

JAVA_NAMES: Final = MappingProxyType(
    {
        "BK-ADD-ENTRY-QUORUM-TIMEOUT": "BK-ADD-QUORUM-TIMEOUT",
        "BK-BOOKIE-HANDLE-NOT-AVAILABLE": "BK-BOOKIE-UNAVAILABLE",
        "BK-DIGEST-MATCH": "BK-DIGEST-MISMATCH",
        "BK-INVALID-COOKIE": "BK-WRONG-IDENTITY",
        "BK-LEDGER-EXIST": "BK-LEDGER-EXISTS",
        "BK-NO-LEDGER": "BK-NO-SUCH-LEDGER",
        "BK-NO-SUCH-LEDGER-EXISTS": "BK-NO-SUCH-LEDGER",
        "BK-NO-SUCH-LEDGER-EXISTS-ON-METADATA-SERVER": "BK-NO-SUCH-LEDGER",
        "BK-READ": "BK-READ-FAILED",
        "BK-UNAUTHORIZED-ACCESS": "BK-UNAUTHORIZED",
        "BK-WRITE": "BK-WRITE-FAILED",
        "BK-WRITE-ON-READ-ONLY-BOOKIE": "BK-READ-ONLY-BOOKIE",
    }
)
"""Names made of Java's classes of exceptions, where ours are others."""
_JAVA: Final = re.compile(r"(?:.*[.$])?(?:BK)?(\w+)Exception")
"""A class of Java's client or bookie, as its logs have it."""
_HUMP: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


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
        name = "BK-" + _word(given).upper().removeprefix("BK-").replace("_", "-")
        name = JAVA_NAMES.get(name, ALIASES.get(name, name))
        if name not in known:
            raise NothingFoundError(
                f"there is no error {name}{did_you_mean(name, [*known, *ALIASES])}",
                next_step="`bkctl explain` lists errors, `bkctl config show KEY` explains settings",
            )
        session.emit(known[name])


def _word(given: str) -> str:
    """Return an error's name as it was typed, or with hyphens for a class of Java's."""
    java = _JAVA.fullmatch(given)
    return _HUMP.sub("-", java[1]) if java else given.strip("[]")
