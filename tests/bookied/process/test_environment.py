"""What is said of variables of Java's scripts."""

from __future__ import annotations

from bookied.process.command_line import remarks


def test_variables_that_mean_nothing_here_are_named() -> None:
    assert list(remarks({})) == []
    (log, jvm) = remarks({"BOOKIE_LOG_CONF": "/l4j.xml", "BOOKIE_GC_OPTS": "-XX:x"})
    assert log[0] == "warn"
    assert "/l4j.xml is not read" in log[1]
    assert jvm == ("debug", "there is no JVM here for BOOKIE_GC_OPTS")
