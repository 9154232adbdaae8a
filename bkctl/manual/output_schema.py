"""The JSON Schema of the commands' output, made from the views.

``bkctl.manual.generate`` writes docs/output.schema.json. Fields are only ever added: a program may
rely on each of its fields.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import bkctl
from bkctl.exit_status import ExitStatus
from bkctl.global_options import SCHEMA
from bkctl.output.forms.machine import WATCHED_AT
from bkctl.output.view_registry import LIBRARY_VALUES
from bkctl.output.views import Field, Kind, View, declares_view, view_of

_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
_TIME: Final = {"type": "string", "format": "date-time"}
_TYPES: Final[Mapping[Kind, dict[str, Any]]] = MappingProxyType(
    {
        Kind.TEXT: {"type": "string"},
        Kind.COUNT: {"type": "integer"},
        Kind.NUMBER: {"type": "number"},
        Kind.BYTES: {"type": "integer"},
        Kind.TIME_MS: _TIME,
        Kind.SECONDS: {"type": "number"},
        Kind.FLAG: {"type": "boolean"},
        Kind.LEDGER_ID: {"type": "string"},
        Kind.STATE: {"type": "string"},
        Kind.DATA: {"type": "string", "contentEncoding": "base64"},
        Kind.NESTED: {"type": ["array", "object"]},
        Kind.ANY: {"type": ["array", "boolean", "number", "object", "string"]},
    }
)
_LINES_TO: Final = 4
"""The depth at which each field of each kind of value has its own line."""

_VERSION: Final = {"const": SCHEMA, "description": "The version of this schema."}
_UNITS: Final = MappingProxyType({Kind.BYTES: " In bytes.", Kind.SECONDS: " In seconds."})


def views() -> dict[str, View]:
    """Return every view by the name of its class."""
    found: dict[str, View] = {}
    for kind in shown_classes():
        assert kind.__name__ not in found, f"two kinds of {kind.__name__}"
        found[kind.__name__] = view_of(kind)
    return dict(sorted(found.items()))


def shown_classes() -> Iterator[type]:
    """Yield each class with a view, in ``bkctl`` or in another package."""
    for name in LIBRARY_VALUES:
        module, _, class_name = name.rpartition(".")
        yield getattr(importlib.import_module(module), class_name)
    for one in pkgutil.walk_packages(bkctl.__path__, "bkctl."):
        if one.name == "bkctl.__main__":
            continue
        for kind in vars(importlib.import_module(one.name)).values():
            if isinstance(kind, type) and kind.__module__ == one.name and declares_view(kind):
                yield kind


def schema() -> dict[str, Any]:
    """Return the schema of every document that a command prints, errors included."""
    known = views()
    definitions: dict[str, Any] = {"Error": _error()}
    for name, view in known.items():
        definitions[name] = _object(view)
        definitions[f"{name}List"] = _list(name, view)
    return {
        "$schema": _DRAFT,
        "title": "What bkctl prints with -o json, and a line of -o jsonl",
        "description": "One value is its object; values are a list by the name of what they are. "
        "A field is null where it is not known, and may be left out where it is not required. "
        "YAML has the same fields; CSV has them as columns.",
        "anyOf": [{"$ref": f"#/$defs/{name}"} for name in definitions],
        "$defs": definitions,
    }


def schema_text() -> str:
    """Return the text of the schema's file."""
    return "".join(_lines(schema(), _LINES_TO)) + "\n"


def _lines(value: Any, depth: int, margin: str = "\n") -> Iterator[str]:
    """Yield JSON with objects broken into lines down to a depth, and compact below."""
    if depth == 0 or not isinstance(value, dict) or not value:
        yield json.dumps(value, ensure_ascii=False)
        return
    inner = margin + "  "
    for number, (key, one) in enumerate(value.items()):
        yield f"{',' if number else '{'}{inner}{json.dumps(key)}: "
        yield from _lines(one, depth - 1, inner)
    yield margin + "}"


def _object(view: View) -> dict[str, Any]:
    return {
        "type": "object",
        "description": f"One of {view.name}.",
        "properties": {
            "schema": _VERSION,
            **{field.name: _field(field) for field in view.fields},
            WATCHED_AT: {**_TIME, "description": "With --watch: when this round began."},
        },
        "required": [field.name for field in view.fields if not field.optional],
    }


def _list(name: str, view: View) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "schema": _VERSION,
            view.name: {"type": "array", "items": {"$ref": f"#/$defs/{name}"}},
        },
        "required": ["schema", view.name],
    }


def _field(field: Field) -> dict[str, Any]:
    found = dict(_TYPES[field.kind])
    types = found["type"] if isinstance(found["type"], list) else [found["type"]]
    return {
        **found,
        "type": [*types, "null"],
        "description": field.doc + _UNITS.get(field.kind, ""),
    }


def _error() -> dict[str, Any]:
    text = {"type": "string"}
    return {
        "type": "object",
        "description": "On stderr, where a command failed: `bkctl explain NAME` says more.",
        "properties": {
            "schema": _VERSION,
            "error": {**text, "description": "Description of the error."},
            "name": {
                **text,
                "pattern": "^BK(-[A-Z0-9]+)+$",
                "description": "Name of the error; no release changes a name.",
            },
            "code": {"enum": sorted(map(int, ExitStatus)), "description": "The exit status."},
            "object": {
                "type": ["string", "null"],
                "description": "The object of the error, such as a ledger or a bookie.",
            },
            "hint": {"type": ["string", "null"], "description": "The next step to try."},
        },
        "required": ["schema", "error", "name", "code", "object", "hint"],
    }
