"""What `bookie list` shows of what the metadata says; asks no bookie."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkctl.commands.cluster.columns import BookieSummary

if TYPE_CHECKING:
    from bkclient.metadata.stored import BookieStatus
    from bkctl.session.session import Session


def bookies(session: Session, wanted: str | None) -> list[BookieSummary]:
    """Return the bookies in a state (``None``: all), by id."""
    return [summary(one) for one in session.look.bookies() if wanted in {None, one.state.value}]


def summary(one: BookieStatus) -> BookieSummary:
    """Return what is shown of a bookie before anybody is asked."""
    if one.info is None:
        return BookieSummary(one.bookie_id, one.state.value)
    endpoint = one.info.endpoint()
    return BookieSummary(
        one.bookie_id,
        one.state.value,
        address=None if endpoint is None else f"{endpoint.host}:{endpoint.port}",
        properties=one.info.properties,
    )
