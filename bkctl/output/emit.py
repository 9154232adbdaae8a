"""Values to a table, JSON, lines, YAML, CSV or ids. A command hands over what it got, no more.

A ``View`` (``views``) says which fields a kind of value has. Machine forms have all fields of every
value, under their own names, with bytes and milliseconds as integers, times in UTC (RFC 3339),
ledger ids as strings, and nothing cut. Tables have what fits.
"""

from __future__ import annotations

import base64
import contextlib
import csv
import functools
import io
import itertools
import json
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TextIO

import attrs

from bkctl.errors import PagerLeftError
from bkctl.ledger_ids import format_ledger_id
from bkctl.options import SCHEMA
from bkctl.output import units
from bkctl.output.canvas import WIDTH_DEFAULT as CANVAS_WIDTH
from bkctl.output.canvas import Canvas, speaks_unicode
from bkctl.output.filters import selection
from bkctl.output.table import Cell, Table, vertical
from bkctl.output.views import WIDE, Field, Kind, View, view_of

if TYPE_CHECKING:
    from bkctl.host import Host
    from bkctl.options import Options
    from bkctl.output.watched import Watch

WATCHED_AT: Final = "watched_at"
"""The field that JSON lines have besides their own when a command is watched."""

_DIM: Final = "\x1b[2m"
_RESET: Final = "\x1b[0m"
_WIDTHS_FROM_ROWS: Final = 200
_WIDTHS_AFTER_S: Final = 0.3
"""A table's widths come from its first rows: this many, or what came in this time."""


