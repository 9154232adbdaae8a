"""Tables at the widths of terminals, held against ``drawings``; ``DRAW=1`` writes them anew."""

from __future__ import annotations

import pytest

from bkctl.bookies.bookie_columns import BookieSummary
from bkctl.commands.ledger.columns import LedgerSummary
from bkctl.commands.settings.config_files import SettingDifference
from bkctl.commands.tool.explanations import ErrorExplanation, ErrorName
from bkctl.global_options import Options
from bkctl.output.emitter import Emitter
from tests.bkctl.output.test_emitter import LEDGERS
from tests.bkctl.support.drawings import check_drawing
from tests.bkctl.support.terminal import FakeHost
from wire.ids import BookieId

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
DIFFERENCES = [
    SettingDifference(
        "metadataServiceUri",
        "zk+hierarchical://zk1/ledgers",
        "zk+hierarchical://zk2/ledgers",
        None,
    ),
    SettingDifference("gcWaitTime", "1000", None, "600000"),
]
BOOKIES = [
    BookieSummary(
        BookieId("127.0.0.1:3181"), "writable", "127.0.0.1:3181", 10**10, 10**11,
        rack="/eu/rack-1", version="bookied 0.1.0", uptime_s=7384.0,
    ),
    BookieSummary(BookieId("127.0.0.1:3182"), "down"),
]  # fmt: skip


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    ("name", "values", "kind"),
    [
        ("table-errors", ERRORS, ErrorName),
        ("table-ledgers", LEDGERS, LedgerSummary),
        ("table-differences", DIFFERENCES, SettingDifference),
        ("wide-bookies", BOOKIES, BookieSummary),
    ],
)
def test_a_table_fits_its_terminal(
    name: str, values: list[object], kind: type, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    options, host = Options(), FakeHost(tty=True, environ={"PAGER": ""})
    options.utc = options.no_pager = True
    options.color, options.output = "never", name.partition("-")[0]
    emitter = Emitter(options, host)
    emitter.many(values, kind)
    emitter.finish()
    check_drawing(name, host.out.text.splitlines(), width)
