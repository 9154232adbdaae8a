"""Files and directories as the commands take them: by id, by name or by path."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from bkctl.cli.parameter_types import EntryRangeType
from bkctl.exit_status import ExitStatus

if TYPE_CHECKING:
    from pathlib import Path

    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType


class FileRef(NamedTuple):
    """One journal or entry log: its id, or the path of the file itself."""

    number: int | None
    path: Path | None

    def __str__(self) -> str:
        return str(self.path) if self.number is None else f"{self.number} ({self.number:#x})"


class FileType(_ParamType):
    """An id (decimal, or ``0x…``), a file's name (hexadecimal) or a path."""

    def __init__(self, suffix: str, name: str, id_max: int) -> None:
        self.name, self._suffix, self._id_max = name, suffix, id_max

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, FileRef):
            return value
        from pathlib import Path

        if os.sep in value or (value.endswith(self._suffix) and Path(value).is_file()):
            return FileRef(None, Path(value))
        word = value.lower()
        if re.fullmatch(r"[0-9]{1,40}", word):
            number = int(word)
        elif match := re.fullmatch(rf"0x([0-9a-f]+)|([0-9a-f]+){re.escape(self._suffix)}", word):
            number = int(match[1] or match[2], 16)
        else:
            self.fail(f"{value!r} is not a valid {self.name}{self._hint(word)}", param, ctx)
        if number > self._id_max:
            self.fail(
                f"{value!r} is too large for a {self.name}; the largest is {self._id_max}",
                param,
                ctx,
            )
        return FileRef(number, None)

    def _hint(self, word: str) -> str:
        if re.fullmatch(r"[0-9a-f]+", word):
            return f"; hexadecimal is written 0x{word} or {word}{self._suffix}"
        return f"; try 26, 0x1a, 1a{self._suffix} or a path"


class RangeOrDirectory(EntryRangeType):
    """A range of entries, or a directory of the bookie."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and ("/" in value or value in {".", ".."}):
            return value
        return super().convert(value, param, ctx)


RANGE_OR_DIRECTORY: Final = RangeOrDirectory()
JOURNAL: Final = FileType(".txn", "journal", 2**63 - 1)
ENTRY_LOG: Final = FileType(".log", "entry log", 2**31 - 1)

FAILURES: Final = (ExitStatus.FAILED, ExitStatus.NOT_FOUND, ExitStatus.INTERRUPTED)
"""What every command that reads directories can exit with."""
