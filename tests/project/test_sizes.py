"""No number of a peer or a file bounds a loop or an allocation that nobody has looked at.

One add with an entry id of 2**40 once made a bookie count to 2**30. So every ``range``, ``bytes``
or repetition whose length is not a constant stands in ``reviewed_sizes``, with why it may.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

import pytest

from tests.project.reviewed_sizes import REVIEWED

ROOT = Path(__file__).parents[2]
PACKAGES = ("wire", "bkclient", "bookied", "bkctl", "shell")

FUNCTIONS: Final = frozenset(
    {"range", "bytes", "bytearray", "repeat", "urandom", "combinations", "permutations", "product"}
)
METHODS: Final = frozenset({"ljust", "rjust", "center", "zfill", "truncate"})


def is_fixed(node: ast.expr) -> bool:
    """Whether a number is a constant, or what is in memory already."""
    match node:
        case ast.Constant():
            return True
        case ast.Name(id=name) | ast.Attribute(attr=name) if name.lstrip("_").isupper():
            return True
        case ast.Attribute(value=ast.Name(id=name), attr="size"):
            return name.lstrip("_").isupper()  # Of a struct.
        case ast.UnaryOp(operand=operand):
            return is_fixed(operand)
        case ast.BinOp(left=left, right=right):
            return is_fixed(left) and is_fixed(right)
        case ast.Call(func=ast.Name(id="len")):
            return True
        case ast.Call(func=ast.Name(id="min"), args=arguments):
            return any(map(is_fixed, arguments))
        case ast.Call(func=ast.Name(id="max"), args=arguments):
            return all(map(is_fixed, arguments))
        case _:
            return False


def is_repeated(node: ast.expr) -> bool:
    """Whether it is a literal that a multiplication repeats."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str | bytes)
    return isinstance(node, ast.List | ast.Tuple)


class Sizes(ast.NodeVisitor):
    """Finds what a number that is not a constant makes long; by function and expression."""

    def __init__(self) -> None:
        self.found: set[str] = set()
        self._names: list[str] = []

    def _visit_scope(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._names.append(node.name)
        self.generic_visit(node)
        self._names.pop()

    visit_ClassDef = visit_FunctionDef = visit_AsyncFunctionDef = _visit_scope  # noqa: N815

    def visit_Call(self, node: ast.Call) -> None:
        match node.func:
            case ast.Name(id=name) if name in FUNCTIONS:
                self._note_unless_fixed(node, node.args)
            case ast.Attribute(attr=name) if name in FUNCTIONS:
                self._note_unless_fixed(node, node.args)
            case ast.Attribute(attr=name) if name in METHODS:
                self._note_unless_fixed(node, node.args[:1])
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.Mult):
            for one, other in ((node.left, node.right), (node.right, node.left)):
                if is_repeated(one):
                    self._note_unless_fixed(node, [other])
        self.generic_visit(node)

    def _note_unless_fixed(self, node: ast.expr, lengths: list[ast.expr]) -> None:
        if not all(map(is_fixed, lengths)):
            self.found.add(f"{'.'.join(self._names)}: {ast.unparse(node)}")


def sizes_in(text: str) -> set[str]:
    sizes = Sizes()
    sizes.visit(ast.parse(text))
    return sizes.found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("range(10)", set()),
        ("range(0, len(x), STEP)", set()),
        ("bytes(_HEAD.size + 4 * LIMIT)", set()),
        ("range(min(n, N_MAX))", set()),
        ("[0] * len(x)", set()),
        ("range(n)", {": range(n)"}),
        ("def f(n):\n  return b'x' * n", {"f: b'x' * n"}),
        ("class A:\n  def f(self):\n    bytearray(self.n)", {"A.f: bytearray(self.n)"}),
        ("s.ljust(n, b'')", {": s.ljust(n, b'')"}),
        ("n * [None]", {": n * [None]"}),
        ("itertools.repeat(x, n)", {": itertools.repeat(x, n)"}),
    ],
)
def test_sizes_that_are_no_constants_are_found(text: str, found: set[str]) -> None:
    assert sizes_in(text) == found


def test_every_size_that_is_no_constant_was_reviewed() -> None:
    found = {
        size
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if not path.name.endswith("_pb2.py")
        for size in sizes_in(path.read_text())
    }
    assert sorted(found - REVIEWED.keys()) == [], "look at these, and say why they may"
    assert sorted(REVIEWED.keys() - found) == [], "these are gone"
