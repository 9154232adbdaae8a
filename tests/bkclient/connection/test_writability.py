"""Who waits for space on a connection."""

from __future__ import annotations

from bkclient.connection.add_stream import Writability


def test_who_stops_another_that_waits_keeps_none_from_going_on() -> None:
    connection = Writability()
    connection.is_writable = False
    waiting = [connection.when_writable() for _ in range(3)]
    waiting[0].addCallback(lambda _: waiting[1].cancel())
    waiting[1].addErrback(lambda _failure: "stopped")
    connection.end()
    assert [one.result for one in waiting] == [None, "stopped", None]  # type: ignore[attr-defined]
