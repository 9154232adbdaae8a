"""What a command reads from stdin: bytes, or words in place of ``-``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    import click

    from bkctl.host import Host


class Input:
    """Stdin; the rounds of a watched command read the same words again."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.is_read_again = False
        """Whether words are kept, for a next round of a watched command."""
        self._lines: list[str] | None = None

    @property
    def bytes(self) -> BinaryIO:
        """Stdin as bytes."""
        return self._host.stdin.buffer

    def words(self, values: Iterable[Any], kind: click.ParamType[Any]) -> Iterator[Any]:
        """Yield ``values``; in place of ``-`` the words of stdin, each converted by ``kind``."""
        for value in values:
            if value != "-":
                yield value
                continue
            for line in self._piped_lines():
                for word in line.split():
                    yield kind.convert(word, None, None)

    def _piped_lines(self) -> Iterable[str]:
        if not self.is_read_again:
            return self._host.stdin
        if self._lines is None:
            self._lines = list(self._host.stdin)
        return self._lines
