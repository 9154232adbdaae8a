"""Columns of cookies, also of other values that have one."""

from __future__ import annotations

from typing import Any, Final

from bkclient.admin.cookies import StoredCookie
from bkctl.output.views import BOOKIE, WIDE, Column, Kind, column, show
from wire.records.cookie import CookieDifference


def _of_cookie(name: str, doc: str, **more: Any) -> Column:
    def get(value: Any) -> Any:
        found = None if value.cookie is None else getattr(value.cookie, name)
        return list(found) if isinstance(found, tuple) else found

    return column(name, doc, get, **more)


COOKIE_COLUMNS: Final = (
    _of_cookie("journal_dirs", "Its journal directories, joined by commas."),
    _of_cookie("ledger_dirs", "Its ledger directories.", kind=Kind.NESTED, rank=1),
    _of_cookie("index_dirs", "Its index directories, if named.", kind=Kind.NESTED, rank=WIDE),
    _of_cookie("instance_id", "Its cluster.", rank=2),
    _of_cookie("layout_version", "Version of its form.", kind=Kind.COUNT, rank=WIDE),
)


show(
    StoredCookie,
    "cookies",
    BOOKIE,
    *COOKIE_COLUMNS,
    column("problem", "What is wrong with it.", lambda v: v.problem or None, rank=WIDE),
    column("version", "How often it was replaced.", "stored.version", Kind.COUNT, rank=WIDE),
)

show(
    CookieDifference,
    "problems",
    column("place", "The metadata service, or a VERSION file."),
    column("field", "What differs."),
    column("configured", "As the settings have it."),
    column("found", "As it is there."),
)
