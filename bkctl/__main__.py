"""``python -m bkctl``."""

from __future__ import annotations

from bkctl.cli import main

main()
