"""Typed lines: prompts, continued lines, and running a line."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from shell.command_line import LineError, UnfinishedError, parse
from shell.shell import USAGE, Shell

if TYPE_CHECKING:
    from prompt_toolkit.formatted_text import StyleAndTextTuples

MORE: Final = "> "
"""The prompt of a continued line."""


def is_unfinished(text: str) -> bool:
    """Return whether more text is needed before a text can run."""
    try:
        parse(text)
    except UnfinishedError:
        return True
    except LineError:
        return False
    return False


def run_interactive(shell: Shell, text: str) -> int:
    """Run a typed line; errors are printed, and the shell goes on."""
    try:
        lines = parse(text)
    except LineError as error:
        shell.complain(str(error))
        return USAGE
    status, began_s = 0, time.monotonic()
    for line in lines:
        status = shell.run(line)
        if status or shell.leaving is not None:
            break
    shell.took(time.monotonic() - began_s)
    shell.live.questions.doubt()
    return status


def prompt_parts(shell: Shell, *, narrow: bool = False) -> StyleAndTextTuples:
    """Return the prompt as styles and texts: the place, the values in use, a mark for a problem."""
    state, (where, warning) = shell.state(), shell.where()
    word = f" ({warning})" if warning and not narrow else ""
    place = f" {where}{word}" if where else ""
    label = f" {state.label}" if state.label and not where and not narrow else ""
    used = "".join(f" {word}:{value}" for word, value in shell.current.values.items())
    return [
        ("class:prompt", shell.name),
        ("class:prompt.alarm" if warning else "class:prompt.where", place),
        ("class:prompt.label", label),
        ("class:prompt.used", used),
        ("class:prompt.problem", "!" if state.problem else ""),
        ("class:prompt", "> "),
    ]
