"""The protocol of a peer that sends something else than frames, by its first bytes."""

from __future__ import annotations

from typing import Final

TLS_BEGIN: Final = b"\x16\x03"
"""The first bytes of TLS. They cannot begin a frame, which would exceed every limit."""

_TLS_ALERT: Final = b"\x15\x03"
_HTTP_RESPONSE: Final = b"HTTP"
_HTTP_REQUESTS: Final = frozenset(
    (b"GET ", b"PUT ", b"POST", b"HEAD", b"DELE", b"PATC", b"OPTI", b"CONN", b"TRAC", b"PRI ")
)


def other_protocol(size: int) -> str:
    """Return the peer's protocol, by the four bytes that were read as the length of a frame.

    "" if the bytes belong to no protocol known here.
    """
    begin = size.to_bytes(4, "big", signed=True)
    if begin == _HTTP_RESPONSE:
        return "an HTTP response; this is the port of an HTTP server"
    if begin in _HTTP_REQUESTS:
        return "an HTTP request; a bookie serves HTTP on another port, httpServerPort"
    if begin.startswith((TLS_BEGIN, _TLS_ALERT)):
        return "TLS; the port expects TLS from the first byte on"
    return ""
