"""Values of machine forms as text: lines of CSV and YAML, and what a terminal may see."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from typing import Any

from wire.printable import printable


def safe(text: str) -> str:
    """Return ``text`` without what a terminal would obey: it may come from anybody."""
    return printable(text, keep="\n")


def text_of(value: Any) -> str:
    """Return what a table shows of a value that has no form of its own for people."""
    if isinstance(value, dict):
        value = [f"{key}={flat(inner)}" for key, inner in value.items()] or "-"
    return safe(flat(value))


def csv_line(cells: Sequence[str]) -> str:
    """Return one line of CSV with its newline."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


def flat(value: Any) -> str:
    """Return a value of a machine form as one text."""
    if isinstance(value, str):
        return value
    if type(value) is int:  # Most cells of long tables; json takes five times as long.
        return str(value)
    if isinstance(value, (list, tuple)) and all(isinstance(element, str) for element in value):
        return " ".join(value)
    return "" if value is None else json.dumps(value)


def yaml(value: Any) -> Iterator[str]:
    """Yield the lines of a value of a machine form as YAML; texts are quoted as in JSON."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            if isinstance(inner, (dict, list, tuple)) and inner:
                yield f"{_yaml_key(key)}:"
                yield from (f"  {line}" for line in yaml(inner))
            else:
                yield f"{_yaml_key(key)}: {_yaml_scalar(inner)}"
    elif isinstance(value, (list, tuple)) and value:
        for element in value:
            lines = list(yaml(element))
            yield from (f"{'- ' if n == 0 else '  '}{line}" for n, line in enumerate(lines))
    else:
        yield _yaml_scalar(value)


def _yaml_key(key: str) -> str:
    return key if key.isidentifier() else json.dumps(key)


def _yaml_scalar(value: Any) -> str:
    return json.dumps(value)