class Emitter:
    """Prints values in the form that the options ask for."""

    def __init__(
        self,
        options: Options,
        host: Host,
        watch: Watch | None = None,
        *,
        title: Callable[[], str] = lambda: "",
    ) -> None:
        """``title`` says where values are from: the line above a table on a terminal."""
        self._options, self._host, self._watch = options, host, watch
        self._title = title
        self._form = options.output or "table"
        if watch is not None and self._form == "json":
            self._form = "jsonl"
        self._pager = Pager(host, wanted=not options.no_pager and watch is None)
        self._select = selection(options, self._record)

    def one(self, value: Any) -> None:
        """Print one value."""
        view = view_of(type(value))
        if not self._is_shown(view, value):
            return
        field = view[view.id_field]
        self._host.last[field.name] = flat(self._plain(field, field.get(value)))
        if self._form in {"table", "wide"}:
            self._write_lines(self._object_lines(view, value))
        elif self._form == "json":
            self._write(
                json.dumps({"schema": SCHEMA, **self.machine(view, value)}, indent=2) + "\n"
            )
        elif self._form == "yaml":
            lines = yaml({"schema": SCHEMA, **self.machine(view, value)})
            self._write(self._document + "\n".join(lines) + "\n")
        else:
            self._many(view, [[value]])

    def many(self, values: Iterable[Any], kind: type) -> None:
        """Print values as they come."""
        view = view_of(kind)
        self._many(view, _one_by_one(self._seen(view, self._select(view, values))))

    def stream(self, batches: Iterable[Sequence[Any]], kind: type) -> None:
        """Print values, as many at a time as have come together."""
        if self._options.sort_by:
            self.many(itertools.chain.from_iterable(batches), kind)
            return
        view = view_of(kind)
        self._many(view, (self._seen(view, self._select(view, batch)) for batch in batches))

    def _many(self, view: View, batches: Iterable[Iterable[Any]]) -> None:
        if self._form in {"table", "wide"}:
            if view.speaks and self._form == "table" and not self._options.columns:
                for values in batches:  # As they come: there may be no end of them.
                    self._write_lines(line for value in values for line in self._said(view, value))
            else:
                self._table(view, batches)
            return
        for text in self._texts(view, itertools.chain.from_iterable(batches)):
            self._write(text)

    def draw(self, value: Any, drawing: Callable[[Canvas], Iterable[str]]) -> None:
        """Print the lines of a drawing of ``value`` where a table would be, else the value."""
        if not self._draws:
            self.one(value)
        elif self._is_shown(view_of(type(value)), value):
            self._write_lines(drawing(self.canvas))

    def draw_all(
        self,
        values: Iterable[Any],
        kind: type,
        drawing: Callable[[Sequence[Any], Canvas], Iterable[str]],
    ) -> None:
        """Print the lines of one drawing of all ``values`` where a table would be, else them.

        Some of them, or another order, make no drawing but a table.
        """
        if not self._draws or self._options.filters or self._options.sort_by:
            self.many(values, kind)
            return
        shown = list(self._seen(view_of(kind), values))
        self._write_lines(drawing(shown, self.canvas))

    @property
    def _draws(self) -> bool:
        return self._form == "table" and not self._options.columns

    @property
    def canvas(self) -> Canvas:
        """What a drawing on stdout may use."""
        stdout = self._host.stdout
        return Canvas(
            self._width or CANVAS_WIDTH,
            speaks_unicode(self._host.environ, stdout.encoding),
            self._color,
        )

    def finish(self) -> None:
        """Wait for the pager to be left, if there is one."""
        self._pager.close()

    def machine(self, view: View, value: Any) -> dict[str, Any]:
        """Return the fields of ``value`` as JSON has them."""
        found = ((field, self._plain(field, field.get(value))) for field in view.fields)
        return {f.name: plain for f, plain in found if plain is not None or not f.optional}

    def _record(self, view: View, value: Any) -> dict[str, Any]:
        """Return all fields of a value as machine forms have them."""
        return {field.name: self._plain(field, field.get(value)) for field in view.fields}

    def _is_shown(self, view: View, value: Any) -> bool:
        """Tell whether a single value is to be shown; say so if it is not."""
        if list(self._seen(view, self._select(view, [value]))):
            return True
        self._host.stderr.write("" if self._options.quiet else f"no such {view.name}\n")
        return False

    def _seen(self, view: View, values: Iterable[Any]) -> Iterable[Any]:
        """Let the watch see what is shown."""
        for value in values:
            if self._watch is not None:
                self._watch.see(view, value, self._record(view, value))
            yield value

    # Machine forms ------------------------------------------------------------------------------

    def _texts(self, view: View, values: Iterable[Any]) -> Iterator[str]:
        if self._form == "json":
            return self._json(view, values)
        if self._form == "jsonl":
            return self._json_lines(view, values)
        if self._form == "yaml":
            return self._yaml(view, values)
        if self._form == "csv":
            return self._csv(view, values)
        field = view[view.id_field]
        return (f"{line}\n" for value in values for line in self._id_lines(field, value))

    def _id_lines(self, field: Field, value: Any) -> Sequence[Any]:
        plain = self._plain(field, field.get(value))
        return plain if isinstance(plain, list) else (plain,)

    def _json(self, view: View, values: Iterable[Any]) -> Iterator[str]:
        # The head goes with the first value: what fails before that leaves no half a document.
        head = f'{{"schema": {SCHEMA}, "{view.name}": ['
        separator = f"{head}\n  "
        for value in values:
            yield separator + json.dumps(self.machine(view, value))
            separator = ",\n  "
        yield "\n]}\n" if separator == ",\n  " else f"{head}]}}\n"

    def _json_lines(self, view: View, values: Iterable[Any]) -> Iterator[str]:
        moment = {} if self._watch is None else {WATCHED_AT: self._watch.at}
        for value in values:
            yield json.dumps({"schema": SCHEMA, **self.machine(view, value), **moment}) + "\n"

    def _yaml(self, view: View, values: Iterable[Any]) -> Iterator[str]:
        head = f"{self._document}schema: {SCHEMA}\n{view.name}:"
        empty = True
        for value in values:
            if empty:
                yield f"{head}\n"
            empty = False
            lines = list(yaml(self.machine(view, value)))
            yield "".join(f"{'- ' if n == 0 else '  '}{line}\n" for n, line in enumerate(lines))
        if empty:
            yield f"{head} []\n"

    def _csv(self, view: View, values: Iterable[Any]) -> Iterator[str]:
        fields = self._chosen(view, view.fields)
        headed = self._options.no_headers or (self._watch is not None and self._watch.number > 1)
        head = "" if headed else csv_line([field.name for field in fields])
        for value in values:
            yield head + csv_line([flat(self._plain(field, field.get(value))) for field in fields])
            head = ""
        yield head

    @property
    def _document(self) -> str:
        """What begins one more document of YAML."""
        return "" if self._watch is None or self._watch.number == 1 else "---\n"

    def _plain(self, field: Field, value: Any) -> Any:
        """Return a field's value as machine forms have it."""
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

    # Tables -------------------------------------------------------------------------------------

    def _object_lines(self, view: View, value: Any) -> Iterator[str]:
        if self._form == "table" and not self._options.columns:
            if view.bare:
                return iter((self._text_of(view[view.id_field])(value),))
            if view.speaks:
                return iter(self._said(view, value))
        fields = self._chosen(view, view.fields)
        cells = [(field.title, self._marked(view, value, field)) for field in fields]
        width = self._width if self._form == "table" else None
        return itertools.chain(self._head(), vertical(cells, color=self._color, width=width))

    def _said(self, view: View, value: Any) -> Iterable[str]:
        """Return the lines of a value whose view says it in sentences."""
        if view.lines is not None:
            return view.lines(value, self._width, self._color)
        assert view.sentence is not None
        return (view.sentence(value),)

    def _head(self) -> Iterator[str]:
        """Yield what stands above a table: pasted elsewhere, it says where that was."""
        if self._host.stdout.isatty() and self._watch is None and not self._options.no_headers:
            title = self._title()
            if title:
                yield f"{_DIM}{title}{_RESET}" if self._color else title

    def _table(self, view: View, batches: Iterable[Iterable[Any]]) -> None:
        rank_max = WIDE if self._form == "wide" else WIDE - 1
        fields = self._chosen(view, [field for field in view.fields if field.rank <= rank_max])
        table = Table(
            [(field.title, field.rank, field.kind in _RIGHT) for field in fields],
            width=self._width if self._form == "table" and not self._options.columns else None,
            headers=not self._options.no_headers,
            color=self._color,
        )
        row_of = self._row_of(view, fields)
        for values in in_batches(batches, _WIDTHS_FROM_ROWS, _WIDTHS_AFTER_S):
            if not table.started:
                self._write_lines(self._head())
            self._write_lines(table.lines(list(map(row_of, values))))
        if not table.started:
            self._host.stderr.write("" if self._options.quiet else f"no {view.name}\n")
        elif table.hidden and not self._options.quiet and not self._pager.started:
            hidden = ", ".join(name.lower() for name in table.hidden)
            self._host.stderr.write(f"(no space for: {hidden}; -o wide shows all)\n")

    def _row_of(self, view: View, fields: Sequence[Field]) -> Callable[[Any], Sequence[Cell | str]]:
        """Return what makes a table's row from a value."""
        if self._watch is None and not self._color:
            texts = list(map(self._text_of, fields))
            return lambda value: [text(value) for text in texts]
        return lambda value: [self._marked(view, value, field) for field in fields]

    def _text_of(self, field: Field) -> Callable[[Any], str]:
        """Return what makes a field's text in a table from a value."""
        get, human = field.get, self._human_of(field)
        own = None if self._options.exact else field.cell
        if own is not None:
            return lambda value: "-" if get(value) is None else safe(own(value))

        def text(value: Any) -> str:
            found = get(value)
            return "-" if found is None else human(found)

        return text

    def _marked(self, view: View, value: Any, field: Field) -> Cell:
        """Return a cell, marked where it is not as it was in the round before."""
        cell = Cell(self._text_of(field)(value), field.kind is Kind.STATE)
        if self._watch is None or not self._host.stdout.isatty():
            return cell
        key = (view.name, flat(view[view.id_field].get(value)), field.name)
        if not self._watch.is_new(key, cell.text):
            return cell
        text = cell.text if self._color else f"{cell.text}*"
        return attrs.evolve(cell, text=text, changed=True)

    def _human_of(self, field: Field) -> Callable[[Any], str]:
        """Return what makes a text for people from what a field holds."""
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
            return lambda found: safe(flat(self._plain(field, found)))
        return text_of

    def _chosen(self, view: View, fields: Sequence[Field]) -> Sequence[Field]:
        """Return the fields of ``--columns`` in its order, else ``fields``."""
        if not self._options.columns:
            return fields
        chosen = []
        for word in self._options.columns.split(","):
            field = view.named(word)
            if field is None:
                raise view.no_field("--columns", word.strip())
            chosen.append(field)
        return chosen

    @property
    def _width(self) -> int | None:
        """The width that a table must fit: the terminal's, or none in a pipe."""
        return shutil.get_terminal_size().columns if self._host.stdout.isatty() else None

    @property
    def _color(self) -> bool:
        return wants_color(self._options, self._host, self._host.stdout)

    # Out ----------------------------------------------------------------------------------------

    def _write_lines(self, lines: Iterable[str]) -> None:
        self._pager.write_lines(lines)
        self._pager.flush()

    def _write(self, text: str) -> None:
        self._host.stdout.write(text)


