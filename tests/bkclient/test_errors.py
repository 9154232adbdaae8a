"""Every result code of the Java client is a class here, and says what it means for a caller."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bkclient.errors import (
    BY_RETURN_CODE,
    ClientError,
    DataUnknownError,
    LedgerClosedError,
    ReadFailedError,
    WriteFailedError,
    refusal,
)
from bkclient.metadata.errors import MetadataUnavailableError
from tests.bkclient.worlds import Fate, World, is_add, when
from wire.codes import ReturnCode

CODES = {*range(-25, 0), *range(-108, -99), -200, -999}
"""BookKeeper 4.18.0, BKException.Code, and limbo; 0 is no error and 1 never leaves the client."""

UNKNOWN = {-8, -12, -15, -19, -21, -23, -999}
"""After which nobody knows whether it was done."""

GUIDE = Path(__file__).parents[2] / "docs" / "library.md"


def test_every_code_has_its_class() -> None:
    assert set(ClientError.by_code) == CODES


@pytest.mark.parametrize("code", sorted(CODES, reverse=True))
def test_a_class_says_whether_the_outcome_is_known(code: int) -> None:
    kind = ClientError.by_code[code]
    assert kind("said").code == code
    assert kind("said").outcome_unknown is (code in UNKNOWN)


def test_classes_without_a_code_of_their_own_have_that_of_what_they_are() -> None:
    assert MetadataUnavailableError("away").code == -9
    assert MetadataUnavailableError("away").outcome_unknown


@pytest.mark.parametrize("default", [WriteFailedError, ReadFailedError])
@pytest.mark.parametrize("rc", [rc for rc in ReturnCode if rc is not ReturnCode.EOK])
def test_a_bookies_refusal_becomes_its_own_code_or_that_of_the_operation(
    rc: ReturnCode, default: type[ClientError]
) -> None:
    codes = {
        ReturnCode.ENOLEDGER: -7,
        ReturnCode.ENOENTRY: -13,
        ReturnCode.EUA: -102,
        ReturnCode.EBADVERSION: -16,
        ReturnCode.EFENCED: -101,
        ReturnCode.EREADONLY: -104,
        ReturnCode.ETOOMANYREQUESTS: -105,
        ReturnCode.EUNKNOWNLEDGERSTATE: -108,
    }
    error = refusal(rc, default, "bookie b1")
    assert error.code == codes.get(rc, default.code)
    assert rc.name in str(error)
    assert set(codes) == set(BY_RETURN_CODE)


def test_a_refused_client_learns_what_it_may_lack() -> None:
    error = refusal(ReturnCode.EUA, ReadFailedError, "bookie b1")
    assert str(error) == "bookie b1: EUA (another password, no TLS or no login)"


def test_limbo_is_a_class_of_its_own() -> None:
    error = refusal(ReturnCode.EUNKNOWNLEDGERSTATE, ReadFailedError, "bookie b1")
    assert type(error) is DataUnknownError


def test_an_add_that_was_under_way_has_an_unknown_outcome_and_one_refused_has_not() -> None:
    world = World(3)
    writer = world.run(world.client().create_ledger())
    for bookie in world.bookies.values():
        bookie.policy = when(is_add, Fate.HOLD)
    under_way = writer.add(b"x")
    world.settle(0.1)
    world.run(writer.close())
    error = world.failure(under_way)
    assert type(error) is LedgerClosedError
    assert error.outcome_unknown
    refused = world.failure(writer.add(b"y"))
    assert type(refused) is LedgerClosedError
    assert not refused.outcome_unknown


def test_the_guide_has_every_code_with_what_its_class_says() -> None:
    """Each row: code, class, the docstring, and whether the outcome is unknown."""
    rows = [line for line in GUIDE.read_text().splitlines() if re.match(r"\| -\d", line)]
    kinds = [ClientError.by_code[code] for code in sorted(CODES, reverse=True)]
    assert rows == [
        f"| {kind.code} | `{kind.__name__}` | {' '.join((kind.__doc__ or '').split())} | "
        f"{'unknown' if kind.outcome_unknown else ''} |"
        for kind in kinds
    ]
