"""Rows and lines of one command's values for people: a table, or one field on each line."""

from __future__ import annotations

import functools
import itertools
import shutil
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, TextIO

import attrs

from bkctl.ledger_ids import format_ledger_id
from bkctl.output import units
from bkctl.output.forms.table import Cell, Table, vertical
from bkctl.output.forms.value_text import flat, safe, text_of
from bkctl.output.views import WIDE, Field, Kind, View, chosen_fields

if TYPE_CHECKING:
    from bkctl.environment_and_streams import Host
    from bkctl.global_options import Options
    from bkctl.output.forms.machine import MachineForms
    from bkctl.output.watch_rounds import WatchRounds

_RIGHT: Final = frozenset({Kind.COUNT, Kind.NUMBER, Kind.BYTES, Kind.SECONDS})


@attrs.define(eq=False)
class TableForm:
    """The rows and lines of one command's values.

    ``form`` is table or wide; ``machine`` returns the value of fields without a text for people.
    """

    _form: str
    _options: Options
    _host: Host
    _watch: WatchRounds | None
    _machine: MachineForms

    @property
    def width(self) -> int | None:
        """The width that a table must fit: the terminal's, or None in a pipe."""
        return shutil.get_terminal_size().columns if self._host.stdout.isatty() else None

    @property
    def color(self) -> bool:
        """True if stdout gets colours."""
        return wants_color(self._options, self._host, self._host.stdout)

    def table_of(self, view: View) -> tuple[Table, Callable[[Any], Sequence[Cell | str]]]:
        """Return an empty table for values of a view, and the function that makes its rows."""
        rank_max = WIDE if self._form == "wide" else WIDE - 1
        shown = [field for field in view.fields if field.rank <= rank_max]
        fields = chosen_fields(self._options, view, shown)
        may_give_way = self._form == "table" and not self._options.columns
        table = Table(
            [(f.title, f.rank if may_give_way else 0, f.kind in _RIGHT) for f in fields],
            width=self.width,
            headers=not self._options.no_headers,
            records=True,
            color=self.color,
            if_any={n for n, f in enumerate(fields) if f.if_any} if may_give_way else (),
        )
        return table, self.row_of(view, fields)

    def value_lines(self, view: View, value: Any, head: Iterable[str]) -> Iterable[str]:
        """Return the lines of one value: its view's own lines, or its fields below ``head``."""
        if self._form == "table" and not self._options.columns:
            if view.bare:
                return (self._text_of(view[view.id_field])(value),)
            if view.speaks:
                return self.said(view, value)
        fields = chosen_fields(self._options, view, view.fields)
        cells = [
            (field, self._marked(view, value, field))
            for field in fields
            if self._options.columns or not (field.optional and field.get(value) is None)
        ]
        if self._form == "table" and not self._options.columns:
            # Fields with a rank are left out if they are empty.
            cells = [(field, cell) for field, cell in cells if not field.rank or cell.text != "-"]
        titled = [(field.title, cell) for field, cell in cells]
        width = self.width if self._form == "table" else None
        return itertools.chain(head, vertical(titled, color=self.color, width=width))

    def said(self, view: View, value: Any) -> Iterable[str]:
        """Return the lines of a value whose view has sentences.

        A pipe gets the unchanged sentence: it may be text for a file.
        """
        if view.lines is not None:
            return view.lines(value, self.width, self.color)
        assert view.sentence is not None
        sentence = view.sentence(value)
        if view.dated:
            sentence = f"{self._text_of(view['time'])(value)}  {sentence}"
        return (safe(sentence) if self._host.stdout.isatty() else sentence,)

    def row_of(self, view: View, fields: Sequence[Field]) -> Callable[[Any], Sequence[Cell | str]]:
        """Return a function that makes a table's row from a value."""
        if self._watch is None and not self.color:
            texts = list(map(self._text_of, fields))
            return lambda value: [text(value) for text in texts]
        return lambda value: [self._marked(view, value, field) for field in fields]

    def _text_of(self, field: Field) -> Callable[[Any], str]:
        """Return a function that makes a field's text in a table from a value."""
        get, human = field.get, self._human_of(field)
        own = None if self._options.exact else field.cell
        if own is not None and field.cell_of_none:
            return lambda value: safe(own(value))
        if own is not None:
            return lambda value: "-" if get(value) is None else safe(own(value))

        def text(value: Any) -> str:
            found = get(value)
            return "-" if found is None else human(found)

        return text

    def _marked(self, view: View, value: Any, field: Field) -> Cell:
        """Return a cell, marked if it has changed since the last round."""
        cell = Cell(self._text_of(field)(value), field.kind is Kind.STATE)
        if self._watch is None or not self._host.stdout.isatty():
            return cell
        key = (view.name, flat(view[view.id_field].get(value)), field.name)
        if not self._watch.is_new(key, cell.text):
            return cell
        text = cell.text if self.color else f"{cell.text}*"
        return attrs.evolve(cell, text=text, changed=True)

    def _human_of(self, field: Field) -> Callable[[Any], str]:
        """Return a function that makes a text for people from the content of a field."""
        options = self._options
        if field.kind is Kind.BYTES and not options.exact:
            return units.human_bytes
        if field.kind is Kind.TIME_MS:
            return functools.partial(units.human_time, utc=options.utc)
        if field.kind is Kind.SECONDS and not options.exact:
            return units.human_duration
        if field.kind is Kind.FLAG:
            return _yes_or_no
        if field.kind in {Kind.COUNT, Kind.NUMBER}:
            return flat
        if field.kind is Kind.LEDGER_ID:
            return functools.partial(format_ledger_id, form=options.ledger_id_format)
        if field.kind in {Kind.SECONDS, Kind.DATA}:
            return lambda found: safe(flat(self._machine.plain(field, found)))
        return text_of


def wants_color(options: Options, host: Host, stream: TextIO) -> bool:
    """Return whether ``stream`` gets escape codes."""
    if options.color != "auto":
        return options.color == "always"
    if host.environ.get("NO_COLOR") or host.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def _yes_or_no(found: object) -> str:
    return "yes" if found else "no"
