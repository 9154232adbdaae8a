"""Java's API: what was seen of a Java bookie (4.18.0), asked of ours."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bkclient.metadata import zk_paths
from bkclient.metadata.errors import MetadataUnavailableError
from bookied.admin.api import Access
from bookied.admin.paths_without_token import OPEN
from bookied.admin.v1 import endpoints as v1
from bookied.admin.v1.bookie_handlers import NO_OBJECT
from bookied.admin.v2.endpoints import ENDPOINTS, PREFIX
from bookied.config.bookie import StorageClass
from tests.bookied.admin.conftest import Operator, spoil_mark
from tests.bookied.worlds.clock_world import World
from tests.bookied.worlds.fakes import done
from wire.codes import DigestType
from wire.ids import BookieId, EntryId, LedgerId
from wire.ledger_metadata import Fragment, LedgerMetadata

BOOKIE = "/api/v1/bookie"
REPAIR = "/api/v1/autorecovery"

SEEN = [
    ("GET", "/heartbeat", b"", 200, "OK\n"),
    ("POST", "/heartbeat", b"", 200, "OK\n"),
    ("GET", "/heartbeat/", b"", 200, "OK\n"),
    ("PATCH", "/heartbeat", b"", 405, ""),
    ("GET", "/nonsense", b"", 404, "<html><body><h1>Resource not found</h1></body></html>"),
    ("PUT", "/metrics", b"", 403, "PUT is forbidden. Should be GET method"),
    ("POST", "/api/v1/ledger/list", b"", 404, "Not found method. Should be GET method"),
    ("GET", "/api/v1/ledger/metadata", b"", 404, "Not found method. Should be GET method"),
    (
        "DELETE",
        "/api/v1/ledger/delete",
        b"",
        404,
        "Not ledger found. Should provide ledger_id=<id>",
    ),
    ("DELETE", "/api/v1/ledger/delete?ledger_id=7", b"", 200, '"Deleted ledger: 7"'),
    ("GET", f"{BOOKIE}/is_ready", b"", 200, "OK"),
    ("GET", f"{BOOKIE}/gc", b"", 200, '{\n  "is_in_force_gc" : "false"\n}'),
    (
        "POST",
        f"{BOOKIE}/gc",
        b"",
        405,
        "Not allowed method. Should be PUT to trigger GC, Or GET to get Force GC state.",
    ),
    ("PUT", f"{BOOKIE}/gc", b"", 200, '"Triggered GC on BookieServer: b1"'),
    ("PUT", f"{BOOKIE}/gc", b'{"forceMajor": "x"}', 200, '"Triggered GC on BookieServer: b1"'),
    ("PUT", f"{BOOKIE}/gc/suspend_compaction", b"", 400, "Empty request body"),
    (
        "PUT",
        f"{BOOKIE}/gc/suspend_compaction",
        b"{}",
        400,
        "No suspendMajor or suspendMinor params found",
    ),
    (
        "PUT",
        f"{BOOKIE}/gc/suspend_compaction",
        b'{"suspendMinor": true}',
        200,
        '", Suspend minorGC on BookieServer: Bookie Server listening on b1 with id b1"',
    ),
    (
        "GET",
        f"{BOOKIE}/gc/resume_compaction",
        b"",
        404,
        (
            "Not found method. Should be PUT to resume major or minor compaction, "
            "Or GET to get compaction state."
        ),
    ),
    ("PUT", f"{BOOKIE}/state/readonly", b"{}", 200, '{\n  "readOnly" : false\n}'),
    ("GET", f"{BOOKIE}/entry_location_compact", b"", 200, "{}"),
    ("PUT", f"{BOOKIE}/entry_location_compact", b"", 400, "Empty request body"),
    (
        "PUT",
        f"{BOOKIE}/entry_location_compact",
        b'{"entryLocationRocksDBCompact": false}',
        200,
        "Not trigger Entry Location RocksDB compact.",
    ),
    ("PUT", f"{BOOKIE}/entry_location_compact", b"{", 400, f'"{NO_OBJECT}"'),
    (
        "PUT",
        f"{BOOKIE}/entry_location_compact",
        b'{"entryLocationRocksDBCompact": true}',
        200,
        '"Triggered entry Location RocksDB compact on bookie:b1"',
    ),
    (
        "PUT",
        f"{BOOKIE}/entry_location_compact",
        b'{"entryLocationRocksDBCompact": true, "entryLocations": "/a,/b"}',
        400,
        (
            '"Specified trigger compact entryLocations: /a,/b is invalid. '
            'Bookie entry location RocksDB path: []."'
        ),
    ),
    (
        "PUT",
        "/api/v1/config/server_config",
        b'{"gcWaitTime": 70000, "isThrottleByBytes": true}',
        200,
        "Success set server config.",
    ),
    (
        "PUT",
        "/api/v1/config/server_config",
        b"",
        404,
        "Request body not found. should contains k-v pairs",
    ),
    ("GET", f"{REPAIR}/status", b"", 200, '{\n  "enabled" : true\n}'),
    ("PUT", f"{REPAIR}/status", b"", 400, "Param 'enabled' not found in {}"),
    (
        "GET",
        f"{REPAIR}/list_under_replicated_ledger",
        b"",
        404,
        "No under replicated ledgers found",
    ),
    ("GET", f"{REPAIR}/trigger_audit", b"", 404, "Not found method. Should be PUT method"),
    (
        "PUT",
        f"{REPAIR}/trigger_audit",
        b"",
        404,
        "Exception when do operation.no auditor is elected",
    ),
    ("GET", f"{REPAIR}/bookie", b"", 404, "No request body provide."),
    ("PUT", f"{REPAIR}/bookie", b"", 404, "No request body provide."),
    (
        "PUT",
        f"{REPAIR}/bookie",
        b'{"bookie_src": []}',
        404,
        "Not found method. Should be PUT method",
    ),
    (
        "PUT",
        f"{REPAIR}/bookie",
        b'{"bookie_src": ["b7:1", "b8:1"]}',
        200,
        "Success send recovery request command.",
    ),
    ("PUT", f"{REPAIR}/decommission", b"", 404, "Null request body for DecommissionService."),
    ("PUT", f"{REPAIR}/decommission", b"{}", 404, "Request body not contains bookie_src."),
    (
        "PUT",
        f"{REPAIR}/decommission",
        b'{"bookie_src": "b7:1"}',
        200,
        "Success send decommission Bookie command b7:1",
    ),
    ("PUT", f"{BOOKIE}/expand_storage", b"", 200, "Success expand storage"),
    ("GET", f"{BOOKIE}/sanity", b"", 200, '{\n  "passed" : false,\n  "readOnly" : false\n}'),
    (
        "PUT",
        f"{REPAIR}/lost_bookie_recovery_delay",
        b"{}",
        404,
        "Request body not contains lostBookieRecoveryDelay.",
    ),
    (
        "PUT",
        f"{REPAIR}/lost_bookie_recovery_delay",
        b'{"delay_seconds": 7}',
        200,
        "Success set lostBookieRecoveryDelay to 7",
    ),
]

REFUSED = [
    ("GET", "/api/v1/ledger/metadata?ledger_id=99999", b"", 404, "there is no ledger 99999"),
    ("GET", "/api/v1/ledger/metadata?ledger_id=x", b"", 400, "'x' is not a whole number of 64 b"),
    ("GET", "/api/v1/ledger/metadata?ledger_id=-1", b"", 400, "has no path for ledger -1"),
    ("GET", f"/api/v1/ledger/list?print_metadata=true&page={2**63}", b"", 400, "is not a whole nu"),
    ("GET", "/api/v1/ledger/read?ledger_id=99999", b"", 404, "there is no ledger 99999"),
    (
        "GET",
        "/api/v1/ledger/read?ledger_id=0&start_entry_id=5&end_entry_id=3",
        b"",
        400,
        "parameter for start_entry_id: 5 and end_entry_id: 3 conflict with page=-1",
    ),
    ("PUT", f"{BOOKIE}/gc/suspend_compaction", b'{"suspendMajor": "true"}', 400, "not both bool"),
    ("PUT", f"{BOOKIE}/gc/resume_compaction", b"{x", 400, "the body is not valid JSON"),
    ("PUT", f"{BOOKIE}/state/readonly", b"", 400, "the body is not valid JSON"),
    ("PUT", f"{BOOKIE}/state/readonly", b'{"readOnly": [1]}', 400, "readOnly is not a boolean"),
    ("PUT", f"{BOOKIE}/state/readonly", b'{"x": 1}', 400, "readOnly is not a boolean"),
    (
        "PUT",
        f"{BOOKIE}/entry_location_compact",
        b'{"entryLocationRocksDBCompact": "true"}',
        400,
        "entryLocationRocksDBCompact is not a boolean",
    ),
    ("PUT", "/api/v1/config/server_config", b"[]", 400, "the body is not a JSON object"),
    ("PUT", f"{REPAIR}/bookie", b"{}", 400, "bookie_src is not a list"),
    (
        "PUT",
        f"{REPAIR}/lost_bookie_recovery_delay",
        b'{"delay_seconds": 2147483648}',
        400,
        "delay_seconds is not a delay in seconds: 2147483648",
    ),
]
"""Java fails at all of them: 500."""


@pytest.mark.parametrize(("method", "path", "body", "status", "text"), SEEN)
def test_it_says_what_java_says(
    operator: Operator, method: str, path: str, body: bytes, status: int, text: str
) -> None:
    reply = operator.ask(method, path, body)
    assert (reply.status, reply.body) == (status, text)


@pytest.mark.parametrize(("method", "path", "body", "status", "words"), REFUSED)
def test_it_names_what_is_wrong_where_java_fails(
    operator: Operator, method: str, path: str, body: bytes, status: int, words: str
) -> None:
    reply = operator.ask(method, path, body)
    assert (reply.status, words in reply.body) == (status, True), reply


def metadata_of(ledger_id: int) -> LedgerMetadata:
    return LedgerMetadata(
        ensemble_size=1,
        write_quorum=1,
        ack_quorum=1,
        fragments=(Fragment(EntryId(0), (BookieId("b1"),)),),
        digest_type=DigestType.CRC32C,
        password=b"hush",
        ctime_ms=ledger_id,
        custom={"app": b"test"},
    )


def create(operator: Operator, count: int) -> None:
    for ledger_id in range(count):
        done(
            operator.control.cluster.store.create_ledger(
                LedgerId(ledger_id), metadata_of(ledger_id)
            )
        )


def test_the_state_follows_the_operator_and_is_told_in_java_s_words(operator: Operator) -> None:
    operator.ask("PUT", f"{BOOKIE}/state/readonly", {"readOnly": True})
    assert operator.get(f"{BOOKIE}/state") == {
        "running": True,
        "readOnly": True,
        "shuttingDown": False,
        "availableForHighPriorityWrites": True,
    }
    operator.ask("PUT", f"{BOOKIE}/state/readonly", {"readOnly": "false"})
    assert operator.get(f"{BOOKIE}/state/readonly") == {"readOnly": False}


def test_a_bookie_that_must_be_read_only_stays_so(tmp_path: Path) -> None:
    world = World(tmp_path, force_read_only=True)
    done(world.service.start())
    reply = Operator(world).ask("PUT", f"{BOOKIE}/state/readonly", {"readOnly": False})
    assert (reply.status, reply.body.split(",")[0]) == (400, "Bookie is in forceReadOnly mode")
    world.stop()


def test_suspended_compactions_are_told_as_texts(operator: Operator) -> None:
    both = {"suspendMajor": True, "suspendMinor": True}
    operator.ask("PUT", f"{BOOKIE}/gc/suspend_compaction", both)
    operator.ask("PUT", f"{BOOKIE}/gc/resume_compaction", {"resumeMajor": True})
    assert operator.get(f"{BOOKIE}/gc/suspend_compaction") == {
        "isMinorGcSuspended": "true",
        "isMajorGcSuspended": "false",
    }


def test_the_first_page_of_ledgers_has_one_less_as_in_java(operator: Operator) -> None:
    create(operator, 150)
    every = operator.get("/api/v1/ledger/list")
    assert every == {str(number): None for number in range(150)}
    pages = [operator.get(f"/api/v1/ledger/list?print_metadata=true&page={n}") for n in (1, 2)]
    assert [len(page) for page in pages] == [99, 51]
    assert [next(iter(page)) for page in pages] == ["0", "99"]
    assert pages[0]["0"].startswith("BookieMetadataFormatVersion\t3\n")
    assert "hush" not in json.dumps(pages)


def test_ledgers_with_damaged_metadata_are_null_and_named_beside_the_others(
    operator: Operator,
) -> None:
    create(operator, 3)
    operator.world.cluster.set(zk_paths.HIERARCHICAL.path_of(LedgerId(1)), b"\xffnonsense")
    for decode in ("true", "false"):
        at = f"/api/v1/ledger/list?print_metadata=true&decode_meta={decode}"
        reply = operator.ask("GET", at)
        listed = json.loads(reply.body)
        assert (list(listed), listed["1"]) == (["0", "1", "2"], None)
        assert reply.headers["X-Problem"].startswith("ledger 1: ")


def test_metadata_has_java_s_names_and_no_password(operator: Operator) -> None:
    create(operator, 4)
    found = operator.get("/api/v1/ledger/metadata?ledger_id=3")["3"]
    assert found == {
        "ledgerId": 3,
        "metadataFormatVersion": 3,
        "ensembleSize": 1,
        "writeQuorumSize": 1,
        "ackQuorumSize": 1,
        "state": "OPEN",
        "length": 0,
        "lastEntryId": -1,
        "ctime": found["ctime"],
        "digestType": "CRC32C",
        "password": "********",
        "customMetadata": {"app": "dGVzdA=="},
        "closed": False,
        "allEnsembles": {"0": [{"id": "b1"}]},
        "ctoken": found["ctoken"],
    }
    listed = operator.get("/api/v1/ledger/list?print_metadata=true&decode_meta=true")
    assert listed["3"] == found


def test_underreplicated_ledgers_are_chosen_by_the_bookies_that_lack_them(
    operator: Operator,
) -> None:
    create(operator, 2)
    store = operator.control.cluster.store
    done(store.mark_underreplicated(LedgerId(0), [BookieId("b8")]))
    done(store.mark_underreplicated(LedgerId(1), [BookieId("b9")]))
    at = f"{REPAIR}/list_under_replicated_ledger"
    assert sorted(operator.get(at)) == [0, 1]
    assert operator.get(f"{at}?missingreplica=b9") == [1]
    assert operator.get(f"{at}?excludingmissingreplica=b9") == [0]
    assert operator.get(f"{at}?missingreplica=b9&printmissingreplica=") == {"1": ["b9"]}


def test_a_mark_that_cannot_be_read_hides_no_other_and_is_told(operator: Operator) -> None:
    create(operator, 2)
    store = operator.control.cluster.store
    done(store.mark_underreplicated(LedgerId(0), [BookieId("b8")]))
    spoil_mark(operator, LedgerId(1))
    at = f"{REPAIR}/list_under_replicated_ledger"
    for query, listed in (
        ("", [0, 1]),
        ("?printmissingreplica", {"0": ["b8"], "1": []}),
        ("?missingreplica=b8", [0]),
        ("?excludingmissingreplica=b9", [0]),
    ):
        reply = operator.ask("GET", at + query)
        assert json.loads(reply.body) == listed
        assert "the mark of ledger 1: " in reply.headers["X-Problem"]
        assert "`bkctl autorecovery forget 1`" in reply.headers["X-Problem"]
    assert operator.get(f"{BOOKIE}/cluster_info")["clusterUnderReplicated"] is True


def test_the_cluster_is_told_in_java_s_words(operator: Operator) -> None:
    assert operator.get(f"{BOOKIE}/cluster_info") == {
        "auditorElected": False,
        "auditorId": "",
        "clusterUnderReplicated": False,
        "ledgerReplicationEnabled": True,
        "totalBookiesCount": 1,
        "writableBookiesCount": 1,
        "readonlyBookiesCount": 0,
        "unavailableBookiesCount": 0,
    }
    assert operator.get(f"{BOOKIE}/list_bookies?type=rw&print_hostnames=true") == {"b1": "bookie7"}
    assert operator.get(f"{BOOKIE}/list_bookies?type=ro") == {}


def test_disks_marks_and_files_are_told_in_java_s_words(operator: Operator) -> None:
    sizes = operator.get(f"{BOOKIE}/info")
    assert sizes["totalSpace"] > sizes["freeSpace"] > 0
    (mark,) = operator.get(f"{BOOKIE}/last_log_mark").items()
    assert mark == ("LastLogMark: Journal Id - 0(0.txn)", "Pos - 0")
    files = operator.get(f"{BOOKIE}/list_disk_file")
    assert set(files) == {"journal files", "entrylog files", "index files"}
    assert files["journal files"].endswith(".txn\t")
    assert set(operator.get(f"{BOOKIE}/list_disk_file?file_type=index")) == {"index files"}


def test_a_collector_s_status_has_java_s_names(operator: Operator) -> None:
    (status,) = operator.get(f"{BOOKIE}/gc_details")
    assert set(status) == {
        "forceCompacting",
        "majorCompacting",
        "minorCompacting",
        "lastMajorCompactionTime",
        "lastMinorCompactionTime",
        "lastEntryLocationCompactionTime",
        "majorCompactionCounter",
        "minorCompactionCounter",
        "entryLocationCompactionCounter",
    }


def test_db_storage_tells_where_its_locations_are(tmp_path: Path) -> None:
    world = World(tmp_path, storage_class=StorageClass.DB)
    done(world.service.start())
    at = str(tmp_path / "ledgers/current/locations")
    operator, path = Operator(world), f"{BOOKIE}/entry_location_compact"
    assert operator.get(path) == {at: False}
    wanted = {"entryLocationRocksDBCompact": True, "entryLocations": at}
    reply = operator.ask("PUT", path, json.dumps(wanted).encode())
    told = f"Triggered entry Location RocksDB: {at} compact on bookie:b1."
    assert (reply.status, json.loads(reply.body)) == (200, told)
    assert operator.get(path) == {at: False}
    world.stop()


def test_settings_that_only_a_start_reads_are_refused_and_none_is_changed(
    operator: Operator,
) -> None:
    path = "/api/v1/config/server_config"
    before = operator.get(path)
    for body, why in (
        ({"gcWaitTime": 5, "bookiePort": 1}, "not while the bookie runs: bookiePort; to change"),
        ({"gcWaitTime": "soon"}, "gcWaitTime: 'soon' "),
        ({"gcWaitTime": None}, "gcWaitTime: 'null' "),
        ({"diskUsageThreshold": 0.5}, "diskUsageThreshold"),
    ):
        reply = operator.ask("PUT", path, json.dumps(body).encode())
        assert reply.status == 400
        assert why in reply.body
    assert operator.get(path) == before
    assert operator.ask("PUT", path, b'{"gcWaitTime": 70000}').status == 200
    assert operator.get(path) == {**before, "gcWaitTime": "70000"}


def test_a_bookie_that_has_not_started_is_alive_and_not_ready(early: Operator) -> None:
    assert early.ask("GET", "/heartbeat").status == 200
    reply = early.ask("GET", f"{BOOKIE}/is_ready")
    assert (reply.status, reply.body) == (503, "Bookie is not fully started yet")
    assert early.get(f"{BOOKIE}/state")["running"] is False
    assert early.ask("PUT", f"{BOOKIE}/gc").status == 400
    assert early.ask("GET", f"{BOOKIE}/last_log_mark").status == 404


def test_what_changes_something_needs_the_token(operator: Operator) -> None:
    changing = [(one, m) for one in v1.ENDPOINTS for m in v1.METHODS if one.is_guarded(m)]
    assert len(changing) == 15
    operator.token = "guess"
    for endpoint, method in changing:
        assert operator.ask(method, endpoint.path, b"{}").status == 401, endpoint.path
    assert operator.get(f"{BOOKIE}/state/readonly") == {"readOnly": False}


def test_what_is_open_is_what_the_docs_list_and_nothing_else() -> None:
    asked = {(one.path, method) for one in v1.ENDPOINTS for method in one.handlers}
    is_open = {path for path, method in asked if method == "GET"} - {
        one.path for one in v1.ENDPOINTS if one.is_guarded("GET")
    }
    is_open |= {PREFIX + one.path for one in ENDPOINTS if one.method == "GET"}
    is_open |= {f"{PREFIX}/metrics", f"{PREFIX}/openapi.json"}
    assert is_open == OPEN.keys()
    page = (Path(__file__).parents[4] / "docs/http.md").read_text()
    section = page.partition("## Without a token")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|`]+) \| (`[^|]*) \|$", section, re.MULTILINE)
    told = [(path, why) for why, paths in rows for path in re.findall(r"`([^`]+)`", paths)]
    assert sorted(told) == sorted(OPEN.items())


def test_without_a_token_nothing_is_written_or_read(operator: Operator) -> None:
    operator.token = ""
    for path in (f"{BOOKIE}/sanity", "/api/v1/ledger/read?ledger_id=0"):
        assert operator.ask("GET", path).status == 401
    assert operator.get("/api/v1/ledger/list") == {}


def test_numbers_beyond_64_bits_are_refused(operator: Operator) -> None:
    for number in (2**63, 10**30, -(2**63) - 1):
        reply = operator.ask("GET", f"/api/v1/ledger/metadata?ledger_id={number}")
        assert reply.status == 400
        assert operator.ask("GET", f"/api/v2/ledgers/{number}").status == 400


def test_without_a_token_nothing_can_be_changed_unless_that_is_wanted(tmp_path: Path) -> None:
    world = World(tmp_path)
    done(world.service.start())
    closed, opened = Operator(world, Access()), Operator(world, Access(open_to_all=True))
    assert closed.ask("PUT", f"{BOOKIE}/gc").status == 403
    assert opened.ask("PUT", f"{BOOKIE}/gc").status == 200
    world.stop()


def test_secrets_are_masked(tmp_path: Path) -> None:
    operator = Operator(World(tmp_path, http_token="keep it"))
    settings = operator.get("/api/v1/config/server_config")
    assert settings["httpAdminToken"] == "********"
    assert settings["bookieId"] == "b1"


def test_metadata_that_is_away_is_no_error_of_the_bookie(operator: Operator) -> None:
    operator.world.store.session.suspend()

    async def unavailable(_ledger_id: LedgerId) -> LedgerMetadata:
        raise MetadataUnavailableError("away")

    operator.control.cluster.metadata = unavailable  # type: ignore[method-assign]
    reply = operator.ask("GET", "/api/v1/ledger/metadata?ledger_id=1")
    assert (reply.status, reply.body) == (503, "away")
    operator.world.store.session.resume()
    operator.world.run_for(15)
