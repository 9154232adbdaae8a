"""Which ledgers would be lost with one bookie."""

from __future__ import annotations

import pytest

from bookied.sole_copies import is_only_copy
from wire.codes import LedgerState
from wire.ids import BookieId, EntryId
from wire.ledger_metadata import Fragment, LedgerMetadata

A, B, C, D = (BookieId(name) for name in "ABCD")


def metadata(write_quorum: int, *ensembles: tuple[BookieId, ...]) -> LedgerMetadata:
    return LedgerMetadata(
        ensemble_size=len(ensembles[0]),
        write_quorum=write_quorum,
        ack_quorum=1,
        state=LedgerState.OPEN,
        fragments=tuple(Fragment(EntryId(10 * n), one) for n, one in enumerate(ensembles)),
    )


@pytest.mark.parametrize(
    ("held", "alive", "expected"),
    [
        (metadata(1, (A,)), {B, C}, True),
        (metadata(1, (A, B)), {B, C}, True),
        (metadata(2, (A, B)), {B, C}, False),
        (metadata(2, (A, B)), {C}, True),
        (metadata(2, (A, B, C)), {B}, True),
        (metadata(3, (A, B, C)), {B}, False),
        (metadata(2, (B, C)), set(), False),
        (metadata(2, (B, C), (A, D)), {B, C}, True),
        (metadata(2, (B, C), (A, D)), {D}, False),
    ],
)
def test_a_copy_counts_when_its_bookie_is_in_service(
    held: LedgerMetadata,
    alive: set[BookieId],
    expected: bool,  # noqa: FBT001  # parametrized
) -> None:
    assert is_only_copy(held, A, alive) is expected
