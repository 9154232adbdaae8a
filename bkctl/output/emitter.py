"""Output of values as a table, JSON, JSON lines, YAML, CSV or ids.

A command only passes its values.

A ``View`` (``views``) declares the fields of a kind of value. ``MachineForms`` has all fields,
``TableForm`` the fields that fit.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

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


T = TypeVar("T")

_DIM: Final = "\x1b[2m"
_RESET: Final = "\x1b[0m"
_WIDTHS_FROM_ROWS: Final = 200
_WIDTHS_AFTER_S: Final = 0.3
"""A table's widths are set by its first rows: this many, or the rows that arrive in this time."""


class Emitter:
    """The output of values in the form that the options request."""

    def __init__(
        self,
        options: Options,
        host: Host,
        watch: WatchRounds | None = None,
        *,
        title: Callable[[], str] = lambda: "",
    ) -> None:
        """``title`` returns the source of the values: the line above a table on a terminal."""
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
        """Notes about tables, printed below them."""
        self.shown = 0
        """Number of values printed or counted so far, after the filters."""

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

    def selected(self, values: Iterable[T], kind: type[T]) -> list[T]:
        """Return the values that the options' filters select, in the requested order."""
        return list(self._select(view_of(kind), values))

    def many(self, values: Iterable[Any], kind: type) -> None:
        """Print values while they arrive."""
        view = view_of(kind)
        self._many(view, _one_by_one(self._seen(view, self._select(view, values))))

    def stream(
        self, batches: Iterable[Sequence[Any]], kind: type, *, limit: int | None = None
    ) -> None:
        """Print values batch by batch as they arrive; at most ``limit`` after the filters."""
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
        """Print the ``result`` of the values after the options' filters, at most ``limit`` of them.

        Its ``count`` is the number of these values.
        """
        counted = result(itertools.islice(self._select(view_of(kind), values), limit))
        self._one(view_of(type(counted)), counted)
        self.shown = counted.count

    def _many(self, view: View, batches: Iterable[Iterable[Any]]) -> None:
        if self._form in {"table", "wide"}:
            if view.speaks and self._form == "table" and not self._options.columns:
                for values in batches:  # One batch at a time: the values may never end.
                    self._pager.write_lines(
                        line for value in values for line in self._tables.said(view, value)
                    )
            else:
                self._table(view, batches)
            return
        for text in self._machine.texts(view, itertools.chain.from_iterable(batches)):
            self._write(text)

    def draw(self, value: Any, drawing: Callable[[Canvas], Iterable[str]]) -> None:
        """Print the lines of a drawing of ``value`` in place of a table, else the value."""
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
        """Print one drawing of all ``values`` in place of a table; in other forms the values.

        With a filter or a sort order a table is printed.
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
        """The terminal features that a drawing on stdout may use."""
        stdout = self._host.stdout
        return Canvas(
            self._tables.width or CANVAS_WIDTH,
            supports_unicode(self._host.environ, stdout.encoding),
            self._tables.color,
            self._options.utc,
        )

    def finish(self) -> None:
        """Wait until the user quits the pager, if any, and print the notes below the tables."""
        self._pager.close()
        for note in self._below:
            self._host.stderr.write(f"{fitted(note, self._host.stderr)}\n")
        self._below.clear()

    def _is_shown(self, view: View, value: Any) -> bool:
        """Return whether the filters select a single value; print a message if they do not."""
        if list(self._select(view, [value])):
            return True
        self._host.stderr.write("" if self._options.quiet else f"no {view.name} match --filter\n")
        return False

    def _seen(self, view: View, values: Iterable[Any]) -> Iterable[Any]:
        """Count the shown values, and record them for the watch."""
        for value in values:
            self._see(view, value)
            yield value

    def _see(self, view: View, value: Any) -> None:
        self.shown += 1
        if self._watch is not None:
            self._watch.see(view, value, self._machine.record(view, value))

    def _head(self) -> Iterator[str]:
        """Yield the title above a table: a pasted table then shows its source."""
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
    """Yield the first rows together, as many as arrive in time, then each batch."""
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
    """The steps that a dry run did not carry out."""

    steps: tuple[str, ...] = field("The steps, in order.", name="would")
