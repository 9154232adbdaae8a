"""Parameter types for files and directories: by id, by name or by path."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from bkctl.cli.parameter_types import ParsedType, parse_entry_range
from bkctl.exit_status import ExitStatus

if TYPE_CHECKING:
    from pathlib import Path


class FileRef(NamedTuple):
    """One journal or entry log: its id or its path."""

    number: int | None
    path: Path | None

    def __str__(self) -> str:
        return str(self.path) if self.number is None else f"{self.number} ({self.number:#x})"


def _file_type(suffix: str, name: str, id_max: int) -> ParsedType:
    """Return the type for an id (decimal, or ``0x…``), a file name (hexadecimal) or a path."""

    def parse(text: str) -> FileRef:
        from pathlib import Path

        if os.sep in text or (text.endswith(suffix) and Path(text).is_file()):
            return FileRef(None, Path(text))
        word = text.lower()
        if re.fullmatch(r"[0-9]{1,40}", word):
            number = int(word)
        elif match := re.fullmatch(rf"0x([0-9a-f]+)|([0-9a-f]+){re.escape(suffix)}", word):
            number = int(match[1] or match[2], 16)
        else:
            raise ValueError(f"{text!r} is not a valid {name}{_hint(word, suffix)}")
        if number > id_max:
            raise ValueError(f"{text!r} is too large for a {name}; the largest is {id_max}")
        return FileRef(number, None)

    return ParsedType(name, parse)


def _hint(word: str, suffix: str) -> str:
    if re.fullmatch(r"[0-9a-f]+", word):
        return f"; hexadecimal is written 0x{word} or {word}{suffix}"
    return f"; try 26, 0x1a, 1a{suffix} or a path"


def _range_or_directory(text: str) -> tuple[int, int | None] | str:
    is_directory = "/" in text or text in {".", ".."}
    return text if is_directory else parse_entry_range(text)


RANGE_OR_DIRECTORY: Final = ParsedType("entry_range", _range_or_directory)
JOURNAL: Final = _file_type(".txn", "journal", 2**63 - 1)
ENTRY_LOG: Final = _file_type(".log", "entry log", 2**31 - 1)

FAILURES: Final = (ExitStatus.FAILED, ExitStatus.NOT_FOUND, ExitStatus.INTERRUPTED)
"""Exit statuses of every command that reads directories."""
