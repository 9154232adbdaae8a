"""What the fields of a completion script are."""

from __future__ import annotations

from typing import Final

import attrs

from bkctl.output.emit import Field, View


@attrs.frozen
class Script:
    """What a shell is told so that it completes."""

    shell: str
    text: str


COMPLETION_VIEWS: Final = {
    Script: View(
        "scripts",
        (
            Field("shell", "Whose script it is.", lambda v: v.shell),
            Field("script", "What the shell is to read.", lambda v: v.text),
        ),
        "shell",
        sentence=lambda v: v.text.rstrip("\n"),
    ),
}
