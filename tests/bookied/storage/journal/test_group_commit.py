from __future__ import annotations

import pytest

from bookied.storage.journal.group_commit import GroupCommit


def test_without_a_wait_nothing_waits() -> None:
    assert GroupCommit().wait_s(waited_s=0, size_bytes=1, records=1, is_empty=False) == 0


@pytest.mark.parametrize(
    ("group", "asked", "wait_s"),
    [
        (GroupCommit(wait_s_max=2.0), {}, 1.5),
        (GroupCommit(wait_s_max=0.4), {}, 0.0),
        (GroupCommit(wait_s_max=2.0), {"size_bytes": 512 * 1024}, 1.5),
        (GroupCommit(wait_s_max=2.0), {"size_bytes": 512 * 1024 + 1}, 0.0),
        (GroupCommit(wait_s_max=2.0, wait_records_max=3), {"records": 3}, 1.5),
        (GroupCommit(wait_s_max=2.0, wait_records_max=3), {"records": 4}, 0.0),
        (GroupCommit(wait_s_max=2.0, wait_records_max=1), {"records": 2}, 0.0),
        (GroupCommit(wait_s_max=2.0), {"records": 10_000}, 1.5),
        (GroupCommit(wait_s_max=2.0), {"is_empty": True}, 1.5),
        (GroupCommit(wait_s_max=2.0, flush_when_empty=True), {"is_empty": True}, 0.0),
        (GroupCommit(wait_s_max=2.0, flush_when_empty=True), {"is_empty": False}, 1.5),
    ],
)
def test_a_group_waits_for_company_until_something_ends_it(
    group: GroupCommit, asked: dict[str, int], wait_s: float
) -> None:
    of_it = {"waited_s": 0.5, "size_bytes": 1, "records": 1, "is_empty": False, **asked}
    assert group.wait_s(**of_it) == wait_s  # type: ignore[arg-type]
