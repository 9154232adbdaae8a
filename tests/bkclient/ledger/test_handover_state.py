"""What a reader may conclude from a hand-over."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given

from bkclient.ledger.handover_state import (
    HANDOVER_KEY,
    HandoverState,
    NotHandedOverError,
    confirmed_by_handover,
    decode_handover,
)
from tests.support import strategies
from wire.ids import LedgerId


@given(strategies.ledger_metadata(), strategies.u63)
def test_the_key_says_how_far_the_ledger_is_confirmed(metadata, last) -> None:
    custom = {HANDOVER_KEY: HandoverState(last, 5).encode()}
    assert confirmed_by_handover(7, attrs.evolve(metadata, custom=custom)) == last
    assert confirmed_by_handover(7, attrs.evolve(metadata, custom={})) == -1


@given(strategies.ledger_metadata(), strategies.tokens)
def test_a_key_of_no_known_form_says_nothing(metadata, value) -> None:
    odd = attrs.evolve(metadata, custom={HANDOVER_KEY: b"?" + value})
    assert confirmed_by_handover(7, odd) == -1


@pytest.mark.parametrize(
    "value", [b"[" * 100_000, b'{"v":1,"last":1e999,"length":1}', b"[]", b'{"v":1}', b"\xff"]
)
def test_a_key_that_is_no_json_of_ours_is_refused(value: bytes) -> None:
    with pytest.raises(NotHandedOverError, match="ledger 7"):
        decode_handover(LedgerId(7), value)
