"""Machine forms: JSON, JSON lines, YAML, CSV and ids.

All fields of every value, or those of a typed ``--columns``, under their own names, with bytes and
milliseconds as integers, times in UTC (RFC 3339), ledger ids as strings, and nothing cut.
"""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from bkctl.global_options import SCHEMA, Options
from bkctl.ledger_ids import format_ledger_id
from bkctl.output import units
from bkctl.output.forms.value_text import flat
from bkctl.output.views import Field, Kind, View, chosen_fields

if TYPE_CHECKING:
    from bkctl.output.watch_rounds import WatchRounds

WATCHED_AT: Final = "watched_at"
"""The extra field of JSON lines when a command is watched."""


class MachineForms:
    """The machine form of one command's values."""

    def __init__(self, form: str, options: Options, watch: WatchRounds | None) -> None:
        """``form`` is json, jsonl, yaml, csv or id."""
        self.form, self._options, self._watch = form, options, watch

    def one(self, view: View, value: Any) -> str | None:
        """Return the document of a single value; None if the form has no such document."""
        if self.form == "json":
            return json.dumps({"schema": SCHEMA, **self.fields(view, value)}, indent=2) + "\n"
        if self.form == "yaml":
            lines = _yaml({"schema": SCHEMA, **self.fields(view, value)})
            return self.document_begin + "\n".join(lines) + "\n"
        return None

    def fields(self, view: View, value: Any) -> dict[str, Any]:
        """Return the fields of ``value`` for JSON."""
        is_chosen = self._options.is_typed("columns")
        fields = chosen_fields(self._options, view, ()) if is_chosen else view.fields
        found = ((field, self.plain(field, field.get(value))) for field in fields)
        return {
            f.name: plain for f, plain in found if is_chosen or plain is not None or not f.optional
        }

    def record(self, view: View, value: Any) -> dict[str, Any]:
        """Return all fields of a value for machine forms."""
        return {field.name: self.plain(field, field.get(value)) for field in view.fields}

    def texts(self, view: View, values: Iterable[Any]) -> Iterator[str]:
        """Yield the parts of a document of values of one view, in this form."""
        if self.form == "json":
            return self._json(view, values)
        if self.form == "jsonl":
            return self._json_lines(view, values)
        if self.form == "yaml":
            return self._yaml(view, values)
        if self.form == "csv":
            return self._csv(view, values)
        field = view[view.id_field]
        return (f"{line}\n" for value in values for line in self._id_lines(field, value))

    def _id_lines(self, field: Field, value: Any) -> Sequence[Any]:
        plain = self.plain(field, field.get(value))
        if plain is None:
            return ()
        return plain if isinstance(plain, list) else (plain,)

    def _json(self, view: View, values: Iterable[Any]) -> Iterator[str]:
        # The head is printed with the first value: an earlier failure leaves no partial document.
        head = f'{{"schema": {SCHEMA}, "{view.name}": ['
        separator = f"{head}\n  "
        for value in values:
            yield separator + json.dumps(self.fields(view, value))
            separator = ",\n  "
        yield "\n]}\n" if separator == ",\n  " else f"{head}]}}\n"

    def _json_lines(self, view: View, values: Iterable[Any]) -> Iterator[str]:
        moment = {} if self._watch is None else {WATCHED_AT: self._watch.at}
        for value in values:
            yield json.dumps({"schema": SCHEMA, **self.fields(view, value), **moment}) + "\n"

    def _yaml(self, view: View, values: Iterable[Any]) -> Iterator[str]:
        head = f"{self.document_begin}schema: {SCHEMA}\n{view.name}:"
        empty = True
        for value in values:
            if empty:
                yield f"{head}\n"
            empty = False
            lines = list(_yaml(self.fields(view, value)))
            yield "".join(f"{'- ' if n == 0 else '  '}{line}\n" for n, line in enumerate(lines))
        if empty:
            yield f"{head} []\n"

    def _csv(self, view: View, values: Iterable[Any]) -> Iterator[str]:
        fields = chosen_fields(self._options, view, view.fields)
        headed = self._options.no_headers or (self._watch is not None and self._watch.number > 1)
        head = "" if headed else _csv_line([field.name for field in fields])
        for value in values:
            yield head + _csv_line([flat(self.plain(field, field.get(value))) for field in fields])
            head = ""
        yield head

    @property
    def document_begin(self) -> str:
        """The separator before one more document of YAML."""
        return "" if self._watch is None or self._watch.number == 1 else "---\n"

    def plain(self, field: Field, value: Any) -> Any:
        """Return a field's value for machine forms."""
        if value is None:
            return None
        if field.kind is Kind.LEDGER_ID:
            return format_ledger_id(value, self._options.ledger_id_format)
        if field.kind is Kind.TIME_MS:
            return units.rfc3339(value)
        if field.kind is Kind.SECONDS:
            return round(value, 6)
        if field.kind is Kind.DATA:
            return base64.b64encode(value).decode()
        return value


def _csv_line(cells: Sequence[str]) -> str:
    """Return one line of CSV with its newline."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


def _yaml(value: Any) -> Iterator[str]:
    """Yield the lines of a value of a machine form as YAML; texts are quoted as in JSON."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            if isinstance(inner, (dict, list, tuple)) and inner:
                yield f"{_yaml_key(key)}:"
                yield from (f"  {line}" for line in _yaml(inner))
            else:
                yield f"{_yaml_key(key)}: {_yaml_scalar(inner)}"
    elif isinstance(value, (list, tuple)) and value:
        for element in value:
            lines = list(_yaml(element))
            yield from (f"{'- ' if n == 0 else '  '}{line}" for n, line in enumerate(lines))
    else:
        yield _yaml_scalar(value)


def _yaml_key(key: str) -> str:
    return key if key.isidentifier() else json.dumps(key)


def _yaml_scalar(value: Any) -> str:
    return json.dumps(value)
