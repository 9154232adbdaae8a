"""``--report FILE``: what a command printed, and what ended it, as JSON lines for later."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bkctl.errors import CommandError, NothingFoundError
from bkctl.options import SCHEMA


class KeptReport:
    """A file with a line for each value that is printed, in the form of ``-o jsonl``."""

    def __init__(self, path: str) -> None:
        """Begin the file anew, before anything is done that it is to tell of.

        Raises:
            NothingFoundError: its directory is not there.
            CommandError: it cannot be written.
        """
        try:
            self._file = open(path, "w", encoding="utf-8", buffering=1)  # noqa: PTH123, SIM115
        except FileNotFoundError as error:
            raise NothingFoundError(f"--report {path}: {error.strerror}") from error
        except OSError as error:
            raise CommandError(f"--report {path}: {error.strerror}") from error

    def add(self, fields: Mapping[str, Any]) -> None:
        """Add a line."""
        self._file.write(json.dumps({"schema": SCHEMA, **fields}) + "\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def add_error(path: str, fields: Mapping[str, Any]) -> None:
    """Add what ended a command to the report that it kept."""
    with open(path, "a", encoding="utf-8") as file:  # noqa: PTH123
        file.write(json.dumps(fields) + "\n")
