"""Values to a table, JSON, lines, YAML, CSV or ids. A command hands over what it got, no more.

A ``View`` (``views``) says which fields a kind of value has. Machine forms have all fields of every
value, under their own names, with bytes and milliseconds as integers, times in UTC (RFC 3339),
ledger ids as strings, and nothing cut. TableForm have what fits.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from bkctl.output.charts import WIDTH_DEFAULT as CANVAS_WIDTH
from bkctl.output.charts import Canvas, supports_unicode
from bkctl.output.filters import selection
from bkctl.output.forms.machine import MachineForms
from bkctl.output.forms.pager import Pager
from bkctl.output.forms.sentence import fitted
from bkctl.output.forms.table_rows import TableForm
from bkctl.output.forms.value_text import flat, safe
from bkctl.output.views import View, field, shown, view_of

if TYPE_CHECKING:
    from bkctl.environment_and_streams import Host
    from bkctl.global_options import Options
    from bkctl.output.watch_rounds import WatchRounds


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
        watch: WatchRounds | None = None,
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
        self._machine = MachineForms(self._form, options, watch)
        self._tables = TableForm(self._form, options, host, watch, self._machine)
        self._select = selection(options, self._machine.record)
        self._below: list[str] = []
        """What is said of tables once they are on the screen."""
        self.shown = 0
        """Values printed or counted so far: those that the filters leave."""

    def one(self, value: Any) -> None:
        """Print one value."""
        view = view_of(type(value))
        if self._is_shown(view, value):
            self._one(view, value)

    def _one(self, view: View, value: Any) -> None:
        self._see(view, value)
        field = view[view.id_field]
        if (own_id := field.get(value)) is not None:
            self._host.last[field.name] = flat(self._machine.plain(field, own_id))
        if self._form in {"table", "wide"}:
            self._pager.write_lines(self._tables.value_lines(view, value, self._head()))
            return
        document = self._machine.one(view, value)
        if document is None:
            self._many(view, [[value]])
        else:
            self._write(document)

    def many(self, values: Iterable[Any], kind: type) -> None:
        """Print values as they come."""
        view = view_of(kind)
        self._many(view, _one_by_one(self._seen(view, self._select(view, values))))

    def stream(
        self, batches: Iterable[Sequence[Any]], kind: type, *, limit: int | None = None
    ) -> None:
        """Print values, as many at a time as have come together; the first ``limit`` picked."""
        view = view_of(kind)
        if self._options.sort_by or limit is not None:
            picked = self._select(view, itertools.chain.from_iterable(batches))
            self._many(view, _one_by_one(self._seen(view, itertools.islice(picked, limit))))
            return
        self._many(view, (self._seen(view, self._select(view, batch)) for batch in batches))

    def count(
        self,
        values: Iterable[Any],
        kind: type,
        result: Callable[[Iterable[Any]], Any],
        *,
        limit: int | None = None,
    ) -> None:
        """Print the ``result`` of the values that the options' filters leave, at most ``limit``.

        Its ``count`` is their number.
        """
        counted = result(itertools.islice(self._select(view_of(kind), values), limit))
        self._one(view_of(type(counted)), counted)
        self.shown = counted.count

    def _many(self, view: View, batches: Iterable[Iterable[Any]]) -> None:
        if self._form in {"table", "wide"}:
            if view.speaks and self._form == "table" and not self._options.columns:
                for values in batches:  # As they come: there may be no end of them.
                    self._pager.write_lines(
                        line for value in values for line in self._tables.said(view, value)
                    )
            else:
                self._table(view, batches)
            return
        for text in self._machine.texts(view, itertools.chain.from_iterable(batches)):
            self._write(text)

    def draw(self, value: Any, drawing: Callable[[Canvas], Iterable[str]]) -> None:
        """Print the lines of a drawing of ``value`` where a table would be, else the value."""
        if not self._draws:
            self.one(value)
        elif self._is_shown(view_of(type(value)), value):
            self._see(view_of(type(value)), value)
            self._pager.write_lines(drawing(self.canvas))

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
        self._pager.write_lines(drawing(shown, self.canvas))

    @property
    def _draws(self) -> bool:
        return self._form == "table" and not self._options.columns

    @property
    def canvas(self) -> Canvas:
        """What a drawing on stdout may use."""
        stdout = self._host.stdout
        return Canvas(
            self._tables.width or CANVAS_WIDTH,
            supports_unicode(self._host.environ, stdout.encoding),
            self._tables.color,
            self._options.utc,
        )

    def finish(self) -> None:
        """Wait for the pager to be left, if there is one, and say what is missing in the tables."""
        self._pager.close()
        for note in self._below:
            self._host.stderr.write(f"{fitted(note, self._host.stderr)}\n")
        self._below.clear()

    def _is_shown(self, view: View, value: Any) -> bool:
        """Tell whether a single value is to be shown; say so if it is not."""
        if list(self._select(view, [value])):
            return True
        self._host.stderr.write("" if self._options.quiet else f"no {view.name} match --filter\n")
        return False

    def _seen(self, view: View, values: Iterable[Any]) -> Iterable[Any]:
        """Let the watch see what is shown, and count it."""
        for value in values:
            self._see(view, value)
            yield value

    def _see(self, view: View, value: Any) -> None:
        self.shown += 1
        if self._watch is not None:
            self._watch.see(view, value, self._machine.record(view, value))

    def _head(self) -> Iterator[str]:
        """Yield what stands above a table: pasted elsewhere, it says where that was."""
        if self._host.stdout.isatty() and self._watch is None and not self._options.no_headers:
            title = self._title()
            if title:
                for line in fitted(title, self._host.stdout).split("\n"):
                    yield f"{_DIM}{line}{_RESET}" if self._tables.color else line

    def _table(self, view: View, batches: Iterable[Iterable[Any]]) -> None:
        table, row_of = self._tables.table_of(view)
        for values in _in_batches(batches, self._host.elapsed_s):
            if not table.started:
                self._pager.write_lines(self._head())
            self._pager.write_lines(table.lines(list(map(row_of, values))))
        if not table.started:
            self._host.stderr.write("" if self._options.quiet else f"{view.nothing}\n")
        elif table.hidden and not self._options.quiet and not self._pager.started:
            hidden = ", ".join(name.lower() for name in table.hidden)
            self._below.append(f"(no space for: {hidden}; -o wide shows all, --columns some)")

    # Out ----------------------------------------------------------------------------------------

    def _write(self, text: str) -> None:
        stdout = self._host.stdout
        stdout.write(safe(text) if stdout.isatty() else text)


def _one_by_one(values: Iterable[Any]) -> Iterator[Sequence[Any]]:
    return ([value] for value in values)


def _in_batches(
    batches: Iterable[Iterable[Any]], now_s: Callable[[], float]
) -> Iterator[list[Any]]:
    """Yield the first values together, as many as come in time, then as they come."""
    deadline_s = now_s() + _WIDTHS_AFTER_S
    first: list[Any] | None = []
    for batch in batches:
        if first is None:
            yield list(batch)
            continue
        first += batch
        if len(first) >= _WIDTHS_FROM_ROWS or (first and now_s() > deadline_s):
            yield first
            first = None
    if first:
        yield first


@shown(
    "plans",
    sentence=lambda v: "\n".join(f"would {step}" for step in v.steps or ("change nothing",)),
)
class Plan:
    """What a dry run would have done."""

    steps: tuple[str, ...] = field("The steps, in order.", name="would")
