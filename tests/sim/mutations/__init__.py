"""By name; tests run each."""

from __future__ import annotations

from typing import Final

from tests.sim.engine.mutation_switch import Mutation
from tests.sim.mutations.bookie import BOOKIE_MUTATIONS
from tests.sim.mutations.log import LOG_MUTATIONS
from tests.sim.mutations.metadata import METADATA_MUTATIONS
from tests.sim.mutations.reader import READER_MUTATIONS
from tests.sim.mutations.recovery import RECOVERY_MUTATIONS
from tests.sim.mutations.repair import REPAIR_MUTATIONS
from tests.sim.mutations.scenarios import SCENARIO_MUTATIONS
from tests.sim.mutations.storage import STORAGE_MUTATIONS
from tests.sim.mutations.writer import WRITER_MUTATIONS

MUTATIONS: Final[dict[str, Mutation]] = {
    **WRITER_MUTATIONS,
    **RECOVERY_MUTATIONS,
    **READER_MUTATIONS,
    **BOOKIE_MUTATIONS,
    **REPAIR_MUTATIONS,
    **LOG_MUTATIONS,
    **SCENARIO_MUTATIONS,
    **STORAGE_MUTATIONS,
    **METADATA_MUTATIONS,
}
"""By name; tests run each."""
