"""The page is what Java writes, to the comma, and Prometheus can read it."""

from __future__ import annotations

import math

from prometheus_client.parser import text_string_to_metric_families

from bookied.admin.monitoring.prometheus_text import counter, exposition, gauge, summary
from bookied.stats.quantiles import Summary

SEEN = """\
# TYPE bookie_journal_JOURNAL_SYNC summary
bookie_journal_JOURNAL_SYNC{success="false",quantile="0.5", journalIndex="0"} NaN
bookie_journal_JOURNAL_SYNC{success="false",quantile="0.75", journalIndex="0"} NaN
bookie_journal_JOURNAL_SYNC{success="false",quantile="0.95", journalIndex="0"} NaN
bookie_journal_JOURNAL_SYNC{success="false",quantile="0.99", journalIndex="0"} NaN
bookie_journal_JOURNAL_SYNC{success="false",quantile="0.999", journalIndex="0"} NaN
bookie_journal_JOURNAL_SYNC{success="false",quantile="0.9999", journalIndex="0"} NaN
bookie_journal_JOURNAL_SYNC{success="false",quantile="1.0", journalIndex="0"} NaN
bookie_journal_JOURNAL_SYNC_count{success="false", journalIndex="0"} 0
bookie_journal_JOURNAL_SYNC_sum{success="false", journalIndex="0"} 0.0
bookie_journal_JOURNAL_SYNC{success="true",quantile="0.5", journalIndex="0"} 2.5
bookie_journal_JOURNAL_SYNC{success="true",quantile="0.75", journalIndex="0"} 2.5
bookie_journal_JOURNAL_SYNC{success="true",quantile="0.95", journalIndex="0"} 2.5
bookie_journal_JOURNAL_SYNC{success="true",quantile="0.99", journalIndex="0"} 2.5
bookie_journal_JOURNAL_SYNC{success="true",quantile="0.999", journalIndex="0"} 2.5
bookie_journal_JOURNAL_SYNC{success="true",quantile="0.9999", journalIndex="0"} 2.5
bookie_journal_JOURNAL_SYNC{success="true",quantile="1.0", journalIndex="0"} 2.5
bookie_journal_JOURNAL_SYNC_count{success="true", journalIndex="0"} 4
bookie_journal_JOURNAL_SYNC_sum{success="true", journalIndex="0"} 10.0
"""


def test_a_summary_is_written_as_java_writes_it() -> None:
    took = Summary()
    took.success.observe(2.5, 4)
    took.rotate()
    labels = {"journalIndex": "0"}
    assert exposition([summary("bookie_journal_JOURNAL_SYNC", took, labels)]) == SEEN


def test_numbers_labels_and_odd_texts_come_back_from_the_parser() -> None:
    odd = 'a "quoted" \\ path\nin two lines'
    took = Summary()
    took.observe(3.0)
    took.fold()
    page = exposition(
        [
            gauge("a", 1.5, {"dir": odd, "b": ""}),
            counter("b_QUEUE_SIZE", 7),
            summary("c", took),
            gauge("d", math.nan),
        ]
    )
    families = {one.name: one for one in text_string_to_metric_families(page)}
    assert families["a"].samples[0].labels == {"dir": odd, "b": ""}
    assert families["a"].samples[0].value == 1.5
    assert families["b_QUEUE_SIZE"].type == "counter"
    counts = {tuple(one.labels.values()): one.value for one in families["c"].samples}
    assert counts["true",] == 3.0
    assert math.isnan(families["d"].samples[0].value)
