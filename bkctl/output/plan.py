"""What a dry run would have done."""

from __future__ import annotations

import attrs

from bkctl.output.views import column, shown


@shown(
    "plans",
    column("would", "The steps, in order.", "steps"),
    sentence=lambda v: "\n".join(f"would {step}" for step in v.steps or ("change nothing",)),
)
@attrs.frozen
class Plan:
    """What a dry run would have done."""

    steps: tuple[str, ...]
