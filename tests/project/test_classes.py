"""No class does more than a reader can keep in mind: its lines, its methods, what it is made with.

A class over a limit has more than one reason to change: it becomes two to five, each with its own
state, and none of which reaches into another. A declaration of settings is exempt from the limit
of lines by its kind: an attrs class that has fields and few methods is a list, however long.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = ("wire", "bkclient", "bookied", "bkctl", "shell")

LINES_MAX: Final = 300
METHODS_MAX: Final = 25
ARGUMENTS_MAX: Final = 8
DECLARATION_METHODS_MAX: Final = 11


@attrs.frozen
class ClassSize:
    """How large a class is."""

    name: str
    """Its file below the root, and its own name."""
    lines: int
    methods: int
    arguments: int
    """Of its constructor, without ``self``."""
    is_declaration: bool

    def over(self) -> set[str]:
        """Return the limits that it exceeds."""
        is_list = self.is_declaration and self.methods <= DECLARATION_METHODS_MAX
        found = {
            "lines": self.lines > LINES_MAX and not is_list,
            "methods": self.methods > METHODS_MAX,
            "arguments": self.arguments > ARGUMENTS_MAX,
        }
        return {limit for limit, is_over in found.items() if is_over}


def sizes_in(name: str, source: str) -> Iterator[ClassSize]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            yield _size(f"{name} {node.name}", node)


def _size(name: str, node: ast.ClassDef) -> ClassSize:
    functions = [
        one for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert node.end_lineno is not None
    return ClassSize(
        name=name,
        lines=node.end_lineno - node.lineno + 1,
        methods=len({one.name for one in functions}),  # A setter has its property's name.
        arguments=max((_arguments(one) for one in functions if one.name == "__init__"), default=0),
        is_declaration=any("attrs." in ast.unparse(one) for one in node.decorator_list),
    )


def _arguments(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    taken = function.args
    return len(taken.posonlyargs) + len(taken.args) + len(taken.kwonlyargs) - 1


def all_sizes() -> list[ClassSize]:
    return [
        size
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        for size in sizes_in(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))
    ]


def test_no_class_is_over_a_limit() -> None:
    over = [one for one in all_sizes() if one.over()]
    assert not over, f"take apart what has more than one reason to change: {over}"


def test_a_class_is_measured() -> None:
    source = """
class Served:
    def __init__(self, a, /, b, *, c): ...
    @property
    def d(self): ...
    @d.setter
    def d(self, value): ...
"""
    (size,) = sizes_in("x.py", source)
    assert (size.name, size.lines, size.methods, size.arguments) == ("x.py Served", 6, 2, 3)
    assert size.over() == set()


def test_a_long_declaration_is_exempt_and_a_long_class_is_not() -> None:
    fields = "\n".join(f"    f{number}: int = 0" for number in range(LINES_MAX + 1))
    (declared,) = sizes_in("x.py", f"@attrs.frozen\nclass Settings:\n{fields}\n")
    (written,) = sizes_in("x.py", f"class Settings:\n{fields}\n")
    assert (declared.over(), written.over()) == (set(), {"lines"})
