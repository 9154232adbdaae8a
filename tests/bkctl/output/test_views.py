"""Classes of values say how they are shown, each for itself; those of the library are told."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import attrs
import pytest

from bkctl.manual.output_schema import shown_classes
from bkctl.output.view_registry import LIBRARY_VALUES
from bkctl.output.views import NEVER, Column, Kind, declares_view, shown, view_of
from wire.ids import LedgerId

SHOWN = sorted(shown_classes(), key=lambda kind: kind.__qualname__)


@attrs.frozen
class Inner:
    size_bytes: int


@shown(
    "examples",
    Column("name", "Its name."),
    Column("ledger_id", "A ledger."),
    Column("copies", "How many."),
    Column("share", "Which part."),
    Column("whole", "Whether it is whole."),
    Column("key", "Its key."),
    Column("parts", "What it is made of."),
    Column("words", "Words by name."),
    Column("size", "Its size.", "inner.size_bytes", Kind.BYTES),
    Column("twice", "Twice the copies."),
    Column("loud", "Its name, loud.", lambda v: v.name.upper(), rank=NEVER),
)
@attrs.frozen(kw_only=True)
class Example:
    name: str | None = "some"
    ledger_id: LedgerId
    copies: int | None = 3
    share: float = 0.5
    whole: bool = True
    key: bytes | None = None
    parts: tuple[str, ...] = ("a", "b")
    words: Mapping[str, str] = attrs.field(factory=lambda: {"a": "b"})
    inner: Inner = Inner(4096)

    @property
    def twice(self) -> int:
        return 2 * (self.copies or 0)


def test_a_field_holds_an_attribute_a_path_of_them_or_what_a_function_makes() -> None:
    view = view_of(Example)
    assert {field.name: field.get(Example(ledger_id=LedgerId(7))) for field in view.fields} == {
        "name": "some", "ledger_id": 7, "copies": 3, "share": 0.5, "whole": True, "key": None,
        "parts": ["a", "b"], "words": {"a": "b"}, "size": 4096, "twice": 6, "loud": "SOME",
    }  # fmt: skip
    assert (view.name, view.id_field) == ("examples", "name")


def test_a_kind_follows_from_the_annotation() -> None:
    kinds = {field.name: field.kind for field in view_of(Example).fields}
    assert kinds == {
        "name": Kind.TEXT, "ledger_id": Kind.LEDGER_ID, "copies": Kind.COUNT,
        "share": Kind.NUMBER, "whole": Kind.FLAG, "key": Kind.DATA, "parts": Kind.NESTED,
        "words": Kind.NESTED, "size": Kind.BYTES, "twice": Kind.COUNT, "loud": Kind.TEXT,
    }  # fmt: skip


def test_a_column_without_its_attribute_is_found_when_the_class_is_made() -> None:
    with pytest.raises(TypeError, match="Inner has no 'size'"):
        shown("sizes", Column("size", "Its size."))(Inner)


def test_a_class_does_not_inherit_how_it_is_shown() -> None:
    class Below(Example):
        pass

    assert not declares_view(Below)
    with pytest.raises(KeyError):
        view_of(Below)


@pytest.mark.parametrize("kind", SHOWN, ids=lambda kind: kind.__qualname__)
def test_every_view_documents_its_fields_and_has_its_id(kind: type) -> None:
    view = view_of(kind)
    names = [field.name for field in view.fields]
    assert len(set(names)) == len(names)
    assert view.id_field in names
    for field in view.fields:
        assert field.name.islower()
        assert field.doc.endswith(".")


def test_the_list_of_the_librarys_values_is_what_modules_declare() -> None:
    root = Path(__file__).parents[3]
    texts = {path: path.read_text() for path in (root / "bkctl").rglob("*.py")}
    declare = {path for path, text in texts.items() if "\ndeclare_view(\n" in text}
    modules = {".".join(path.relative_to(root).with_suffix("").parts) for path in declare}
    assert modules == set(LIBRARY_VALUES.values())
    for name, module in LIBRARY_VALUES.items():
        text = (root / f"{module.replace('.', '/')}.py").read_text()
        assert f"\ndeclare_view(\n    {name.rpartition('.')[2]}," in text
    assert sum(texts[path].count("\ndeclare_view(\n") for path in declare) == len(LIBRARY_VALUES)