class Pager:
    """Stdout, through a pager from the moment on that a terminal's screen is full."""

    def __init__(self, host: Host, *, wanted: bool) -> None:
        self._host = host
        self._room = 0
        self._process: subprocess.Popen[str] | None = None
        self._command = _pager_command(host) if wanted and _is_screen(host) else ""
        self._held: list[str] = []
        if self._command:
            self._room = shutil.get_terminal_size().lines - 1

    @property
    def started(self) -> bool:
        return self._process is not None

    def write_lines(self, lines: Iterable[str]) -> None:
        if not self._command:
            self._host.stdout.write("".join(f"{line}\n" for line in lines))
            return
        for line in lines:
            self._write(f"{line}\n")

    def _write(self, text: str) -> None:
        if self._process is not None:
            self._feed(text)
        else:
            self._held.append(text)
            if len(self._held) > self._room:
                self._start()

    def flush(self) -> None:
        if not self._command:
            self._host.stdout.flush()

    def close(self) -> None:
        if self._process is None:
            self._host.stdout.writelines(self._held)
            self._held = []
            return
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # It was left before it had read everything.
            self._process.stdin.close()
        self._process.wait()

    def _start(self) -> None:
        environ = {"LESS": "FRX", **self._host.environ}
        self._process = subprocess.Popen(
            shlex.split(self._command), stdin=subprocess.PIPE, text=True, env=environ
        )
        held, self._held = self._held, []
        self._feed("".join(held))

    def _feed(self, text: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(text)
        except BrokenPipeError as error:
            raise PagerLeftError from error


def _is_screen(host: Host) -> bool:
    return host.stdout.isatty() and host.stdin.isatty() and host.environ.get("TERM", "") != "dumb"


def _pager_command(host: Host) -> str:
    for name in ("BKCTL_PAGER", "PAGER"):
        if name in host.environ:
            return host.environ[name]
    return "less" if shutil.which("less") else ""


_RIGHT: Final = frozenset({Kind.COUNT, Kind.NUMBER, Kind.BYTES, Kind.SECONDS})


def wants_color(options: Options, host: Host, stream: TextIO) -> bool:
    """Tell whether escape codes belong on ``stream``."""
    if options.color != "auto":
        return options.color == "always"
    if host.environ.get("NO_COLOR") or host.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def _one_by_one(values: Iterable[Any]) -> Iterator[Sequence[Any]]:
    return ([value] for value in values)


def in_batches(
    batches: Iterable[Iterable[Any]], size: int, first_within_s: float
) -> Iterator[list[Any]]:
    """Yield the first values together (``size``, or what comes in time), then as they come."""
    deadline_s = time.monotonic() + first_within_s
    first: list[Any] | None = []
    for batch in batches:
        if first is None:
            yield list(batch)
            continue
        first += batch
        if len(first) >= size or (first and time.monotonic() > deadline_s):
            yield first
            first = None
    if first:
        yield first


def _yes_or_no(found: object) -> str:
    return "yes" if found else "no"


def safe(text: str) -> str:
    """Return ``text`` without what a terminal would obey: it may come from anybody."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else f"\\x{ord(c):02x}" for c in text)


def text_of(value: Any) -> str:
    """Return what a table shows of a value that has no form of its own for people."""
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
