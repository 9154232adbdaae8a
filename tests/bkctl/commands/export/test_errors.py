"""What an error of Spark becomes."""

from __future__ import annotations

from bkctl.commands.export.errors import start_cause


def test_a_master_that_does_not_answer_is_named_as_the_reason() -> None:
    stopped = RuntimeError(
        "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
        ": java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.\n"
        "This stopped SparkContext was created at: ..."
    )
    assert "no master answers there" in start_cause(stopped)
    assert start_cause(RuntimeError("x\nCaused by: java.io.IOException: full")) == "full"
