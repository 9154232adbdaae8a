"""Logs: endless sequences of ledgers, whose writer may change.

A log is a list of ledgers in the metadata, changed only by compare-and-swap. A writer that opens
the log fences the last ledgers of the list and appends one of its own. So there is one writer,
however many processes believe that they lead. ledgers2logs.md has the rules, and why they are safe.

    logs = LogManager(client)
    await logs.create("events")
    writer = await logs.open_writer("events")
    position = await writer.append(b"hello")
    async for position, payload in await logs.open_reader("events"):
        print(position, payload)
"""

from bkclient.log.cursors import Cursor, Cursors
from bkclient.log.log_manager import LogInfo, LogManager
from bkclient.log.reader import LogReader
from bkclient.log.record import EARLIEST, LATEST, LogOptions, Position
from bkclient.log.writer import LogWriter

__all__ = [
    "EARLIEST",
    "LATEST",
    "Cursor",
    "Cursors",
    "LogInfo",
    "LogManager",
    "LogOptions",
    "LogReader",
    "LogWriter",
    "Position",
]
