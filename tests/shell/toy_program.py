"""A program that has nothing to do with BookKeeper: shelves of books. The shell serves it too."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import click

from shell.builtin import commands
from shell.live_values import Live, LiveQuestions
from shell.shell import Shell


class BookIdType(click.ParamType):
    name = "book_id"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if not str(value).startswith("b"):
            self.fail(f"{value!r} is not a book", param, ctx)
        return value


class PagesType(click.ParamType):
    name = "pages"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if not str(value).replace("-", "").isdigit():
            self.fail(f"{value!r} are not pages", param, ctx)
        return value


BOOK = BookIdType()


@click.group(name="shelf")
@click.option("-l", "--language", type=click.Choice(["english", "latin"]), default="english")
@click.option("--loud", is_flag=True, help="In capitals.")
@click.option("--mark", multiple=True)
@click.option("--secret", hidden=True)
@click.version_option("1.0")
@click.pass_context
def shelf(ctx, language, loud, mark, secret):
    """Books on a shelf."""
    ctx.meta["how"] = (language, loud, mark)


@shelf.group()
def book():
    """Single books."""


@book.command()
@click.argument("book_id", type=BOOK)
@click.argument("pages", type=PagesType(), required=False)
@click.option("--aloud", is_flag=True, help="For all to hear.")
@click.option("--voice", type=click.Choice(["high", "low"]))
@click.option("--to", type=BOOK, help="Another one.")
@click.pass_obj
def read(visits, book_id, pages, aloud, voice, to):
    """Read BOOK_ID."""
    visits.append(("read", book_id, pages))
    click.echo(f"{book_id} {pages or 'all'}")


@book.command()
@click.argument("book_id", type=BOOK)
@click.argument("notes", nargs=-1)
@click.pass_obj
def note(visits, book_id, notes):
    """Write NOTES into BOOK_ID."""
    visits.append(("note", book_id, notes))


@book.command()
@click.argument("book_ids", type=BOOK, nargs=-1, required=True)
@click.pass_obj
def burn(visits, book_ids):
    """Burn BOOK_IDS."""
    visits.append(("burn", book_ids))


@book.command()
@click.argument("name")
@click.argument("book_id", type=BOOK)
@click.pass_obj
def lend(visits, name, book_id):
    """Lend BOOK_ID to NAME."""
    visits.append(("lend", name, book_id))


@shelf.command()
@click.option("--file", type=click.Path())
@click.pass_context
def how(ctx, file):
    """Say how it is set."""
    click.echo(repr(ctx.meta["how"]))


@shelf.command()
@click.argument("status", type=int)
def fail(status):
    """End with STATUS."""
    raise SystemExit(status)


@shelf.command()
def interrupted():
    """Be interrupted."""
    raise KeyboardInterrupt


@shelf.command()
def broken():
    """Have a bug."""
    raise ZeroDivisionError


@shelf.command("words")
@click.argument("words", nargs=-1)
def words_(words):
    """Print WORDS."""
    click.echo(" ".join(words), nl=bool(words))


@shelf.command()
def copy():
    """Print stdin."""
    click.echo(sys.stdin.read(), nl=False)


@attrs.define
class ToyStatus:
    label: str = "attic"
    text: str = "3 books"
    problem: str = ""


class ToyProgram:
    """Books to complete; ``broken`` makes what is asked in the background fail."""

    def __init__(self, books: Mapping[str, str] | None = None) -> None:
        self.tree = shelf
        self.obj: list[Any] = []
        self.kinds = {"book": BOOK}
        self.live = frozenset({BOOK.name})
        self.greeting = "welcome to the shelf"
        self.place = "language"
        self.books = dict(books or {"b1": "new", "b2": "old", "b10": "torn"})
        self.books_max = 100
        self.now = ToyStatus()
        self.broken: Exception | None = None
        self.asked: list[Any] = []
        self.closed = False
        self.last: dict[str, str] = {}
        self.open_resources: list[str] = []
        self.torn: set[str] = set()

    def candidates(self, kind: str, prefix: str, given: Sequence[str]) -> Any:
        self.asked.append((kind, prefix, tuple(given)))
        if self.broken:
            raise self.broken
        found = [one for one in self.books.items() if one[0].startswith(prefix)]
        return found[: self.books_max], len(found) <= self.books_max

    def ordered(self, command: click.Command, found: Any) -> Any:
        return sorted(found, key=lambda one: one[1] != "old") if command.name == "burn" else found

    def status(self, given: Sequence[str]) -> ToyStatus:
        if self.broken:
            raise self.broken
        return self.now

    def go(self, place: str) -> Sequence[str]:
        return ["loud"]

    def where(self, given: Sequence[str]) -> tuple[str, str]:
        return ("latin", "dead") if "latin" in given else ("", "")

    def may_fill(self, command: click.Command) -> bool:
        return command.name != "burn"

    def release(self, report: Any) -> bool:
        while self.open_resources:
            book = self.open_resources.pop()
            report(f"{book} {'torn' if book in self.torn else 'put back'}", book in self.torn)
        return not self.torn

    def close(self) -> None:
        self.closed = True


class Later:
    """Work that is put off until ``run`` is called, and a clock that is set by hand."""

    def __init__(self) -> None:
        self.waiting: list[Any] = []
        self.now_s = 100.0

    def __call__(self, work: Any) -> None:
        self.waiting.append(work)

    def run(self) -> None:
        waiting, self.waiting = self.waiting, []
        for work in waiting:
            work()

    def seconds(self) -> float:
        return self.now_s


def make_shell(program: ToyProgram | None = None, later: Later | None = None) -> Shell:
    """Return a shell whose background work is done at once, or ``later``."""
    program = program or ToyProgram()
    start = later or (lambda work: work())
    questions = LiveQuestions(start=start, clock=(later or Later()).seconds)
    return Shell(program, own=commands, live=Live(program, questions))


if __name__ == "__main__":
    from shell.repl import run

    scripts = [word for word in sys.argv[1:] if word != "--no-bar"]
    sys.exit(run(ToyProgram(), path=next(iter(scripts), None), bar="--no-bar" not in sys.argv))
