"""Settings in the environment: ``BK_<key>`` variables, as in Java's container scripts."""

from __future__ import annotations

import re
from collections.abc import Mapping

from bkclient.config.settings import known_keys


def settings_of_environment(environ: Mapping[str, str], *classes: type) -> dict[str, str]:
    """Return the settings in ``BK_<key>`` variables.

    ``BK_`` and a word in capitals (``BK_HOME``) is not a setting. Any other name that no class
    knows is passed on, so that ``load`` can warn about it.
    """
    known = frozenset().union(*(known_keys(cls) for cls in classes))
    found = {name[3:]: text for name, text in environ.items() if name.startswith("BK_")}
    return {
        key: text for key, text in found.items() if key in known or re.match(r"[a-z]+[A-Z_.]", key)
    }
