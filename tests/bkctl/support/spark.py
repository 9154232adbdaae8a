"""A Spark that is quick to start: tests end before a JVM's optimising compiler pays."""

from __future__ import annotations

from typing import Final

QUICK_JVM: Final = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
)

QUICK: Final = {
    "spark.driver.extraJavaOptions": " ".join(QUICK_JVM),
    "spark.executor.extraJavaOptions": " ".join(QUICK_JVM),
    "spark.sql.shuffle.partitions": "2",
}
"""Options of a session: half the CPU for the first queries."""
