"""The prompt on a terminal: editing, completion, history, and the bar below."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER, EditingMode
from prompt_toolkit.filters import has_focus
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import History
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import Output
from prompt_toolkit.patch_stdout import patch_stdout
from prompt_toolkit.styles import Style

from shell.prompt import MORE, is_unfinished, prompt_parts, run_interactive
from shell.shell import TERMINATED, Shell
from shell.terminal.colours import TreeLexer
from shell.terminal.completer import TreeCompleter
from shell.terminal.history import history_path, open_history

LOOK_EVERY_S: Final = 5.0
"""Seconds between two updates of the bar while nothing is typed."""

OLD_S: Final = 15.0
"""Seconds of age from which on the bar shows the age of its state."""

NARROW: Final = 50
"""Columns below which the prompt is a short one."""

MENU_ROWS: Final = 8

HELD_SHOWN: Final = 3
"""Open writers that the bar names."""

STYLE: Final = Style.from_dict(
    {
        "prompt.where": "bold",
        "prompt.alarm": "ansired bold",
        "prompt.label": "ansicyan",
        "prompt.used": "ansigreen",
        "prompt.problem": "ansired bold",
        "command": "bold",
        "option": "ansicyan",
        "quoted": "ansigreen",
        "operator": "ansimagenta",
        "system": "ansiyellow",
        "comment": "ansibrightblack",
        "unknown": "ansired",
        "bottom-toolbar": "noreverse",
        "bar": "reverse",
        "bar.problem": "reverse ansired",
    }
)


def run_prompt(
    shell: Shell,
    *,
    vi: bool = False,
    bar: bool = True,
    environ: Mapping[str, str] = os.environ,
    keyboard: Input | None = None,
    screen: Output | None = None,
) -> int:
    """Read and run typed lines until the user leaves; return the status to leave with."""
    prompts = Prompts(shell, environ, vi=vi, bar=bar, keyboard=keyboard, screen=screen)
    shell.note(f"{shell.program.greeting}\nhelp lists commands, Tab completes, Ctrl-D leaves")
    while shell.leaving is None:
        try:
            session = prompts.here()
            # Log lines appear above the prompt.
            with patch_stdout(raw=True):
                text = session.prompt(prompt_parts(shell, narrow=shell.columns < NARROW))
            shell.history = session.history.get_strings()
            if run_interactive(shell, text) == TERMINATED:
                return TERMINATED
            if screen is None:
                _to_first_column(shell.columns)
        except KeyboardInterrupt:
            continue
        except EOFError:
            break
    return shell.leaving or 0


class Prompts:
    """The prompts of the places of commands; each place has a history of its own."""

    def __init__(self, shell: Shell, environ: Mapping[str, str], **how: Any) -> None:
        """``how`` is passed to ``make_session``."""
        self._shell, self._environ, self._how = shell, environ, how
        self._at: tuple[str, PromptSession[str]] | None = None

    def here(self) -> PromptSession[str]:
        """Return the prompt of the present place."""
        shell, place = self._shell, self._shell.where()[0]
        if self._at is None or self._at[0] != place:
            history = open_history(history_path(shell.name, self._environ, place))
            self._at = place, make_session(shell, history, **self._how)
            shell.live.questions.heard = partial(draw_anew, self._at[1].app)
        return self._at[1]


def draw_anew(app: Application[Any]) -> None:
    """Redraw a prompt, from any thread; do nothing if it has ended.

    The prompt may end at any moment, and its ``invalidate`` raises while it ends. So ``invalidate``
    is called in the prompt's own loop.
    """
    loop = app.loop
    if loop is not None:
        with contextlib.suppress(RuntimeError):  # The loop is closed.
            loop.call_soon_threadsafe(app.invalidate)


def make_session(
    shell: Shell,
    history: History,
    *,
    vi: bool,
    bar: bool,
    keyboard: Input | None,
    screen: Output | None,
) -> PromptSession[str]:
    """Return the prompt with completion, history, bar and keys."""
    completer = TreeCompleter(shell)
    session: PromptSession[str] = PromptSession(
        multiline=True,
        key_bindings=_keys(completer),
        prompt_continuation=MORE,
        history=history,
        auto_suggest=AutoSuggestFromHistory(),
        search_ignore_case=True,
        enable_open_in_editor=True,
        enable_system_prompt=False,
        completer=completer,
        complete_while_typing=True,
        reserve_space_for_menu=min(MENU_ROWS, shutil.get_terminal_size().lines // 3),
        lexer=TreeLexer(shell),
        style=STYLE,
        editing_mode=EditingMode.VI if vi else EditingMode.EMACS,
        bottom_toolbar=(lambda: bar_text(shell, shell.columns)) if bar else None,
        refresh_interval=LOOK_EVERY_S if bar else 0,
        input=keyboard,
        output=screen,
    )
    completer.late = lambda document: offer_late(session.default_buffer, document)
    return session


def offer_late(buffer: Buffer, document: Document) -> None:
    """Open the menu for late values, if nothing was typed or offered in the meantime."""
    if buffer.document == document and buffer.complete_state is None:
        buffer.start_completion()


def _keys(completer: TreeCompleter) -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter", filter=has_focus(DEFAULT_BUFFER))
    def enter(event: KeyPressEvent) -> None:
        """Accept the chosen completion, else run a complete command, else begin a new line."""
        buffer = event.current_buffer
        if buffer.complete_state and buffer.complete_state.current_completion:
            buffer.complete_state = None
        elif is_unfinished(buffer.text):
            buffer.newline(copy_margin=False)
        else:
            buffer.validate_and_handle()

    @keys.add("tab", filter=has_focus(DEFAULT_BUFFER))
    def tab(event: KeyPressEvent) -> None:
        """Insert the only completion, else move in the menu, or open it.

        A key may arrive before the menu is open: a menu that is being made ignores the next key.
        """
        buffer = event.current_buffer
        state = buffer.complete_state
        is_chosen = state is not None and state.complete_index is not None
        only = None if is_chosen else completer.sole(buffer.document)
        if only is not None:
            buffer.cancel_completion()
            buffer.apply_completion(only)
            is_complete = not only.display_text.endswith("/")
            buffer.insert_text(" " if is_complete and buffer.document.current_char != " " else "")
        elif state is not None:
            buffer.complete_next()
        else:
            buffer.start_completion(insert_common_part=True)

    return keys


def bar_text(shell: Shell, columns: int) -> StyleAndTextTuples:
    """Return the line below the prompt, cut to the width."""
    state = shell.state()
    age = f"{state.age_s:.0f} s ago" if state.age_s >= OLD_S else ""
    names = shell.program.open_resources
    holds = f"holds {', '.join(names[:HELD_SHOWN])}" + (", ..." if names[HELD_SHOWN:] else "")
    parts = [
        state.problem,
        state.text,
        holds if names else "",
        age,
        " ".join(shell.settings.changes),
    ]
    text = "  ".join(filter(None, parts)) or "..."
    style = "class:bar.problem" if state.problem else "class:bar"
    return [(style, f" {text}"[:columns].ljust(columns))]


def _to_first_column(columns: int) -> None:
    """Begin a new line if the previous output has not ended its own.

    The shell prints a mark and as many spaces as there are columns. They end in the first column of
    the next line, unless they began in the first column.
    """
    sys.stdout.write("\x1b[7m%\x1b[0m" + " " * (columns - 1) + "\r\x1b[K")
    sys.stdout.flush()
