"""Access to the golden vectors."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

VECTORS = Path(__file__).parent.parent / "vectors"


@lru_cache
def load(name: str) -> dict[str, Any]:
    return json.loads((VECTORS / name).read_text())


def wire_vectors(category: str) -> list[Any]:
    return [v for v in load("wire.json")["vectors"] if v["category"] == category]


def by_name(vector: dict[str, Any]) -> str:
    return vector["name"]
