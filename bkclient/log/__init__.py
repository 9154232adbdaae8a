"""Logs: endless sequences made of ledgers, with writers that may change.

A log is a list of ledgers in the metadata, changed by compare-and-swap only. A writer that opens it
fences the last ledgers of the list and appends one of its own; so there is one writer, whichever
processes believe that they lead. The rules, and why they are safe: ledgers2logs.md.

    logs = LogManager(client)
    await logs.create("events")
    writer = await logs.open_writer("events")
    position = await writer.append(b"hello")
    async for position, payload in await logs.open_reader("events"):
        print(position, payload)
"""

from bkclient.log.cursors import Cursor, Cursors
from bkclient.log.manager import LogInfo, LogManager
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
