from __future__ import annotations

import stat
from pathlib import Path

import pytest
from prompt_toolkit.history import InMemoryHistory

from shell.secret import is_private
from shell.terminal.history import SIZE_BYTES_MAX, history_path, open_history


def _typed(path: Path) -> list[str]:
    return list(reversed(list(open_history(path).load_history_strings())))


def test_what_is_typed_is_there_again_in_the_next_run(tmp_path: Path) -> None:
    path = tmp_path / "state" / "shelf" / "history"
    history = open_history(path)
    for text in ("read b1", "note b1 'two\nlines'", "håll"):
        history.append_string(text)
    assert _typed(path) == ["read b1", "note b1 'two\nlines'", "håll"]


def test_only_its_owner_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "state" / "history"
    path.parent.mkdir()
    path.touch(mode=0o644)
    open_history(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "text",
    [
        " ledger list",
        "set -X clientPassword=x",
        "login --password hunter2",
        "login --token=abc",
        "a secret: x",
        "-X zkAuthSecret=abc",
    ],
)
def test_lines_that_begin_with_a_space_or_hold_a_secret_are_not_kept(
    text: str, tmp_path: Path
) -> None:
    assert is_private(text)
    history = open_history(tmp_path / "history")
    history.append_string(text)
    history.append_string("kept")
    assert _typed(tmp_path / "history") == ["kept"]
    assert history.get_strings() == [text, "kept"]


@pytest.mark.parametrize(
    "text",
    ["ledger list", "create --password-file pw", "--password-stdin x", "--show-secrets"],
)  # fmt: skip
def test_ordinary_lines_are_kept(text: str) -> None:
    assert not is_private(text)


def test_a_place_that_cannot_be_written_costs_only_the_memory_of_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    history = open_history(tmp_path / "file" / "history")
    assert isinstance(history, InMemoryHistory)
    path = tmp_path / "history"
    history = open_history(path)
    path.unlink()
    path.mkdir()
    history.append_string("a")
    assert history.get_strings() == ["a"]


def test_a_file_that_has_grown_too_long_loses_its_older_half(tmp_path: Path) -> None:
    path = tmp_path / "history"
    entry = b"\n# 2026-01-01\n+line %07d\n"
    count = SIZE_BYTES_MAX // len(entry % 0) + 10
    path.write_bytes(b"".join(entry % n for n in range(count)))
    kept = _typed(path)
    assert kept[-1] == f"line {count - 1:07d}"
    assert kept == [f"line {n:07d}" for n in range(count - len(kept), count)]
    assert 0.4 < len(kept) / count < 0.6
    assert [one.name for one in tmp_path.iterdir()] == ["history"]


def test_each_place_has_its_own(tmp_path: Path) -> None:
    state = {"XDG_STATE_HOME": str(tmp_path)}
    assert history_path("shelf", state, "attic") == tmp_path / "shelf/history-attic"
    assert history_path("shelf", state, "a/../b").parent == tmp_path / "shelf"


def test_it_lies_in_the_users_directory_for_state(tmp_path: Path) -> None:
    assert history_path("shelf", {"XDG_STATE_HOME": str(tmp_path)}) == tmp_path / "shelf/history"
    for unset in ({}, {"XDG_STATE_HOME": ""}, {"XDG_STATE_HOME": "relative"}):
        assert history_path("shelf", unset) == Path.home() / ".local/state/shelf/history"


@pytest.mark.usefixtures("nameless")
def test_for_a_user_without_a_home_it_is_in_memory(tmp_path: Path) -> None:
    assert history_path("shelf", {}) is None
    assert isinstance(open_history(None), InMemoryHistory)
    assert history_path("shelf", {"XDG_STATE_HOME": str(tmp_path)}) == tmp_path / "shelf/history"
