"""Ledger ids as arguments of commands: on the command line, in a file, on stdin, or all ledgers."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from bkclient.metadata.errors import MetadataUnavailableError
from bkctl.cli.parameter_types import LEDGER_ID
from bkctl.errors import PartlyDoneError, RefusedError, UsageError, file_errors
from bkctl.ledger_ids import parse_ledger_id
from bkctl.session.session import Session
from wire.errors import BookKeeperError
from wire.ids import LedgerId

_NAMED_MAX: Final = 10
"""Failed ledgers that the last line names, at most; a warning has named each before."""


def ids_in_file(session: Session, path: str) -> Iterator[LedgerId]:
    """Yield the ledger ids in a file, or on stdin for ``-``; ``#`` begins a comment.

    Raises:
        NothingFoundError: the file cannot be read.
        UsageError: a word in it is not a ledger id.
    """
    if path == "-":
        lines: Iterable[str] = session.host.stdin
    else:
        with file_errors(path), open(path, errors="replace") as file:  # noqa: PTH123
            lines = file.readlines()
    for number, line in enumerate(lines, 1):
        for word in line.partition("#")[0].split():
            try:
                yield LedgerId(parse_ledger_id(word, session.options.ledger_id_format))
            except ValueError as error:
                raise UsageError(f"{path}, line {number}: {error}") from error


def ids_from_arguments(
    session: Session, words: Sequence[Any], from_file: str | None, *, everything: bool = False
) -> Iterator[LedgerId]:
    """Return the ids that a command line names, in its order.

    Raises:
        UsageError: the command line names no ids, or both ids and all ledgers.
    """
    if everything == bool(words or from_file):
        picked = "".join(f" --filter {shlex.quote(one)}" for one in session.options.filters)
        use = f"give ids, or `-` and the ids of `bkctl ledger list{picked} -o id` on stdin"
        raise UsageError("no ledger is named", next_step=use)
    return _all(session) if everything else _named(session, words, from_file)


def _all(session: Session) -> Iterator[LedgerId]:
    for ids in session.cluster.view.ledger_ranges(None):
        yield from ids


def _named(session: Session, words: Sequence[Any], from_file: str | None) -> Iterator[LedgerId]:
    yield from session.input.words(words, LEDGER_ID)
    if from_file is not None:
        yield from ids_in_file(session, from_file)


def for_each_ledger(
    session: Session,
    words: Sequence[Any],
    work: Callable[[Session, LedgerId], Any],
    kind: type,
    *,
    after: Callable[[Any], object] = lambda _: None,
) -> None:
    """Call ``work`` for each ledger, and print its results, values of ``kind``.

    In a dry run ``work`` returns the planned step as text. ``after`` is called with each printed
    value, and raises if the work was done only in part.

    Raises:
        BookKeeperError: the work on the only ledger failed.
        MetadataUnavailableError: the work ended at a ledger, without the ledgers that follow.
        RefusedError: the same; the work needs an answer, and no user can be asked.
        PartlyDoneError: the work on some of several ledgers failed.
    """
    ids = map(LedgerId, session.input.words(words, LEDGER_ID))
    if session.dry_run:
        session.plan([work(session, ledger_id) for ledger_id in ids])
        return
    if len(words) == 1 and words[0] != "-":
        value = work(session, LedgerId(words[0]))
        session.emit(value)
        after(value)
        return
    failures: list[str] = []
    session.emit_all(outcomes(session, ids, work, failures, after=after), kind)
    require_no_failures(session, failures)


def outcomes(
    session: Session,
    ids: Iterable[LedgerId],
    work: Callable[[Session, LedgerId], Any],
    failures: list[str],
    *,
    after: Callable[[Any], object] = lambda _: None,
) -> Iterator[Any]:
    """Yield the result of ``work`` for each ledger; warn of a failure, append it, and go on.

    Raises:
        MetadataUnavailableError: the work on the other ledgers would fail, too, each after a wait.
        RefusedError: the work needs an answer, and no user can be asked.
    """
    for ledger_id in ids:
        try:
            value = work(session, ledger_id)
            yield value
            after(value)
        except BookKeeperError as error:
            if isinstance(error, RefusedError) and error.unasked:
                raise
            if type(error) is MetadataUnavailableError:  # Without its subclass for a lost answer.
                session.failed = "the ledgers that follow were not reached"
                raise
            failures.append(f"ledger {ledger_id}: {error}")
            session.warn(failures[-1])


def require_no_failures(session: Session, failures: list[str]) -> None:
    """Raise ``PartlyDoneError`` if there are failures."""
    session.about = ""
    if failures:
        which = [failure.partition(":")[0] for failure in failures]
        if len(which) > _NAMED_MAX:
            which[_NAMED_MAX:] = ["..."]
        raise PartlyDoneError(f"{len(failures)} failed: {', '.join(which)}")
