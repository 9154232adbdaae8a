"""Speculative reads: the time until a read asks another bookie as well.

``quorum.read_rules`` chooses that bookie. Agrees with BookKeeper 4.18.0,
DefaultSpeculativeRequestExecutionPolicy.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs


@attrs.frozen
class Speculation:
    """The waits for an answer before another bookie is asked as well; 0 is for ever."""

    first_s: float
    max_s: float
    factor: float = 2.0

    def waits(self) -> Iterator[float]:
        """Yield the waits, one after another; nothing without speculation."""
        wait_s = self.first_s
        while wait_s > 0:
            yield wait_s
            wait_s = min(self.max_s, wait_s * self.factor)
