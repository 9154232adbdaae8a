"""Errors of a query are one line that says what to do."""

from __future__ import annotations

import gc
import traceback
from functools import partial

import attrs
import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'bkctl[spark]'")

from pyspark.sql.types import BinaryType, StructType

from bkclient.errors import NoSuchLedgerError
from bkclient.metadata.errors import MetadataUnavailableError
from bkctl.commands.export.errors import TaskError
from bkctl.commands.export.spark.query import Query, freeze_modules, short_errors
from bkctl.commands.export.spark.sink import Sink
from bkctl.commands.export.spark.source_options import SourceOptionError, parse_options
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


CLUSTER = "zk+hierarchical://zk1:2181/ledgers"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (GONE, f"there is no ledger 7, cluster {CLUSTER} (hint: `bkctl ledger list` "),
        (BookKeeperError("entry 3 of ledger 7"), f"entry 3 of ledger 7, cluster {CLUSTER}"),
        (TaskError("no client on h", OSError(CLUSTER)), f"no client on h: {CLUSTER} (OSError)"),
    ],
)
def test_an_error_names_the_cluster_once(error: BookKeeperError, line: str) -> None:
    with pytest.raises(BookKeeperError) as caught, short_errors(CLUSTER), short_errors(CLUSTER):
        raise error
    assert str(caught.value).startswith(line)
    assert str(caught.value).count(CLUSTER) == 1


def test_an_error_of_an_option_does_not_name_the_cluster() -> None:
    with pytest.raises(SourceOptionError, match=r"^too far$"), short_errors(CLUSTER):
        raise SourceOptionError("too far")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"conf": "/no/such.conf"}, "/no/such.conf"),
        ({"profile": "no-such", "log": "a"}, "no-such"),
    ],
)
def test_settings_that_cannot_be_read_are_one_line(options: dict[str, str], words: str) -> None:
    asked = parse_options({"uri": "zk://z/l", **options})
    schema = StructType().add("payload", BinaryType(), nullable=False)
    for use in (Query.of, partial(Sink.of, overwrite=False)):
        with pytest.raises(BookKeeperError, match=words) as caught:
            use(attrs.evolve(asked, log="a"), schema)
        frames = traceback.extract_tb(caught.tb)
        assert frames[-1].name == "__exit__"


def test_what_is_imported_is_left_out_of_collections() -> None:
    # PySpark's workers collect after each task: all modules took longer than many a task.
    asked = parse_options({"uri": "zk://z/l", "ledgers": "1"})
    query = Query.of(asked, StructType().add("payload", BinaryType(), nullable=False))
    freeze_modules.cache_clear()
    gc.unfreeze()
    try:
        assert query.partitions([]) == []
        frozen = gc.get_freeze_count()
        assert frozen > len(gc.get_objects())
        assert query.partitions([]) == []
        assert gc.get_freeze_count() <= frozen, "once a process"
    finally:
        gc.unfreeze()
