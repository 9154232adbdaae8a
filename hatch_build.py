"""Puts manual pages, completions and units of systemd into the wheel, where systems look for them.

Installed into ``/usr/local`` they are found at once; in an environment of its own they are below
its ``share`` and ``lib``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

COMPLETIONS = {
    "bkctl.bash": "share/bash-completion/completions/bkctl",
    "_bkctl": "share/zsh/site-functions/_bkctl",
    "bkctl.fish": "share/fish/vendor_completions.d/bkctl.fish",
}


class SharedFiles(BuildHookInterface):  # type: ignore[type-arg] # a plugin of no build of ours
    """Adds the generated files, whatever their number, to what the wheel installs."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files; called by hatchling before it builds."""
        del version
        root = Path(self.root)
        shared: dict[str, str] = build_data["shared_data"]
        for page in sorted((root / "man").iterdir()):
            shared[str(page)] = f"share/man/man{page.suffix[1:]}/{page.name}"
        for name, place in COMPLETIONS.items():
            shared[str(root / "completions" / name)] = place
        for unit in sorted((root / "systemd").iterdir()):
            shared[str(unit)] = f"lib/systemd/system/{unit.name}"
