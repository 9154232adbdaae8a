"""What Java's bookie serves, what ours does not, and pages taken apart."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import attrs

VECTOR = Path(__file__).parents[1] / "vectors" / "java-metrics.txt"
DOCS = Path(__file__).parents[3] / "docs" / "metrics.md"


@attrs.frozen
class Shape:
    """Type and labels of a metric, but for the quantile."""

    kind: str
    labels: frozenset[str] = frozenset()


def java_seen() -> dict[str, dict[str, Shape]]:
    """Return the shapes by section: ``sorted``, and ``db`` with what differs there."""
    found: dict[str, dict[str, Shape]] = {}
    for line in VECTOR.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            section = found.setdefault(line.strip("[]"), {})
        elif line and not line.startswith("#"):
            name, kind, *labels = line.split()
            section[name] = Shape(kind, frozenset(labels))
    return found


def excused() -> list[str]:
    """Return the patterns of what ours has not, as the documentation lists them."""
    text = DOCS.read_text(encoding="utf-8")
    table = text.partition("that bookied does not have")[2].partition("\n## ")[0]
    return re.findall(r"^\| `(\S+)` \|", table, re.MULTILINE)


def is_excused(name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in excused())


def shapes(page: str) -> dict[str, Shape]:
    """Return the shapes of a page; a directory's path in a name becomes DIR."""
    kinds: dict[str, str] = {}
    labels: dict[str, set[str]] = {}
    for name, kind, names in _lines(page):
        if kind:
            kinds[name] = kind
        else:
            base = re.sub(r"_(count|sum)$", "", name)
            base = base if kinds.get(base) == "summary" else name
            if base not in kinds:  # Java's process_cpu_seconds.
                kinds[base] = kinds[base.removesuffix("_total")]
            labels.setdefault(base, set()).update(names - {"quantile"})
    return {
        re.sub(r"_dir_.*_usage$", "_dir_DIR_usage", name): Shape(kinds[name], frozenset(names))
        for name, names in labels.items()
    }


def _lines(page: str) -> Iterator[tuple[str, str, set[str]]]:
    for line in page.splitlines():
        if line.startswith("#"):
            _, _, name, kind = line.split()
            yield name, kind, set()
        else:
            name = re.split(r"[{ ]", line, maxsplit=1)[0]
            yield name, "", set(re.findall(r'[{, ](\w+)="', line))
