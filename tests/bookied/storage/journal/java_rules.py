"""A strict model of how Java replays a journal: storage.md section 3.6, the column "Java".

It is written from that table and shares no code with our reader. ``java_scan`` gives what Java's
replayer would be handed; ``JavaFailsError`` stands for whatever keeps a Java bookie from starting.
"""

from __future__ import annotations

import struct

JAVA_HEADERS = {1: 0, 2: 8, 3: 8, 4: 8, 5: 512, 6: 512}


class JavaFailsError(Exception):
    """Java's scan, or its replayer, ends with an exception; ``found`` is what it had by then."""

    found: list[tuple[int, bytes]]


def java_scan(data: bytes, position: int = 0) -> list[tuple[int, bytes]]:
    """Return the records that Java replays from a journal's bytes, each with its offset.

    Raises:
        JavaFailsError: Java would not start.
    """
    found: list[tuple[int, bytes]] = []
    try:
        _scan(data, position, found)
    except JavaFailsError as error:
        error.found = found
        raise
    return found


def _scan(data: bytes, position: int, found: list[tuple[int, bytes]]) -> None:
    version = struct.unpack(">i", data[4:8])[0] if data[:4] == b"BKLG" and len(data) >= 8 else 1
    if version not in JAVA_HEADERS:
        raise JavaFailsError(f"version {version}")
    at = position or JAVA_HEADERS[version]
    while at + 4 <= len(data):
        (length,) = struct.unpack(">i", data[at : at + 4])
        if length == 0:
            break
        if length == -0x100 and version >= 5:
            if at + 8 > len(data):
                break
            (padding,) = struct.unpack(">i", data[at + 4 : at + 8])
            if padding < 0:
                raise JavaFailsError(f"padding of {padding} at {at}")
            at += 8 + padding
            continue
        if length < 0:
            raise JavaFailsError(f"negative length {length} at {at}")
        if at + 4 + length > len(data):
            if length > 2**30:
                raise JavaFailsError(f"out of memory: {length} at {at}")
            break
        if length < 16:
            raise JavaFailsError(f"record of {length} at {at}")
        found.append((at, data[at + 4 : at + 4 + length]))
        at += 4 + length
