"""Words that stand for the beginning of a line. No I/O."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from typing import Final

import attrs

from shell.line import Line, LineError, parse

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class Aliases(Mapping[str, str]):
    """Lines by their words. A word is replaced once, so that none can stand for itself."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._lines: dict[str, Line] = {}

    def __getitem__(self, name: str) -> str:
        return self._texts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def define(self, name: str, text: str, taken: Container[str]) -> None:
        """Let a word stand for a line; ``taken`` are words that cannot.

        Raises:
            LineError: it is no such word, or the text is not one line of the program.
        """
        if not _NAME.fullmatch(name):
            raise LineError(f"{name!r} can be no alias: letters, digits, dots and dashes")
        if name in taken:
            raise LineError(f"{name} is a command; an alias cannot stand in its place")
        lines = parse(text)
        if len(lines) != 1 or not lines[0].words:
            raise LineError(f"an alias stands for one command: {text}")
        self._texts[name], self._lines[name] = text, lines[0]

    def forget(self, name: str) -> None:
        """Let a word stand for itself again."""
        del self._texts[name], self._lines[name]

    def words(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """Return the words of a line with the first one replaced where it is an alias."""
        line = self._lines.get(words[0]) if words else None
        return words if line is None else (*line.words, *words[1:])

    def expanded(self, line: Line) -> Line:
        """Return a line with its first word replaced where it is an alias.

        Raises:
            LineError: the alias says where its output goes, and so does the line.
        """
        stands_for = self._lines.get(line.words[0]) if line.words else None
        if stands_for is None:
            return line
        if (stands_for.pipe or stands_for.write_to) and (line.pipe or line.write_to):
            text = self._texts[line.words[0]]
            raise LineError(f"{line.words[0]} says already where its output goes: {text}")
        return attrs.evolve(
            line,
            words=self.words(line.words),
            pipe=line.pipe or stands_for.pipe,
            read_from=line.read_from or stands_for.read_from,
            write_to=line.write_to or stands_for.write_to,
            append=line.append or stands_for.append,
        )
