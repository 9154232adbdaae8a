"""The HTTP servers of a Java bookie and of ours, asked the same; and ``bkctl`` asking both.

Each has a cluster of its own in which the same has happened, so that answers can be compared.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from prometheus_client.parser import text_string_to_metric_families

from bkctl.cli.root import cli
from tests.bkctl.support.terminal import FakeHost
from tests.bookied.stats.java_metrics import is_excused, java_seen, shapes
from tests.interop.peers.admin import TOKEN, Admin, Answer, java_admin, our_admin
from tests.interop.peers.java_shell import java_shell
from tests.interop.peers.our_bookie import PATIENT_ENVIRON
from tests.interop.peers.peers import JavaVM, Peers, write_client_conf
from tests.support.waiting import until

DB = "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage"
ENTRIES = [b"entry %d \xff" % number for number in range(20)]
WINDOW_S = 2


@attrs.frozen
class Side:
    """One bookie, its cluster and the ledger that was written there."""

    admin: Admin
    uri: str
    ledger_id: int

    def plain(self, text: str) -> str:
        """Return an answer with what differs between any two bookies put out."""
        text = text.replace(self.admin.bookie.bookie_id, "BOOKIE")
        return text.replace(str(self.admin.bookie.directory), "DIR")


Sides = dict[str, Side]


@pytest.fixture(scope="module", params=["sorted", "db"])
def sides(request: pytest.FixtureRequest, module_peers: Peers) -> Sides:
    conf = {"prometheusStatsLatencyRolloverSeconds": WINDOW_S}
    if request.param == "db":
        conf |= {"ledgerStorageClass": DB}
    makers: dict[str, Callable[..., Admin]] = {"java": java_admin, "ours": our_admin}
    return {name: make_side(module_peers, make, conf) for name, make in makers.items()}


def make_side(peers: Peers, make: Callable[..., Admin], conf: dict[str, Any]) -> Side:
    uri = peers.metadata_uri()
    admin = make(peers, uri, **conf)
    client = peers.java_client(uri)
    ledger = client.create_ledger(1, 1, 1)
    ledger.add_many(ENTRIES)
    assert ledger.read(0, len(ENTRIES) - 1) == ENTRIES
    return Side(admin, uri, ledger.metadata().ledger_id)


def skeleton(value: Any) -> Any:
    """Return the shape of JSON: keys and types; texts as they are where they are words."""
    if isinstance(value, dict):
        return {key: skeleton(one) for key, one in sorted(value.items())}
    if isinstance(value, list):
        return [skeleton(one) for one in value]
    return type(value).__name__


def told(side: Side, answer: Answer) -> tuple[int, Any]:
    """Return what can be compared: the status, and a text whole or the skeleton of JSON."""
    body = side.plain(answer.body)
    if "conflict with page" in body:
        return 400, body  # Java: 500.
    if not body.lstrip().startswith(("{", "[")):
        return answer.status, body
    return answer.status, skeleton(Answer(answer.status, body, None).json)


V1 = "/api/v1"
BOOKIE = f"{V1}/bookie"
REPAIR = f"{V1}/autorecovery"
LEDGER = f"{V1}/ledger"

GETS = [
    "/heartbeat",
    "/heartbeat/",
    "/nonsense",
    f"{LEDGER}/list",
    f"{LEDGER}/list?print_metadata=true&decode_meta=true&page=1",
    f"{LEDGER}/metadata?ledger_id=ID",
    f"{LEDGER}/metadata",
    f"{LEDGER}/metadata?ledger_id=99999",
    f"{LEDGER}/metadata?ledger_id=x",
    f"{LEDGER}/read?ledger_id=ID&start_entry_id=0&end_entry_id=3",
    f"{LEDGER}/read?ledger_id=ID&page=1",
    f"{LEDGER}/read?ledger_id=ID&start_entry_id=5&end_entry_id=3",
    f"{LEDGER}/read?ledger_id=99999",
    f"{LEDGER}/read",
    f"{LEDGER}/delete",
    f"{BOOKIE}/info",
    f"{BOOKIE}/list_bookies",
    f"{BOOKIE}/list_bookies?type=ro",
    f"{BOOKIE}/list_bookies?type=rw&print_hostnames=true",
    f"{BOOKIE}/cluster_info",
    f"{BOOKIE}/expand_storage",
    f"{BOOKIE}/gc",
    f"{BOOKIE}/gc_details",
    f"{BOOKIE}/gc/suspend_compaction",
    f"{BOOKIE}/gc/resume_compaction",
    f"{BOOKIE}/state",
    f"{BOOKIE}/state/",
    f"{BOOKIE}/state/readonly",
    f"{BOOKIE}/is_ready",
    f"{BOOKIE}/entry_location_compact",
    f"{BOOKIE}/list_disk_file?file_type=journal",
    f"{REPAIR}/status",
    f"{REPAIR}/bookie",
    f"{REPAIR}/list_under_replicated_ledger",
    f"{REPAIR}/trigger_audit",
    f"{REPAIR}/decommission",
]

CHANGES: list[tuple[str, str, Any, str]] = [
    ("PUT", f"{BOOKIE}/gc", None, ""),
    ("PUT", f"{BOOKIE}/gc", {"forceMajor": True, "forceMinor": False}, ""),
    ("PUT", f"{BOOKIE}/gc", {"forceMajor": "x"}, ""),
    ("PUT", f"{BOOKIE}/gc/suspend_compaction", None, ""),
    ("PUT", f"{BOOKIE}/gc/suspend_compaction", {}, ""),
    ("PUT", f"{BOOKIE}/gc/suspend_compaction", {"suspendMajor": "true"}, ""),
    ("PUT", f"{BOOKIE}/gc/suspend_compaction", {"suspendMinor": True}, ""),
    ("GET", f"{BOOKIE}/gc/suspend_compaction", None, ""),
    ("PUT", f"{BOOKIE}/gc/resume_compaction", {"resumeMajor": True, "resumeMinor": True}, ""),
    ("PUT", f"{BOOKIE}/gc/resume_compaction", None, "{x"),
    ("PUT", f"{BOOKIE}/gc/resume_compaction", {}, ""),
    ("PUT", f"{BOOKIE}/state/readonly", {"readOnly": True}, ""),
    ("GET", f"{BOOKIE}/state", None, ""),
    ("PUT", f"{BOOKIE}/state/readonly", {"readOnly": True}, ""),
    ("PUT", f"{BOOKIE}/state/readonly", {"readOnly": "false"}, ""),
    ("PUT", f"{BOOKIE}/state/readonly", {}, ""),
    ("PUT", f"{BOOKIE}/state/readonly", None, "{x"),
    ("PUT", f"{BOOKIE}/state/readonly", None, ""),
    ("PUT", f"{BOOKIE}/state/readonly", {"x": 1}, ""),
    ("DELETE", f"{BOOKIE}/state/readonly", None, ""),
    ("PUT", f"{BOOKIE}/entry_location_compact", None, ""),
    ("PUT", f"{BOOKIE}/entry_location_compact", {"entryLocationRocksDBCompact": False}, ""),
    ("PUT", f"{BOOKIE}/entry_location_compact", {"entryLocationRocksDBCompact": True}, ""),
    ("PUT", f"{BOOKIE}/entry_location_compact", {"entryLocationRocksDBCompact": "true"}, ""),
    ("PUT", f"{BOOKIE}/entry_location_compact", {"entryLocationRocksDBCompact": None}, ""),
    ("PUT", f"{BOOKIE}/entry_location_compact", None, "{x"),
    (
        "PUT",
        f"{BOOKIE}/entry_location_compact",
        {"entryLocationRocksDBCompact": True, "entryLocations": "/a,/b"},
        "",
    ),
    (
        "PUT",
        f"{BOOKIE}/entry_location_compact",
        {"entryLocationRocksDBCompact": True, "entryLocations": " "},
        "",
    ),
    ("PUT", f"{V1}/config/server_config", {"gcWaitTime": "900000"}, ""),
    ("PUT", f"{V1}/config/server_config", None, "{x"),
    ("PUT", f"{V1}/config/server_config", None, ""),
    ("DELETE", f"{V1}/config/server_config", None, ""),
    ("PUT", f"{REPAIR}/status", None, ""),
    ("PUT", f"{REPAIR}/status?enabled=false", None, ""),
    ("GET", f"{REPAIR}/status", None, ""),
    ("PUT", f"{REPAIR}/status?enabled=true", None, ""),
    ("PUT", f"{REPAIR}/lost_bookie_recovery_delay", {"delay_seconds": 7}, ""),
    ("GET", f"{REPAIR}/lost_bookie_recovery_delay", None, ""),
    ("PUT", f"{REPAIR}/lost_bookie_recovery_delay", {}, ""),
    ("PUT", f"{REPAIR}/lost_bookie_recovery_delay", None, ""),
    ("PUT", f"{BOOKIE}/expand_storage", None, ""),
    ("GET", f"{BOOKIE}/sanity", None, ""),
    ("PUT", f"{REPAIR}/bookie", None, ""),
    ("PUT", f"{REPAIR}/bookie", {}, ""),
    ("PUT", f"{REPAIR}/bookie", {"bookie_src": []}, ""),
    ("PUT", f"{REPAIR}/bookie", {"bookie_src": ["127.0.0.1:1"], "delete_cookie": False}, ""),
    ("PUT", f"{REPAIR}/decommission", None, ""),
    ("PUT", f"{REPAIR}/decommission", {}, ""),
    ("PUT", f"{REPAIR}/decommission", {"bookie_src": "127.0.0.1:1"}, ""),
    ("PUT", "/metrics", None, ""),
    ("PATCH", "/heartbeat", None, ""),
    ("DELETE", f"{LEDGER}/delete", None, ""),
    ("DELETE", f"{LEDGER}/delete?ledger_id=7777", None, ""),
]


JAVA_FAILS = (500, "Internal Server Error")


def assert_alike(answers: dict[str, tuple[int, Any]], about: object) -> None:
    """Compare; where Java fails at what a client sent, our bookie says what is wrong with it."""
    if answers["java"] == JAVA_FAILS:
        assert answers["ours"][0] in {400, 404}, about
    else:
        assert answers["ours"] == answers["java"], about


def test_what_only_asks_is_answered_alike(sides: Sides) -> None:
    for path in GETS:
        for method in ("GET", "POST"):
            answers = {
                name: told(side, side.admin.ask(method, path.replace("ID", str(side.ledger_id))))
                for name, side in sides.items()
            }
            assert_alike(answers, (method, path))


def test_what_changes_something_is_answered_alike_in_turn(sides: Sides) -> None:
    for method, path, body, text in CHANGES:
        answers = {
            name: told(side, side.admin.ask(method, path, body, text=text))
            for name, side in sides.items()
        }
        assert_alike(answers, (method, path, body, text))


def test_a_bookie_passes_the_test_of_itself_and_finds_no_auditor(sides: Sides) -> None:
    for side in sides.values():
        passed = side.admin.get(f"{BOOKIE}/sanity")
        assert passed.json == {"passed": True, "readOnly": False}
        refused = side.admin.put(f"{REPAIR}/trigger_audit")
        assert refused.status == 404
        assert refused.body.startswith("Exception when do operation.")


def test_texts_with_figures_have_the_same_form(sides: Sides) -> None:
    for path in (f"{BOOKIE}/list_bookie_info", f"{BOOKIE}/last_log_mark"):
        forms = {
            name: re.sub(r"[0-9a-f]*[0-9][0-9a-f.]*", "N", side.plain(side.admin.get(path).body))
            for name, side in sides.items()
        }
        assert forms["ours"] == forms["java"], path


def test_entries_and_raw_metadata_are_the_same_to_the_byte(sides: Sides) -> None:
    for path in (
        f"{LEDGER}/read?ledger_id=ID&start_entry_id=0&end_entry_id=9",
        f"{LEDGER}/list?print_metadata=true",
    ):
        found = {
            name: side.admin.get(path.replace("ID", str(side.ledger_id))).json
            for name, side in sides.items()
        }
        assert found["ours"].keys() == found["java"].keys()
    read = {
        name: side.admin.get(f"{LEDGER}/read?ledger_id={side.ledger_id}&page=1").json
        for name, side in sides.items()
    }
    assert read["ours"] == read["java"]


def test_a_stranger_changes_nothing_of_ours(sides: Sides) -> None:
    ours = sides["ours"].admin
    stranger = attrs.evolve(ours, headers={})
    assert stranger.put(f"{BOOKIE}/state/readonly", {"readOnly": True}).status == 401
    assert ours.get(f"{BOOKIE}/state/readonly").json == {"readOnly": False}
    settings = stranger.get(f"{V1}/config/server_config")
    assert settings.json["httpAdminToken"] == "********"
    assert TOKEN not in settings.body


# Metrics -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pages(sides: Sides) -> dict[str, str]:
    def seen() -> dict[str, str] | None:
        """Return the pages, once a window has ended that saw something."""
        found = {name: side.admin.get("/metrics").body for name, side in sides.items()}
        are_all = all("bookie_journal_JOURNAL_SYNC_count" in page for page in found.values())
        return found if are_all else None

    return until(seen, "no window has ended that saw an add", pause_s=0.2)  # type: ignore[return-value]


def test_java_s_page_is_what_the_vector_says(sides: Sides, pages: dict[str, str]) -> None:
    is_db = "indexDir" in pages["java"]
    seen = java_seen()["sorted"] | (java_seen()["db"] if is_db else {})
    java = {name: one for name, one in shapes(pages["java"]).items() if "jvm_" not in name}
    assert java == {name: seen.get(name) for name in java}


def test_our_page_has_what_java_s_has_or_the_documentation_says_why_not(
    pages: dict[str, str],
) -> None:
    ours, java = shapes(pages["ours"]), shapes(pages["java"])
    shared = ours.keys() & java.keys()
    assert len(shared) > 60
    assert {name: ours[name] for name in shared} == {name: java[name] for name in shared}
    assert [name for name in java if name not in ours and not is_excused(name)] == []
    own = ("bookied_", "python_gc_")
    seen = java_seen()["sorted"].keys() | java_seen()["db"].keys()
    assert [n for n in ours if n not in seen and not n.startswith(own)] == []


def test_prometheus_can_read_our_page(pages: dict[str, str]) -> None:
    families = {one.name for one in text_string_to_metric_families(pages["ours"])}
    assert {"bookie_SERVER_STATUS", "bookie_WRITE_BYTES", "bookied_memory_bytes"} <= families


def value(page: str, start: str) -> float:
    (line,) = (line for line in page.splitlines() if line.startswith(start))
    return float(line.rpartition(" ")[2])


@pytest.mark.parametrize(
    "start",
    [
        'bookie_journal_JOURNAL_ADD_ENTRY_count{success="true"',
        'bookkeeper_server_ADD_ENTRY_REQUEST_count{success="true"',
        'bookkeeper_server_ADD_ENTRY_REQUEST_count{success="false"',
        'bookie_BOOKIE_ADD_ENTRY_BYTES_sum{success="true"',
        "bookie_WRITE_BYTES",
        "bookie_SERVER_STATUS",
        "bookie_JOURNAL_DIRS",
        'bookie_bookie_zk_set_data_count{success="false"',
        "bookie_ledger_num_dirs",
        "bookie_ledger_writable_dirs",
    ],
)
def test_what_both_have_seen_both_tell(pages: dict[str, str], start: str) -> None:
    found = {name: value(page, start) for name, page in pages.items()}
    assert found["ours"] == found["java"]


# bkctl -------------------------------------------------------------------------------------------


def bkctl(side: Side, *words: object, token: str = TOKEN) -> tuple[int, str, str]:
    host = FakeHost(environ=PATIENT_ENVIRON)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
        file.write(token)
        file.flush()
        command, *rest = map(str, words)
        line = ["-u", side.uri, "bookie", command, *rest, "--token-file", file.name, "--yes"]
        status = cli.run(line, host)
    host.close()
    return status, side.plain(host.out.text), host.err.text


@pytest.mark.parametrize("name", ["java", "ours"])
def test_bkctl_finds_both_and_speaks_to_each_in_its_way(sides: Sides, name: str) -> None:
    side = sides[name]
    me = side.admin.bookie.bookie_id
    assert bkctl(side, "ready", me)[:2] == (0, "bookie BOOKIE is ready\n")
    assert bkctl(side, "readonly", me, "on")[:2] == (0, "bookie BOOKIE is read-only\n")
    status, out, _ = bkctl(side, "state", me, "-o", "json")
    assert (status, '"read-only"' in out) == (0, True), out
    assert bkctl(side, "readonly", me, "off")[:2] == (0, "bookie BOOKIE is writable\n")
    told = "bookie BOOKIE: minor compaction suspended, major compaction allowed\n"
    assert bkctl(side, "compaction", me, "suspend", "--no-major")[:2] == (0, told)
    assert "minor compaction allowed" in bkctl(side, "compaction", me, "resume")[1]
    assert bkctl(side, "gc", me)[:2] == (0, "bookie BOOKIE collects garbage now\n")
    assert bkctl(side, "gc-status", me, "-o", "json")[0] == 0
    assert "httpServerPort" in bkctl(side, "config", me, "httpServerPort")[1]
    key = "majorCompactionMaxTimeMillis"
    plan = bkctl(side, "config-set", me, f"{key}=86400001", "--dry-run")[1]
    assert re.search(f"set {key} of bookie BOOKIE from (no value|-1) to 86400001", plan)
    status, out, err = bkctl(side, "config-set", me, f"{key}=86400001", "-o", "csv")
    assert (status, out.splitlines()[-1].split(",")[1::2]) == (0, [key, "86400001"])
    assert ("a Java bookie accepts any key" in err) == (name == "java")
    assert "86400001" in bkctl(side, "config", me, key)[1]
    status, out, _ = bkctl(side, "metrics", me, "--grep", "^bookie_JOURNAL_DIRS")
    assert (status, "bookie_JOURNAL_DIRS" in out) == (0, True), out
    assert "QueueLength" in bkctl(side, "metrics", me, "--jmx-names")[1]


def test_java_s_shell_finds_the_http_server_of_ours(
    sides: Sides, java_vm: JavaVM, tmp_path: Path
) -> None:
    side = sides["ours"]
    conf = write_client_conf(tmp_path, side.uri)
    shown = java_shell(java_vm, conf, "endpointinfo", "-b", side.admin.bookie.bookie_id)
    assert shown.returncode == 0, shown.stderr
    assert shown.attribute("id") == ["bookie", "httpserver"]
    assert shown.attribute("port")[1] == str(side.admin.port)


def test_bkctl_says_what_is_missing(sides: Sides) -> None:
    side = sides["ours"]
    me = side.admin.bookie.bookie_id
    status, _, err = bkctl(side, "readonly", me, "on", token="guess")
    assert (status, "--token-file" in err) == (4, True), err
    status, _, err = bkctl(side, "state", "127.0.0.1:1")
    assert (status, "--http HOST:PORT" in err) == (3, True), err
    status, _, err = bkctl(side, "state", me, "--http", "127.0.0.1:1")
    assert (status, "no HTTP at" in err) == (5, True), err


@pytest.mark.parametrize(("name", "kind"), [("java", "Java bookie"), ("ours", "bookied")])
def test_bkctl_tells_a_java_bookie_from_one_of_ours_and_whose_version_is_known(
    sides: Sides, name: str, kind: str
) -> None:
    side = sides[name]
    host = FakeHost(environ=PATIENT_ENVIRON)
    assert cli.run(["-u", side.uri, "version", "--all", "--json"], host) == 0, host.err.text
    host.close()
    members = {one["member"]: one for one in json.loads(host.out.text)["members"]}
    found = members[side.admin.bookie.bookie_id]
    assert (found["kind"], found["version"] is None) == (kind, name == "java")
    assert (found["why"] is None) == (name == "ours")
