"""Progress of an export's tasks."""

from __future__ import annotations

import socket

from bkctl.commands.export.task.copy import ProgressListener, ProgressReporter, ReadTotals


def test_totals_are_summed_over_tasks() -> None:
    listener = ProgressListener()
    for task, entries in ((0, 10), (1, 5)):
        reporter = ProgressReporter(listener.address, task)
        reporter.add(entries, entries * 100)
        reporter.close()
    assert listener.done() == ReadTotals(15, 1500)
    listener.close()


def test_a_task_that_runs_again_is_counted_once() -> None:
    listener = ProgressListener()
    for _ in range(2):
        reporter = ProgressReporter(listener.address, 3)
        reporter.add(7, 70)
        reporter.close()
    assert listener.done() == ReadTotals(7, 70)
    listener.close()


def test_foreign_datagrams_are_passed_over() -> None:
    listener = ProgressListener()
    host, port = listener.address.split(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for junk in (b"", b"{}", b"[1]", b"[1,2,3,4]", b'["a",1,2]', b"\xff\xfe"):
            stranger.sendto(junk, (host, int(port)))
    assert listener.done() == ReadTotals(0, 0)
    listener.close()


def test_a_reporter_without_a_listener_goes_on() -> None:
    listener = ProgressListener()
    address = listener.address
    listener.close()
    for where in (address, ""):
        reporter = ProgressReporter(where, 0)
        reporter.add(1, 1)
        reporter.add(1, 1)
        reporter.close()
