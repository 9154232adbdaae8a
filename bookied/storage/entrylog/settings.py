"""How entry logs are written."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class LogSettings:
    """When a log ends, when it is synced, and how it is written."""

    size_bytes_max: int = 1024 * 1024 * 1024
    """``logSizeLimit``: the next log begins before one would be longer."""
    sync_bytes: int = 32 * 1024 * 1024
    """Sync whenever so much was written: no checkpoint meets a mountain."""
    direct: bool = True
    """Write past the page cache where possible."""
