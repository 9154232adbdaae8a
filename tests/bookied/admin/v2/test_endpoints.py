"""The file that describes the API is made of the table, and a description that others can read."""

from __future__ import annotations

import json
from pathlib import Path

from bookied.admin.v2.endpoints import ENDPOINTS, openapi, openapi_text

FILE = Path(__file__).parents[4] / "docs" / "openapi.json"


def test_the_file_is_what_the_table_says() -> None:
    assert FILE.read_text(encoding="utf-8") == openapi_text(), (
        "stale: python -m bookied.admin.v2.endpoints > docs/openapi.json"
    )


def test_the_description_is_valid_openapi() -> None:
    # Collecting the tests has no use for what it loads.
    from openapi_spec_validator import validate

    validate(openapi())


def test_every_operation_has_a_name_of_its_own_and_a_token_where_it_changes_something() -> None:
    described = json.loads(openapi_text())
    operations = [one for path in described["paths"].values() for one in path.values()]
    assert len({one["operationId"] for one in operations}) == len(operations) == len(ENDPOINTS)
    changing = [
        one for path in described["paths"].values() for m, one in path.items() if m != "get"
    ]
    assert all(one["security"] == [{"token": []}] for one in changing)
