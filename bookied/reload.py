"""What a bookie that runs takes of settings that have changed, and what has to wait.

Which settings can change meanwhile is said where they are declared (``setting(reloads=True)``).
"""

from __future__ import annotations

import attrs

from bkclient.config.declaration import MASKED, Declared, declared, value_text
from bookied.config.bookie import BookieConfig


@attrs.frozen
class Reload:
    """What comes of settings that were read again."""

    config: BookieConfig
    """What holds from now on."""
    taken: tuple[tuple[str, str], ...] = ()
    """Key and text of what is obeyed at once; secrets are masked."""
    later: tuple[str, ...] = ()
    """Keys whose other values hold from the next start on."""


def reloaded(now: BookieConfig, fresh: BookieConfig) -> Reload:
    """Return what becomes of ``now`` where the settings say ``fresh``."""
    different = [
        one
        for one in declared(BookieConfig)
        if getattr(now, one.name) != getattr(fresh, one.name) and not one.spec.without_effect
    ]
    taken = [one for one in different if one.spec.reloads]
    return Reload(
        attrs.evolve(now, **{one.argument: getattr(fresh, one.name) for one in taken}),
        tuple((one.spec.key, _text(one, fresh)) for one in taken),
        tuple(one.spec.key for one in different if not one.spec.reloads),
    )


def _text(one: Declared, config: BookieConfig) -> str:
    return MASKED if one.spec.secret else value_text(getattr(config, one.name))
