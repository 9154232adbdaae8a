from __future__ import annotations

import io
import os

import pytest

from bkctl.output.forms.sentence import fitted
from tests.bkctl.support.terminal import Stream

SAID = "bkctl: ledger 7 has lost entries; `bkctl ledger check 7 --all` shows which"


def test_a_message_is_wrapped_at_words_and_a_command_stays_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert fitted(SAID, Stream(tty=True)).splitlines() == [
        "bkctl: ledger 7 has lost entries;",
        "`bkctl ledger check 7 --all` shows which",
    ]


@pytest.mark.parametrize("end", ["", "; the log says why", ", or stop it"])
def test_a_command_behind_a_colon_has_a_line_for_itself(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    command = "bkctl bookie readonly 127.0.0.1:3181 off --timeout 5m"
    said = f"bookie b is read-only; to change that: {command}{end}"
    lines = fitted(said, Stream(tty=True)).splitlines()
    assert any(line.startswith(command) for line in lines)


def test_a_time_is_not_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    said = fitted("made by b1:3181 at 2026-01-31 14:05:09+01:00", Stream(tty=True))
    assert said.splitlines() == ["made by b1:3181 at", "2026-01-31 14:05:09+01:00"]


def test_lines_that_fit_and_what_is_between_words_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "24")
    assert (
        fitted("  a  b\n\n" + "x" * 30 + " y", Stream(tty=True)) == "  a  b\n\n" + "x" * 30 + "\ny"
    )


def test_a_pipe_gets_the_message_as_it_is() -> None:
    assert fitted(SAID, io.StringIO()) == SAID


def test_what_a_terminal_would_obey_is_not_in_a_message() -> None:
    said = "bookie b\x1b]0;x\x07\x9b2J\u202e is unknown\n"
    shown = "bookie b\\x1b]0;x\\x07\\x9b2J\\x202e is unknown\n"
    for tty in (False, True):
        assert fitted(said, Stream(tty=tty)) == shown


def test_a_terminal_that_tells_no_size_gets_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    main, inner = os.openpty()
    with os.fdopen(main, "rb"), os.fdopen(inner, "w") as stream:
        assert stream.isatty()
        assert fitted(SAID, stream) == SAID
