"""What a reader may conclude from a hand-over."""

from __future__ import annotations

import attrs
from hypothesis import given

from bkclient.handed_over import HANDOVER_KEY, HandedOver, confirmed_by_handover
from tests import strategies


@given(strategies.ledger_metadata(), strategies.u63)
def test_the_key_says_how_far_the_ledger_is_confirmed(metadata, last) -> None:
    custom = {HANDOVER_KEY: HandedOver(last, 5).encode()}
    assert confirmed_by_handover(7, attrs.evolve(metadata, custom=custom)) == last
    assert confirmed_by_handover(7, attrs.evolve(metadata, custom={})) == -1


@given(strategies.ledger_metadata(), strategies.tokens)
def test_a_key_of_no_known_form_says_nothing(metadata, value) -> None:
    odd = attrs.evolve(metadata, custom={HANDOVER_KEY: b"?" + value})
    assert confirmed_by_handover(7, odd) == -1
