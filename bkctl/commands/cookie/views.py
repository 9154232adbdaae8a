"""How stored cookies are shown."""

from __future__ import annotations

from bkclient.admin.cookies import StoredCookie
from bkctl.commands.cookie.columns import COOKIE_COLUMNS
from bkctl.output.views import BOOKIE, WIDE, Kind, column, show

show(
    StoredCookie,
    "cookies",
    BOOKIE,
    *COOKIE_COLUMNS,
    column("problem", "What is wrong with it.", lambda v: v.problem or None, rank=WIDE),
    column("version", "How often it was replaced.", "stored.version", Kind.COUNT, rank=WIDE),
)
