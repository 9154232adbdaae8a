"""Tables at the widths of terminals, held against ``drawings``; ``DRAW=1`` writes them anew."""

from __future__ import annotations

import pytest

from bkctl.commands.about.explanations import ErrorExplanation, ErrorName
from bkctl.commands.ledger.columns import LedgerSummary
from bkctl.options import Options
from bkctl.output.emit import Emitter
from tests.bkctl.output.test_emit import LEDGERS
from tests.bkctl.support.drawn import check_drawing
from tests.bkctl.support.terminal import FakeHost

WIDTHS = (40, 80, 120)
ERRORS = [
    ErrorName(ErrorExplanation(name="BK-BUG", what="An error that bkctl does not know.", status=1)),
    ErrorName(
        ErrorExplanation(
            name="BK-COOKIE-NEEDED",
            what="Ledgers that are not closed list the bookie: its cookie has to stay.",
            status=7,
        )
    ),
]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    ("name", "values", "kind"),
    [("table-errors", ERRORS, ErrorName), ("table-ledgers", LEDGERS, LedgerSummary)],
)
def test_a_table_fits_its_terminal(
    name: str, values: list[object], kind: type, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    options, host = Options(), FakeHost(tty=True, environ={"PAGER": ""})
    options.utc = options.no_pager = True
    options.color = "never"
    emitter = Emitter(options, host)
    emitter.many(values, kind)
    emitter.finish()
    check_drawing(name, host.out.text.splitlines(), width)
