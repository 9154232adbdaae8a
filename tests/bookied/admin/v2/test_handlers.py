"""The clean API: what it answers, and that its answers are what its description says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import jsonschema
import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import capturedLogs

from bookied.admin.api import Api
from bookied.admin.control.operations import Control
from bookied.admin.http.requests_and_replies import Credentials, HttpReply, HttpRequest
from bookied.admin.v2.endpoints import ENDPOINTS, PREFIX, openapi
from bookied.config.bookie import StorageClass
from bookied.config.reload import EARLIER, RUN_TIME, SettingsSource
from tests.bookied.admin.conftest import Operator, spoil_mark
from tests.bookied.admin.v1.test_v1 import create, metadata_of
from tests.bookied.worlds.clock_world import World
from tests.bookied.worlds.fakes import done
from wire.ids import BookieId, EntryId, LedgerId
from wire.ledger_metadata import Fragment
from wire.records.cookie import decode_cookie

BODIES: dict[str, Any] = {
    "set_read_only": {"read_only": False},
    "set_compaction": {"major_suspended": True},
    "set_config": {"key": "gcWaitTime", "value": "70000"},
    "set_autorecovery": {"lost_bookie_recovery_delay_s": 30},
    "recover": {"bookie_id": "b8"},
    "decommission": {"bookie_id": "b8", "keep_cookie": True},
}


def problem(reply: HttpReply) -> tuple[int, str]:
    return reply.status, json.loads(reply.body)["error"]["code"]


def test_a_mark_that_cannot_be_read_hides_no_other_and_says_what_to_do(operator: Operator) -> None:
    create(operator, 2)
    done(operator.control.cluster.store.mark_underreplicated(LedgerId(1), [BookieId("b8")]))
    spoil_mark(operator, LedgerId(0))
    spoilt, whole = operator.get("/api/v2/autorecovery/underreplicated")
    assert whole == {"ledger_id": 1, "missing": ["b8"], "problem": None}
    assert (spoilt["ledger_id"], spoilt["missing"]) == (0, [])
    assert "the mark of ledger 0: " in spoilt["problem"]
    assert "`bkctl autorecovery forget 0`" in spoilt["problem"]
    assert len(operator.get("/api/v2/autorecovery/underreplicated?limit=1")) == 1


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda one: f"{one.method} {one.path}")
def test_every_answer_is_what_the_description_says(operator: Operator, endpoint: Any) -> None:
    create(operator, 2)
    done(operator.control.cluster.store.mark_underreplicated(LedgerId(0), [BookieId("b8")]))
    done(operator.control.cluster.store.elect(BookieId("b9")))
    done(operator.control.cluster.store.set_lost_bookie_recovery_delay(0))
    operator.control.repairs.recover(BookieId("b7"), skip_open=True, delete_cookie=False)
    path = PREFIX + endpoint.path.format(ledger_id=1, job_id=1)
    reply = operator.ask(endpoint.method, path, BODIES.get(endpoint.call.__name__, b""))
    assert reply.status == endpoint.status, reply
    described = openapi()
    operation = described["paths"][PREFIX + endpoint.path][endpoint.method.lower()]
    answer = operation["responses"][str(reply.status)]["content"]["application/json"]["schema"]
    schema = {**answer, "components": described["components"]}
    jsonschema.Draft202012Validator(schema).validate(json.loads(reply.body))


def test_a_setting_can_be_changed_where_that_takes_effect(operator: Operator) -> None:
    before = operator.get("/api/v2/config")
    told = operator.ask("PUT", "/api/v2/config", {"key": "gcWaitTime", "value": "70000"})
    assert json.loads(told.body) == operator.get("/api/v2/config") == {
        **before, "gcWaitTime": "70000",
    }  # fmt: skip
    refused = operator.ask("PUT", "/api/v2/config", {"key": "bookiePort", "value": "1"})
    assert problem(refused) == (400, "bad_request")
    assert "not while the bookie runs: bookiePort" in refused.body


def test_where_a_setting_comes_from_is_told(tmp_path: Path) -> None:
    world = World(tmp_path)
    done(world.service.start())
    now, path = {"config": world.service.config}, "/api/v2/config/origins"
    operator = Operator(world)
    source = SettingsSource(lambda: now["config"], origins=lambda: {"flushInterval": "b.conf:3"})
    operator.api = Api(Control(world.service, lambda: "", source), operator.access)
    found = operator.get(path)
    assert (found["flushInterval"], found["gcWaitTime"]) == ("b.conf:3", "default")
    operator.ask("PUT", "/api/v2/config", {"key": "gcWaitTime", "value": "70000"})
    now["config"] = attrs.evolve(now["config"], flush_interval_ms=77_000)
    found = operator.get(path)
    assert (found["flushInterval"], found["gcWaitTime"]) == (EARLIER, RUN_TIME)
    now["config"] = attrs.evolve(world.service.config, gc_wait_ms=70_000)
    assert operator.get(path)["gcWaitTime"] == "default"
    world.stop()


def test_locations_are_compacted_one_or_all(tmp_path: Path) -> None:
    names = [str(tmp_path / name) for name in ("l0", "l1")]
    world = World(tmp_path, storage_class=StorageClass.DB, ledger_directories=tuple(names))
    done(world.service.start())
    operator, at = Operator(world), "/api/v2/bookie/locations"
    paths = [f"{name}/current/locations" for name in names]
    idle = [{"path": path, "compacting": False} for path in paths]
    assert operator.get(at) == idle
    for body in ({}, {"path": paths[1]}):
        assert operator.ask("POST", at, body).status == 202
    assert operator.get(at) == idle
    assert problem(operator.ask("POST", at, {"path": "/nowhere"})) == (400, "bad_request")
    world.stop()


def test_a_mode_is_answered_once_the_cluster_knows_of_it(operator: Operator) -> None:
    session = operator.world.store.session
    session.suspend()
    changing = Deferred.fromCoroutine(operator.control.set_read_only(read_only=True))
    operator.world.run_for(1)
    assert not changing.called
    session.resume()
    operator.world.run_for(1)
    assert changing.called


def test_a_mode_is_answered_although_the_metadata_service_is_away(operator: Operator) -> None:
    operator.world.store.session.suspend()
    reply = operator.ask("PUT", "/api/v2/bookie/read-only", {"read_only": True})
    assert reply.status == 200
    assert json.loads(reply.body) == {"read_only": True, "by_hand": True}


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
        (
            "PUT",
            "/autorecovery",
            b'{"lost_bookie_recovery_delay_s": 2147483648}',
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


# Jobs ---------------------------------------------------------------------------------------------


def lists_ledgers_on(operator: Operator, bookie_id: str, count: int) -> None:
    """Create ledgers that list a bookie that is not there."""
    for ledger_id in range(count):
        fragment = Fragment(EntryId(0), (BookieId(bookie_id),))
        metadata = attrs.evolve(metadata_of(ledger_id), fragments=(fragment,))
        done(operator.control.cluster.store.create_ledger(LedgerId(ledger_id), metadata))


def test_a_recovery_goes_on_behind_its_answer_and_can_be_followed(operator: Operator) -> None:
    lists_ledgers_on(operator, "gone", 2)
    begun = operator.ask("POST", "/api/v2/autorecovery/recover", {"bookie_id": "gone"})
    assert (begun.status, json.loads(begun.body)["kind"]) == (202, "recover")
    number = json.loads(begun.body)["job_id"]
    operator.world.run_for(60)
    (job,) = operator.get("/api/v2/jobs")
    assert job == operator.get(f"/api/v2/jobs/{number}")
    # The only other bookie cannot be reached from a test: what matters is that each one is told.
    assert (job["state"], job["total"], job["about"]) == ("done", 2, "gone")
    assert job["said"].startswith("0 ledgers moved; left: 0 (")
    assert job["ended_ms"] >= job["began_ms"]


def test_a_recovery_that_was_to_delete_a_cookie_fails_where_it_has_to_stay(
    operator: Operator,
) -> None:
    lists_ledgers_on(operator, "gone", 1)
    wanted = {"bookie_id": "gone", "delete_cookie": True}
    operator.ask("POST", "/api/v2/autorecovery/recover", wanted)
    operator.world.run_for(60)
    (job,) = operator.get("/api/v2/jobs")
    assert job["state"] == "failed"
    assert job["said"].startswith("the cookie stays: not all ledgers were moved: 0 (")


def test_the_same_is_not_begun_twice_and_can_be_stopped(operator: Operator) -> None:
    lists_ledgers_on(operator, "gone", 2)
    path = "/api/v2/autorecovery/decommission"
    number = json.loads(operator.ask("POST", path, {"bookie_id": "gone"}).body)["job_id"]
    again = operator.ask("POST", path, {"bookie_id": "gone"})
    assert problem(again) == (409, "refused")
    assert f"job {number} does that already" in again.body
    operator.world.run_for(90)
    job = operator.get(f"/api/v2/jobs/{number}")
    assert (job["state"], job["total"], job["done"]) == ("running", 2, 0)
    assert "ledger 1: its last fragment is open there" in job["said"]
    stopped = json.loads(operator.ask("DELETE", f"/api/v2/jobs/{number}").body)
    assert (stopped["state"], stopped["ended_ms"] is None) == ("cancelled", False)
    assert operator.ask("DELETE", f"/api/v2/jobs/{number}").status == 200
    assert problem(operator.ask("GET", "/api/v2/jobs/99")) == (404, "not_found")


def test_a_bookie_that_runs_is_not_taken_out(operator: Operator) -> None:
    me = operator.control.bookie_id
    for path, body in (
        ("decommission", {"bookie_id": me}),
        ("recover", {"bookie_id": me, "delete_cookie": True}),
    ):
        refused = operator.ask("POST", f"/api/v2/autorecovery/{path}", body)
        assert problem(refused) == (409, "refused")
    assert problem(operator.ask("POST", "/api/v2/autorecovery/recover", {"bookie_id": ""})) == (
        400, "bad_request",
    )  # fmt: skip
    assert operator.get("/api/v2/jobs") == []


def test_an_audit_needs_an_auditor(operator: Operator) -> None:
    assert problem(operator.ask("POST", "/api/v2/autorecovery/audit")) == (409, "refused")


def test_a_bookie_that_cannot_be_reached_fails_its_test(operator: Operator) -> None:
    found = json.loads(operator.ask("POST", "/api/v2/bookie/sanity").body)
    assert (found["passed"], found["read_only"], found["write_s"]) == (False, False, None)
    assert found["error"]
    assert operator.get("/api/v2/ledgers")["ledgers"] == []


def test_a_request_whose_client_leaves_is_no_failure(operator: Operator) -> None:
    asked = HttpRequest(method="POST", body=b"")
    answering = operator.api.answer(
        "/api/v2/bookie/sanity", asked, Credentials(f"Bearer {operator.token}")
    )
    with capturedLogs() as events:
        waiting = Deferred.fromCoroutine(answering)
        ended: list[Any] = []
        waiting.addBoth(ended.append)
        assert ended == []
        waiting.cancel()
    (failure,) = ended
    assert failure.check(CancelledError) is not None
    assert [one for one in events if "log_failure" in one] == []


def test_a_bookie_that_is_forced_read_only_is_not_tested(tmp_path: Path) -> None:
    world = World(tmp_path, force_read_only=True)
    done(world.service.start())
    operator = Operator(world)
    found = json.loads(operator.ask("POST", "/api/v2/bookie/sanity").body)
    assert (found["passed"], found["read_only"], found["error"]) == (False, True, None)
    assert operator.get("/api/v1/bookie/sanity") == {"passed": False, "readOnly": True}
    world.stop()


def test_directories_that_the_settings_name_anew_get_the_cookie(tmp_path: Path) -> None:
    world = World(tmp_path)
    done(world.service.start())
    now = {"config": world.service.config}
    operator = Operator(world)
    source = SettingsSource(lambda: now["config"])
    operator.api = Api(Control(world.service, lambda: "", source), operator.access)
    path = "/api/v2/bookie/expand-storage"
    assert json.loads(operator.ask("POST", path).body) == {"added": []}
    more = tmp_path / "more"
    config = world.service.config
    now["config"] = attrs.evolve(config, ledger_directories=(*config.ledger_directories, str(more)))
    assert json.loads(operator.ask("POST", path).body) == {"added": [str(more)]}
    cookie = decode_cookie((more / "current" / "VERSION").read_bytes())
    assert str(more) in cookie.ledger_dirs
    full = tmp_path / "full"
    (full / "current").mkdir(parents=True)
    (full / "current" / "0.log").write_bytes(b"somebody's")
    now["config"] = attrs.evolve(
        config, ledger_directories=(*config.ledger_directories, str(more), str(full))
    )
    refused = operator.ask("POST", path)
    assert (problem(refused), "has data but no cookie" in refused.body) == ((409, "refused"), True)
    told = operator.ask("PUT", "/api/v1/bookie/expand_storage")
    assert (told.status, told.body) == (
        500, "Exception while updating cookie for storage expansion",
    )  # fmt: skip
    world.stop()
