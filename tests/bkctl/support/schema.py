"""Documents that commands print, held against ``docs/output.schema.json``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

FILE = Path(__file__).parents[3] / "docs" / "output.schema.json"

_OF_ALL = {"schema", "watched_at"}


def check(document: Any) -> Any:
    """Return a document that the schema knows, all its fields included."""
    fits = [name for name in _candidates(document) if _validator(name).is_valid(document)]
    if not fits:
        why = [
            f"{name}: {error.json_path}: {error.message}"
            for name in _candidates(document)
            for error in _validator(name).iter_errors(document)
        ]
        raise AssertionError(f"no schema for {json.dumps(document)[:500]}: {why[:5]}")
    return document


def _candidates(document: Any) -> Iterator[str]:
    """Yield the definitions that have every field of a document, and of the elements of a list."""
    keys = set(document) - _OF_ALL
    for name, one in _schema()["$defs"].items():
        if not keys <= set(one["properties"]):
            continue
        if name.endswith("List"):
            known = set(_schema()["$defs"][name.removesuffix("List")]["properties"])
            if not all(set(element) <= known for key in keys for element in document[key]):
                continue
        yield name


@cache
def _schema() -> Any:
    return json.loads(FILE.read_text(encoding="utf-8"))


@cache
def _validator(name: str) -> Draft202012Validator:
    document = {**_schema(), "$ref": f"#/$defs/{name}"}
    del document["anyOf"]
    return Draft202012Validator(document)
