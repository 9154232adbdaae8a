"""``bkctl completion``: the script that lets a shell complete."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from bkctl.cli.command import Command
from bkctl.cli.completion.scripts import SCRIPTS
from bkctl.exit_status import Effect

if TYPE_CHECKING:
    from bkctl.session.session import Session


@click.command(
    "completion",
    cls=Command,
    effect=Effect.READ,
    watch=False,
    examples=(
        (
            "bkctl completion bash > ~/.local/share/bash-completion/completions/bkctl",
            "for the user, where bash-completion is installed",
        ),
        ("bkctl completion zsh > ~/.zfunc/_bkctl", "with ~/.zfunc in $fpath, before compinit"),
        ("bkctl completion fish | source", "in ~/.config/fish/config.fish"),
    ),
    replaces="nothing in Java's tools",
    short_help="Print the completion script for bash, zsh or fish.",
)
@click.argument("shell", type=click.Choice(tuple(SCRIPTS)))
@click.pass_obj
def completion(session: Session, *, shell: str) -> None:
    """Print the script that lets SHELL complete commands, options, choices and ids that exist.

    Packages install it where shells look, so that nothing needs to be done. For one session of bash
    or zsh `eval "$(bkctl completion bash)"` is enough.

    Ids are asked for in the background and kept for five seconds; a Tab never waits longer than two
    seconds.
    """
    from bkctl.commands.about.completion_views import Script

    session.emit(Script(shell, SCRIPTS[shell]))
