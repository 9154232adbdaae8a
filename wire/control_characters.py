"""Text from peers, files and metadata without control characters: for a terminal or a log."""

from __future__ import annotations


def printable(text: str, *, keep: str = "") -> str:
    r"""Return ``text`` with escapes such as ``\x1b`` in place of control characters.

    Args:
        text: from any source.
        keep: control characters that stay, such as line ends.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else f"\\x{ord(c):02x}" for c in text)
