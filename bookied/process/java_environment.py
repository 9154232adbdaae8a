"""Variables of Java's start scripts that bookied ignores, with a warning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

LOG_CONF: Final = "BOOKIE_LOG_CONF"

_INSTEAD: Final = (
    "log4j's files mean nothing here; --log-format, --log-level, BOOKIE_ROOT_LOG_LEVEL, "
    "BOOKIE_LOG_DIR and BOOKIE_LOG_FILE say how to log"
)

OF_THE_JVM: Final = (
    "BOOKIE_EXTRA_CLASSPATH", "BOOKIE_EXTRA_OPTS", "BOOKIE_GC_LOGGING_OPTS", "BOOKIE_GC_OPTS",
    "BOOKIE_MAX_DIRECT_MEMORY", "BOOKIE_MAX_HEAP_MEMORY", "BOOKIE_MEM_OPTS",
    "BOOKIE_MIN_HEAP_MEMORY", "BOOKIE_NETTY_OPTS", "BOOKIE_PERF_OPTS",
)  # fmt: skip


def remarks(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield (log level, text) for each variable that bookied ignores."""
    if path := environ.get(LOG_CONF):
        yield "warn", f"{LOG_CONF}={path} is not read: {_INSTEAD}"
    if found := [name for name in OF_THE_JVM if environ.get(name)]:
        yield "debug", f"there is no JVM here for {', '.join(found)}"
