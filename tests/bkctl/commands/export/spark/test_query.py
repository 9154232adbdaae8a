"""Errors of a query are one line that says what to do."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'bkctl[spark]'")

from bkclient.errors import NoSuchLedgerError
from bkclient.metadata.api import MetadataUnavailableError
from bkctl.commands.export.spark.query import short_errors
from bkctl.commands.export.task.errors import TaskError
from wire.errors import BookKeeperError
from wire.ids import LedgerId

GONE = NoSuchLedgerError.of(LedgerId(7))


def caused(error: BookKeeperError, cause: BaseException) -> BookKeeperError:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (NoSuchLedgerError.of(LedgerId(7)), "there is no ledger 7 (hint: `bkctl ledger list` .*)"),
        (caused(BookKeeperError("ledger 7"), GONE), "ledger 7 (hint: `bkctl ledger list` .*)"),
        (
            caused(
                TaskError("no client on h", cause := MetadataUnavailableError("refused")), cause
            ),
            "no client on h: refused (MetadataUnavailableError) (hint: check the .* URI.*)",
        ),
        (BookKeeperError("no more to say"), "no more to say"),
    ],
)
def test_an_error_is_one_line_with_its_hint(error: BookKeeperError, line: str) -> None:
    pattern = line.replace("(", r"\(").replace(")", r"\)")
    once = pytest.raises(BookKeeperError, match=f"^{pattern}$")
    with once as caught, short_errors(), short_errors():
        raise error
    assert caught.value.__suppress_context__
