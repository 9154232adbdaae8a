"""The output forms of an entry for `ledger read` and `tail`: raw, text, hexdump, or a pattern.

``input_cutting`` is the opposite direction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from bkctl.commands.ledger.input_cutting import LENGTH, FramingError

_HEX_BYTES: Final = 16
_PRINTABLE: Final = range(0x20, 0x7F)

Form = Callable[[int, int, bytes], bytes]
"""A function from ledger id, entry id and payload to the bytes that are written for the entry."""


def raw(_ledger_id: int, _entry_id: int, payload: bytes) -> bytes:
    """Return the payload unchanged."""
    return payload


def length_prefixed(_ledger_id: int, _entry_id: int, payload: bytes) -> bytes:
    """Return the payload after its length."""
    return LENGTH.pack(len(payload)) + payload


def delimited(delimiter: bytes) -> Form:
    """Return the form that writes ``delimiter`` after each payload."""
    return lambda _ledger_id, _entry_id, payload: payload + delimiter


def hexdump(ledger_id: int, entry_id: int, payload: bytes) -> bytes:
    """Return a header line, then 16 bytes a line in hexadecimal and as text."""
    lines = [f"ledger {ledger_id} entry {entry_id}: {len(payload)} bytes"]
    for at in range(0, len(payload), _HEX_BYTES):
        part = payload[at : at + _HEX_BYTES]
        left, right = part[: _HEX_BYTES // 2].hex(" "), part[_HEX_BYTES // 2 :].hex(" ")
        text = "".join(chr(byte) if byte in _PRINTABLE else "." for byte in part)
        lines.append(f"{at:08x}  {left:23}  {right:23}  |{text}|")
    return "\n".join(lines).encode() + b"\n"


def for_terminal(ledger_id: int, entry_id: int, payload: bytes) -> bytes:
    """Return text as a line, and a payload that could disturb a terminal as a hexdump."""
    if is_text(payload):
        return payload + b"\n"
    return hexdump(ledger_id, entry_id, payload)


def is_text(payload: bytes) -> bool:
    """Return whether a payload is UTF-8 without control characters other than tab and newlines."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return False
    return text.isprintable() or all(char.isprintable() or char in "\t\n\r" for char in text)


_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


def unescape(text: str) -> bytes:
    r"""Return the bytes of a text with the escapes ``\n``, ``\t``, ``\r``, ``\0`` and ``\\``."""
    parts = []
    chars = iter(text)
    for char in chars:
        if char != "\\":
            parts.append(char.encode(errors="surrogateescape"))
            continue
        following = next(chars, "\\")
        parts.append(_ESCAPES.get(following, f"\\{following}".encode(errors="surrogateescape")))
    return b"".join(parts)


_LETTERS: Final = "use %l ledger, %e entry, %n size, %s payload, %% percent"


def formatted(pattern: str) -> Form:
    """Return the form of a pattern: ``%l`` ledger, ``%e`` entry, ``%n`` size, ``%s`` payload.

    Raises:
        FramingError: the pattern contains another ``%``.
    """
    pieces = list(_pieces(pattern))
    if not any(isinstance(piece, str) for piece in pieces):
        raise FramingError(
            f"--format: {pattern!r} has no field of an entry",
            next_step=f"{_LETTERS}; --raw prints payloads only",
        )

    def form(ledger_id: int, entry_id: int, payload: bytes) -> bytes:
        values = {
            "l": b"%d" % ledger_id, "e": b"%d" % entry_id, "n": b"%d" % len(payload), "s": payload,
        }  # fmt: skip
        return b"".join(values[p] if isinstance(p, str) else p for p in pieces)

    return form


def _pieces(pattern: str) -> Iterator[str | bytes]:
    literal, *rest = re.split(r"%(.?)", pattern, flags=re.DOTALL)
    yield unescape(literal)
    for letter, following in zip(rest[::2], rest[1::2], strict=True):
        if letter not in {"l", "e", "n", "s", "%"}:
            raise FramingError(
                f"--format: %{letter} means nothing",
                next_step=_LETTERS,
            )
        yield b"%" if letter == "%" else letter
        yield unescape(following)
