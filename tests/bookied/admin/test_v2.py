"""The clean API: what it answers, and that its answers are what its description says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from bookied.admin.endpoints import ENDPOINTS, PREFIX, openapi
from bookied.admin.exchange import Reply
from tests.bookied.admin.conftest import Operator
from tests.bookied.admin.test_v1 import create
from tests.bookied.clock_world import World
from tests.bookied.fakes import done
from wire.ids import BookieId, LedgerId

BODIES: dict[str, Any] = {
    "set_read_only": {"read_only": False},
    "set_compaction": {"major_suspended": True},
    "set_autorecovery": {"lost_bookie_recovery_delay_s": 30},
}


def problem(reply: Reply) -> tuple[int, str]:
    return reply.status, json.loads(reply.body)["error"]["code"]


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda one: f"{one.method} {one.path}")
def test_every_answer_is_what_the_description_says(operator: Operator, endpoint: Any) -> None:
    create(operator, 2)
    done(operator.control.store.mark_underreplicated(LedgerId(0), [BookieId("b8")]))
    path = PREFIX + endpoint.path.format(ledger_id=1)
    reply = operator.ask(endpoint.method, path, BODIES.get(endpoint.call.__name__, b""))
    assert reply.status == endpoint.status, reply
    described = openapi()
    operation = described["paths"][PREFIX + endpoint.path][endpoint.method.lower()]
    answer = operation["responses"][str(reply.status)]["content"]["application/json"]["schema"]
    schema = {**answer, "components": described["components"]}
    jsonschema.Draft202012Validator(schema).validate(json.loads(reply.body))


def test_what_the_operator_sets_is_what_is_told(operator: Operator) -> None:
    operator.ask("PUT", "/api/v2/bookie/read-only", {"read_only": True})
    assert operator.get("/api/v2/bookie/read-only") == {"read_only": True, "by_hand": True}
    assert operator.get("/api/v2/bookie")["state"] == "read-only"
    operator.ask("PUT", "/api/v2/bookie/read-only", {"read_only": False})
    operator.ask("PUT", "/api/v2/bookie/compaction", {"minor_suspended": True})
    operator.ask("PUT", "/api/v2/bookie/compaction", {"major_suspended": True})
    operator.ask("PUT", "/api/v2/bookie/compaction", {"minor_suspended": False})
    both = {"minor_suspended": False, "major_suspended": True}
    assert operator.get("/api/v2/bookie/compaction") == both
    assert operator.get("/api/v2/bookie")["state"] == "writable"
    operator.ask("PUT", "/api/v2/autorecovery", {"enabled": False})
    assert operator.get("/api/v2/autorecovery")["enabled"] is False


def test_a_suspended_compaction_does_not_run_though_garbage_is_collected(
    operator: Operator,
) -> None:
    operator.ask("PUT", "/api/v2/bookie/compaction", {"major_suspended": True})
    assert operator.ask("POST", "/api/v2/bookie/gc").status == 202
    operator.world.run_for(2)
    (status,) = operator.get("/api/v2/bookie/gc")
    assert (status["rounds"], status["major_compactions"]) == (1, 0)
    assert status["minor_compactions"] == 1
    operator.ask("PUT", "/api/v2/bookie/compaction", {"major_suspended": False})
    operator.ask("POST", "/api/v2/bookie/gc", {"minor": False})
    operator.world.run_for(2)
    (status,) = operator.get("/api/v2/bookie/gc")
    assert (status["rounds"], status["major_compactions"]) == (2, 1)


def test_ledgers_come_page_by_page(operator: Operator) -> None:
    create(operator, 5)
    pages, after = [], ""
    while after != "None":
        page = operator.get(f"/api/v2/ledgers?limit=2{after and '&after=' + after}")
        pages.append(page["ledgers"])
        after = str(page["next_after"])
    assert pages == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("GET", "/nothing", b"", (404, "not_found")),
        ("GET", "/ledgers/77", b"", (404, "not_found")),
        ("GET", "/ledgers/x", b"", (400, "bad_request")),
        ("GET", "/ledgers/-1", b"", (400, "bad_request")),
        ("GET", "/ledgers?limit=0", b"", (400, "bad_request")),
        ("GET", "/ledgers?size=5", b"", (400, "bad_request")),
        ("DELETE", "/bookie", b"", (405, "method_not_allowed")),
        ("PUT", "/bookie/read-only", b"", (400, "bad_request")),
        ("PUT", "/bookie/read-only", b"[]", (400, "bad_request")),
        ("PUT", "/bookie/read-only", b"{", (400, "bad_request")),
        ("PUT", "/bookie/read-only", b'{"read_only": 1}', (400, "bad_request")),
        ("PUT", "/bookie/read-only", b'{"read_only": true, "x": 1}', (400, "bad_request")),
        (
            "PUT",
            "/autorecovery",
            b'{"lost_bookie_recovery_delay_s": -1}',
            (400, "bad_request"),
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_with_a_reason(
    operator: Operator, method: str, path: str, body: bytes, expected: tuple[int, str]
) -> None:
    assert problem(operator.ask(method, PREFIX + path, body)) == expected


def test_a_wrong_method_is_told_the_right_ones(operator: Operator) -> None:
    reply = operator.ask("DELETE", "/api/v2/bookie/gc")
    assert reply.headers == {"Allow": "GET, POST"}


def test_whoever_has_no_token_changes_nothing(operator: Operator) -> None:
    operator.token = "guess"
    for endpoint in ENDPOINTS:
        if endpoint.changes:
            reply = operator.ask(endpoint.method, PREFIX + endpoint.path, b"{}")
            assert problem(reply) == (401, "not_allowed"), endpoint.path


def test_a_bookie_that_has_not_started_says_so(early: Operator) -> None:
    reply = early.ask("GET", "/api/v2/bookie/ready")
    assert (reply.status, json.loads(reply.body)) == (503, {"ready": False, "state": "starting"})
    assert problem(early.ask("PUT", "/api/v2/bookie/read-only", {"read_only": True})) == (
        503,
        "not_serving",
    )
    assert problem(early.ask("POST", "/api/v2/bookie/gc")) == (503, "not_serving")
    assert early.get("/api/v2/bookie/disks") == []


def test_settings_that_forbid_it_are_a_conflict(tmp_path: Path) -> None:
    world = World(tmp_path, read_only_mode=False)
    done(world.service.start())
    reply = Operator(world).ask("PUT", "/api/v2/bookie/read-only", {"read_only": True})
    assert problem(reply) == (409, "refused")
    world.stop()


def test_the_page_of_metrics_and_the_description_are_there_too(operator: Operator) -> None:
    assert operator.ask("GET", "/api/v2/metrics").body == "# the page"
    assert operator.get("/api/v2/openapi.json") == openapi()
