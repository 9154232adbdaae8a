"""Every exchange recorded from a live Java bookie, replayed against ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.bookied.worlds.served_bookie import Client, Serving

VECTORS = Path(__file__).parents[2] / "vectors" / "wire.json"

DIFFERENT = {
    (
        "v3/lac",
        "read LAC: explicit LAC but no entry",
    ): "EOK with the explicit LAC; Java says EIO, which its own client takes for a failure",
    (
        "frame/v3_then_v2_then_v3",
        "v3 again",
    ): "V3 after V2 is served; Java closes",
}
"""Where we answer better, and what (wire.md section 19)."""


def exchanges() -> list[dict[str, Any]]:
    return list(json.loads(VECTORS.read_text())["exchanges"])


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str, int], Any]:
    """Play all exchanges in file order on one bookie; return (step, answer, closed) of each."""
    serving = Serving(tmp_path_factory.mktemp("bookie"))
    seen = {}
    for exchange in exchanges():
        for frame in exchange.get("setup") or []:
            serving.connect().send(bytes.fromhex(frame))
        client = serving.connect()
        for number, step in enumerate(exchange["steps"]):
            seen[exchange["name"], step["label"], number] = (step, *play(serving, client, step))
    return seen


def play(serving: Serving, client: Client, step: dict[str, Any]) -> tuple[bytes, bool]:
    client.send(bytes.fromhex(step["send"]))
    serving.clock.advance(1.0)  # For the long poll that waits its 200 ms in vain.
    return client.receive(), client.is_closed


STEPS = [
    pytest.param(exchange["name"], step["label"], number, id=f"{exchange['name']}-{step['label']}")
    for exchange in exchanges()
    for number, step in enumerate(exchange["steps"])
]


@pytest.mark.parametrize(("name", "label", "number"), STEPS)
def test_our_bookie_answers_as_java_does(
    replayed: dict[tuple[str, str, int], Any], name: str, label: str, number: int
) -> None:
    step, answer, is_closed = replayed[name, label, number]
    expected = bytes.fromhex(step["expect"] or "")
    if (name, label) in DIFFERENT:
        assert answer != expected
        return
    assert answer.hex() == expected.hex()
    assert is_closed == step["closed"]
