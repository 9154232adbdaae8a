"""Which other protocol a peer speaks, where the first bytes of a frame must be."""

from __future__ import annotations

from typing import Final

TLS_BEGIN: Final = b"\x16\x03"
"""What TLS begins with. No frame does: it would be longer than any may be."""

_TLS_ALERT: Final = b"\x15\x03"
_HTTP_RESPONSE: Final = b"HTTP"
_HTTP_REQUESTS: Final = frozenset(
    (b"GET ", b"PUT ", b"POST", b"HEAD", b"DELE", b"PATC", b"OPTI", b"CONN", b"TRAC", b"PRI ")
)


def other_protocol(size: int) -> str:
    """Return which protocol a peer speaks, by what was read as the length of a frame.

    "" if the four bytes belong to no protocol that is known here.
    """
    begin = size.to_bytes(4, "big", signed=True)
    if begin == _HTTP_RESPONSE:
        return "an HTTP response; this is the port of an HTTP server"
    if begin in _HTTP_REQUESTS:
        return "an HTTP request; a bookie serves HTTP on another port, httpServerPort"
    if begin.startswith((TLS_BEGIN, _TLS_ALERT)):
        return "TLS; the port expects TLS from the first byte on"
    return ""
