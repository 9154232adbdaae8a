"""``bookied`` as a process: how it starts, how it ends, and what is left when it is killed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from bkclient.metadata import open_metadata
from bookied.__main__ import main
from bookied.directories.roots import VERSION
from bookied.errors import BookieExitStatus
from bookied.process.command_line import configure, log_path, parse_options
from tests.bookied.worlds.raw_client import RawClient
from tests.bookied.worlds.served_bookie import packet
from tests.live.bookied.processes import (
    SOON_FORGOTTEN,
    BookieProcess,
    free_port,
    make_cluster,
    write_conf,
)
from tests.support.reactor import call, run, the_reactor
from tests.support.waiting import until
from wire.codes import ReturnCode
from wire.messages import AddResponse

KILLS = 6


class Machine:
    """One cluster and its bookie processes; none outlives the test."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.uri = make_cluster(directory / "metadata.db")
        self.started: list[BookieProcess] = []

    def conf(self, name: str = "b1", **changes: object) -> Path:
        return write_conf(self.directory / name, self.uri, **changes)

    def start(self, conf: Path, *arguments: str, **how: Any) -> BookieProcess:
        process = BookieProcess(conf, *arguments, **how)
        self.started.append(process)
        return process

    def end(self) -> None:
        for process in self.started:
            if process.process.poll() is None:
                process.kill()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    found = Machine(tmp_path)
    yield found
    found.end()


def refusal(process: BookieProcess) -> tuple[int, str]:
    """Return the exit status and the one line that says why."""
    status = process.ended()
    (line,) = process.own_lines()
    assert process.last_line() == line
    return status, line


# Options and settings, in this process ------------------------------------------------------------


def test_a_conf_file_is_checked_without_starting(tmp_path: Path, capsys: Any) -> None:
    conf = tmp_path / "b.conf"
    conf.write_text(
        "metadataServiceUri=sqlite:///x\njournalDirectories=/j\nledgerDirectories=/l\n"
        "bookiPort=1\ndlog.x=1\n"
    )
    assert main(["--conf", str(conf), "--check-config"]) == BookieExitStatus.WARNINGS
    assert capsys.readouterr().out.splitlines() == [
        f"warning: {conf}:4: bookiPort: unknown key, not used; did you mean bookiePort?",
        f"note: {conf}:5: dlog.x: no effect: belongs to Java's table service",
        "the settings can be used",
    ]


def test_a_bad_conf_file_says_all_that_is_wrong(tmp_path: Path, capsys: Any) -> None:
    conf = tmp_path / "b.conf"
    conf.write_text("metadataServiceUri=sqlite:///x\nbookiePort=x\nzkTimeout=\n")
    assert main(["--conf", str(conf)]) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"bookied: {conf}:2: bookiePort: 'x' is not a whole number; allowed: 0 to 65535",
        f"bookied: {conf}:3: zkTimeout: '' is empty where a number must be; allowed: 1 and above",
    ]
    assert main(["--conf", str(conf), "--check-config"]) == BookieExitStatus.PROBLEMS
    assert capsys.readouterr().out.endswith("the settings cannot be used\n")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--conf", "/no/such.conf"], "/no/such.conf: No such file"),
        (["-X", "bookiePort"], "-X: 'bookiePort' is not KEY=VALUE"),
        (["--zkledgerpath", "/l"], "--zkledgerpath: goes with --zkserver"),
        ([], "metadataServiceUri: is not set; give it here or with --metadata-uri"),
        (["-p", "x", "-u", "sqlite:///x"], "the command line: bookiePort: 'x' is not a whole"),
        (["--strict-config", "-u", "sqlite:///x", "-X", "foo=1"], "the command line: foo: unknown"),
    ],
)
def test_a_bad_command_line_is_one_line_and_status_1(arguments, line, capsys, monkeypatch) -> None:
    monkeypatch.delenv("BOOKIE_CONF", raising=False)
    assert main(arguments) == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"bookied: {line}")


@pytest.mark.parametrize(
    ("arguments", "status", "output"),
    [
        (["--help"], 0, "Exit status: 0 stopped as asked"),
        (["--version"], 0, "a bookie in Python for clusters and clients of BookKeeper 4.18"),
        (["--nonsense"], 1, "see bookied --help"),
    ],
)
def test_help_and_version_end_with_0_and_nonsense_with_1(arguments, status, output, capsys) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == status
    said = capsys.readouterr()
    assert output in said.out + said.err


def test_options_of_javas_launcher_win_over_environment_and_file(
    tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    conf = tmp_path / "b.conf"
    conf.write_text("metadataServiceUri=zk://file:1/l\nbookiePort=1\ndiskCheckInterval=x\n")
    monkeypatch.setenv("BOOKIE_CONF", str(conf))
    monkeypatch.setenv("BK_diskCheckInterval", "y")
    options = ["-z", "h1:1,h2:2", "-m", "/r", "-p", "2", "-j", "/j", "-l", "/l1", "/l2", "-i", "/i"]
    assert (
        main([*options, "-r", "-hp", "8", "-withAutoRecovery", "--check-config"])
        == BookieExitStatus.PROBLEMS
    )
    assert (
        "BK_diskCheckInterval in the environment: diskCheckInterval: 'y'" in capsys.readouterr().out
    )
    monkeypatch.setenv("BK_diskCheckInterval", "5")
    config, findings = configure(parse_options([*options, "--readOnly"]), os.environ)
    assert config.service_uri == "zk+hierarchical://h1:1;h2:2/r"
    assert config.port == 2
    assert config.journal_directories == ("/j",)
    assert config.ledger_directories == ("/l1", "/l2")
    assert config.index_directories == ("/i",)
    assert config.force_read_only
    assert config.disk_check_interval_ms == 5
    assert findings == ()


@pytest.mark.parametrize(
    ("environ", "path"),
    [
        ({}, None),
        ({"BOOKIE_LOG_DIR": "/l"}, Path("/l/bookkeeper-server.log")),
        ({"BOOKIE_LOG_FILE": "x.log"}, Path("x.log")),
        ({"BOOKIE_LOG_DIR": "/l", "BOOKIE_LOG_FILE": "x.log"}, Path("/l/x.log")),
    ],
)
def test_the_environment_names_the_log_file(environ, path) -> None:
    assert log_path(parse_options([]), environ) == path
    assert log_path(parse_options(["--log-file", "/x"]), environ) == Path("/x")


# Processes ----------------------------------------------------------------------------------------


@pytest.mark.processes
def test_a_stopped_bookie_ends_with_0_and_keeps_what_it_acknowledged(machine: Machine) -> None:
    conf = machine.conf()
    bookie = machine.start(conf).ready()
    assert "STATUS=serving, writable" in bookie.told
    with bookie.client() as client:
        for entry_id in range(500):
            client.send_add(7, entry_id, payload_of(7, entry_id))
        answers = [client.receive() for _ in range(500)]
        assert all(isinstance(one, AddResponse) and one.rc is ReturnCode.EOK for one in answers)
        assert bookie.stop() == 0
    assert "stopped" in bookie.last_line()
    assert not (conf.parent / "ledgers/current/DIRTY").exists()
    again = machine.start(conf).ready()
    assert again.output.read_text().count("replayed 0 entries (0 bytes)") == 2
    with again.client() as client:
        check_ledger(client, 7, acknowledged=500, sent=500)
    assert again.stop() == 0


@pytest.mark.processes
def test_a_second_signal_ends_at_once_with_5(machine: Machine) -> None:
    bookie = machine.start(machine.conf()).ready()
    # Held still, so that it meets both at once.
    for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGCONT):
        bookie.process.send_signal(number)
    assert bookie.ended() == 5


@pytest.mark.processes
def test_signals_do_not_change_how_a_stopped_bookie_ends(machine: Machine) -> None:
    bookie = machine.start(machine.conf()).ready()
    bookie.process.terminate()
    until(lambda: "- stopped" in bookie.output.read_text())
    while bookie.process.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            bookie.process.wait(0.005)
        bookie.process.terminate()
    assert bookie.ended() in {0, 5}


@pytest.mark.processes
def test_a_port_in_use_ends_with_2(machine: Machine) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        bookie = machine.start(machine.conf(bookiePort=port))
        assert refusal(bookie) == (2, f"bookied: port {port} is in use by another process")


@pytest.mark.processes
def test_a_json_log_has_the_reason_as_its_last_line(machine: Machine) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        bookie = machine.start(machine.conf(bookiePort=port), "--log-format", "json")
        assert bookie.ended() == 2
    last = [json.loads(line) for line in bookie.output.read_text().splitlines()][-1]
    wanted = {"msg": f"port {port} is in use by another process", "exitStatus": 2, "level": "FATAL"}
    assert wanted.items() <= last.items()


@pytest.mark.processes
def test_a_log_file_gets_the_reason_as_well_as_stderr(machine: Machine) -> None:
    uri = f"sqlite://{machine.directory}/empty.db"
    log = machine.directory / "b.log"
    bookie = machine.start(machine.conf(metadataServiceUri=uri), "--log-file", str(log))
    status, line = refusal(bookie)
    assert status == 2
    assert line.removeprefix("bookied: ") in log.read_text().splitlines()[-1]


@pytest.mark.processes
def test_a_second_process_on_the_same_directories_ends_with_2(machine: Machine) -> None:
    conf = machine.conf()
    first = machine.start(conf).ready()
    second = machine.start(conf, "--bookieport", str(free_port()))
    status, line = refusal(second)
    assert status == 2
    journal = conf.parent / "journal"
    assert line == f"bookied: {journal} is in use by another bookie (process {first.pid})"
    assert first.stop() == 0


@pytest.mark.processes
def test_an_unreachable_zookeeper_ends_with_2(machine: Machine) -> None:
    uri = f"zk+hierarchical://127.0.0.1:{free_port()}/ledgers"
    status, line = refusal(machine.start(machine.conf(metadataServiceUri=uri)))
    assert status == 2
    assert line.startswith("bookied: the metadata service cannot be reached: ")
    assert "127.0.0.1" in line


@pytest.mark.processes
def test_a_cluster_that_was_never_made_ends_with_2(machine: Machine) -> None:
    uri = f"sqlite://{machine.directory}/empty.db"
    status, line = refusal(machine.start(machine.conf(metadataServiceUri=uri)))
    assert status == 2
    assert "bkctl cluster init" in line


@pytest.mark.processes
def test_a_bad_directory_ends_with_1(machine: Machine) -> None:
    (machine.directory / "file").write_text("")
    bad = machine.directory / "file" / "below"
    status, line = refusal(machine.start(machine.conf(ledgerDirectories=bad)))
    assert (status, line) == (1, f"bookied: {bad} cannot be used: Not a directory")


@pytest.mark.processes
def test_a_foreign_cookie_ends_with_6_field_by_field(machine: Machine) -> None:
    conf = machine.conf()
    assert machine.start(conf).ready().stop() == 0
    path = conf.parent / "ledgers/current" / VERSION
    path.write_bytes(path.read_bytes().replace(b'"b1"', b'"b2"'))
    again = machine.start(conf)
    assert refusal(again) == (
        6,
        f"bookied: the cookies do not fit the configuration; {path}: bookie id is b2, expected b1",
    )


@pytest.mark.processes
def test_a_damaged_journal_ends_with_7(machine: Machine) -> None:
    conf = machine.conf(flushInterval=3_600_000, **SOON_FORGOTTEN)
    bookie = machine.start(conf).ready()
    with bookie.client() as client:
        for entry_id in range(20):
            assert client.add(7, entry_id) is ReturnCode.EOK
    bookie.kill()
    (journal,) = (conf.parent / "journal/current").glob("*.txn")
    data = bytearray(journal.read_bytes())
    data[10_000] ^= 1
    journal.write_bytes(data)
    status, line = refusal(machine.start(conf))
    assert status == 7
    assert f"{journal} at offset 8192: damaged" in line
    assert "skipReplayJournalInvalidRecord=true" in line


@pytest.mark.processes
def test_hup_opens_the_log_file_anew_and_usr1_writes_the_state(machine: Machine) -> None:
    conf = machine.conf()
    log = machine.directory / "logs" / "b.log"
    log.parent.mkdir()
    bookie = machine.start(
        conf, "--log-format", "json", BOOKIE_LOG_DIR=str(log.parent), BOOKIE_LOG_FILE=log.name
    ).ready()
    log.rename(log.with_suffix(".1"))
    bookie.told.clear()
    bookie.process.send_signal(signal.SIGHUP)
    bookie.wait_for("RELOADING=1").ready()
    bookie.process.send_signal(signal.SIGQUIT)
    until(lambda: '"writable"' in log.read_text())
    events = [json.loads(line) for line in log.read_text().splitlines()]
    wanted = {"what": "state", "value": "writable"}
    assert any(wanted.items() <= event.items() for event in events)
    assert bookie.stop() == 0
    assert bookie.output.read_text() == ""


@pytest.mark.processes
def test_usr1_before_the_bookie_serves_collects_once_it_does(machine: Machine) -> None:
    conf = machine.conf(zkTimeout=3000)
    machine.start(conf).ready().kill()
    # It registers only when the session of the killed one has ended.
    bookie = machine.start(conf).wait_for("STATUS=registering")
    bookie.process.send_signal(signal.SIGUSR1)
    bookie.ready()
    until(lambda: "garbage collection was requested" in bookie.output.read_text())
    assert "garbage is collected once the bookie serves" in bookie.output.read_text()
    assert bookie.stop() == 0


@pytest.mark.processes
def test_the_admin_server_of_a_process_takes_a_new_token_on_hup(machine: Machine) -> None:
    token = machine.directory / "token"
    token.write_text("old")
    port = free_port()
    conf = machine.conf(httpServerEnabled="true", httpServerPort=port, httpAdminTokenFile=token)
    bookie = machine.start(conf).ready()

    def ask(method: str, path: str, token: str = "") -> tuple[int, str]:
        address = f"http://127.0.0.1:{port}{path}"
        headers = {"Authorization": f"Bearer {token}"}
        try:
            with urlopen(Request(address, method=method, headers=headers), timeout=60) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.read().decode()

    assert ask("GET", "/api/v1/bookie/is_ready") == (200, "OK")
    assert json.loads(ask("GET", "/api/v2/bookie")[1])["settings_file"] == str(conf)
    status, page = ask("GET", "/metrics")
    assert (status, "bookie_SERVER_STATUS 1" in page, "bookie_zk" in page) == (200, True, False)
    assert ask("PUT", "/api/v1/bookie/gc", "old")[0] == 200
    token.write_text("new")
    bookie.told.clear()
    bookie.process.send_signal(signal.SIGHUP)
    bookie.wait_for("RELOADING=1").ready()
    assert [ask("PUT", "/api/v1/bookie/gc", one)[0] for one in ("old", "new")] == [401, 200]
    assert bookie.stop() == 0
    output = bookie.output.read_text()
    assert "; 1 since the last line, now 127.0.0.1: PUT /api/v1/bookie/gc" in output
    assert "Traceback" not in output


@pytest.mark.processes
def test_a_bookie_killed_under_load_keeps_every_acknowledged_entry(machine: Machine) -> None:
    conf = machine.conf(
        flushInterval=200, journalMaxSizeMB=1, logSizeLimit=1 << 20, **SOON_FORGOTTEN
    )
    chance = random.Random(20261121)
    loads = [Load(ledger_id) for ledger_id in range(3)]
    for life in range(KILLS):
        bookie = machine.start(conf).ready()
        for load in loads:
            with bookie.client() as client:
                load.check(client)
        for load in loads:
            load.begin(bookie.client())
        time.sleep(chance.uniform(0.01, 0.4))
        if life == KILLS - 1:
            until(lambda: sum(load.acknowledged for load in loads) > 100)
        bookie.kill()
        for load in loads:
            load.end()
    bookie = machine.start(conf).ready()
    for load in loads:
        with bookie.client() as client:
            load.check(client)
    assert bookie.stop() == 0


class Load:
    """Adds to one ledger as fast as they are acknowledged, until the connection breaks."""

    WINDOW = 100
    ENTRIES_MAX = 3000  # A life, so that checking does not take longer than loading.

    def __init__(self, ledger_id: int) -> None:
        self.ledger_id = ledger_id
        self.sent = self.acknowledged = 0
        self._thread: threading.Thread | None = None
        self._errors: list[BaseException] = []

    def begin(self, client: RawClient) -> None:
        self._thread = threading.Thread(target=self._run, args=(client,))
        self._thread.start()

    def end(self) -> None:
        assert self._thread is not None
        self._thread.join()
        assert self._errors == []
        # What was sent and not acknowledged may be there or not; it is written again.
        self.sent = max(self.sent, self.acknowledged)

    def _run(self, client: RawClient) -> None:
        next_entry, limit = self.acknowledged, self.acknowledged + self.ENTRIES_MAX
        try:
            with client:
                while True:
                    while next_entry < min(self.acknowledged + self.WINDOW, limit):
                        client.send_add(
                            self.ledger_id, next_entry, payload_of(self.ledger_id, next_entry)
                        )
                        next_entry += 1
                        self.sent = max(self.sent, next_entry)
                    answer = client.receive()
                    assert isinstance(answer, AddResponse)
                    assert answer.rc is ReturnCode.EOK
                    assert answer.entry_id == self.acknowledged, "out of order"
                    self.acknowledged += 1
        except OSError:
            pass
        except BaseException as error:  # noqa: BLE001  # raised again by end()
            self._errors.append(error)

    def check(self, client: RawClient) -> None:
        check_ledger(client, self.ledger_id, acknowledged=self.acknowledged, sent=self.sent)


def payload_of(ledger_id: int, entry_id: int) -> bytes:
    seed = hashlib.sha256(b"%d %d" % (ledger_id, entry_id)).digest()
    return seed * (1 + entry_id % 30)


def check_ledger(client: RawClient, ledger_id: int, *, acknowledged: int, sent: int) -> None:
    """Every acknowledged entry is there, byte for byte; nothing is there that was never sent."""
    for entry_id, found in enumerate(client.read_many(ledger_id, range(sent + 5))):
        if isinstance(found, bytes):
            assert entry_id < sent, f"entry {entry_id} of ledger {ledger_id} was invented"
            wanted = packet(ledger_id, entry_id, payload=payload_of(ledger_id, entry_id))
            assert found == wanted, f"entry {entry_id} of ledger {ledger_id} has changed"
        else:
            assert found in {ReturnCode.ENOENTRY, ReturnCode.ENOLEDGER}
            assert entry_id >= acknowledged, f"entry {entry_id} of ledger {ledger_id} is lost"


@pytest.mark.processes
def test_an_idle_bookie_is_small(machine: Machine, record_property: Any) -> None:
    began_s = time.monotonic()
    bookie = machine.start(machine.conf()).ready()
    started_s = time.monotonic() - began_s
    record_property("start_s", round(started_s, 2))
    record_property("rss_idle_kib", bookie.rss_kib())
    assert bookie.rss_kib() < 100 * 1024
    assert "/cryptography/" not in Path(f"/proc/{bookie.pid}/maps").read_text()  # Nor TLS.
    assert bookie.stop() == 0


def test_help_needs_no_reactor() -> None:
    code = (
        "import sys, bookied.process.command_line as o\n"
        "try: o.parse_options(['--help'])\n"
        "except SystemExit: pass\n"
        "sys.exit(any(m.startswith(('twisted.internet', 'kazoo')) for m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, stdout=subprocess.DEVNULL)
    assert done.returncode == 0


# Autorecovery as a process of its own ------------------------------------------------------------


def current_auditor(machine: Machine) -> str | None:
    store = call(lambda: open_metadata(machine.uri, reactor=the_reactor()))
    run(store.connect())
    try:
        return run(store.current_auditor())
    finally:
        run(store.close())


@pytest.mark.processes
def test_autorecovery_runs_alone_and_stops_when_it_is_told_to(machine: Machine) -> None:
    conf = machine.conf("b7")
    process = machine.start(conf, command=["autorecovery"]).ready()
    until(lambda: current_auditor(machine))
    assert current_auditor(machine) == "b7"
    process.process.send_signal(signal.SIGQUIT)
    process.process.send_signal(signal.SIGUSR1)
    assert process.stop() == 0
    assert current_auditor(machine) is None
    assert process.own_lines() == []
    text = process.output.read_text()
    assert "this process is not a bookie" in text
    assert "metadata session: 0x" in text
    assert "may be emptied" not in text
    # It needs neither the bookie's directories nor its port.
    assert not (conf.parent / "journal").exists()


@pytest.mark.processes
def test_autorecovery_alone_leaves_the_http_port_to_the_bookie_of_the_same_file(
    machine: Machine,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        conf = machine.conf("b8", httpServerEnabled="true", httpServerPort=port)
        process = machine.start(conf, command=["autorecovery"]).ready()
        assert process.stop() == 0
    assert "only bookies serve HTTP" in process.output.read_text()


@pytest.mark.processes
def test_a_bookie_with_autorecovery_is_a_candidate_for_auditor(machine: Machine) -> None:
    process = machine.start(machine.conf("b3"), "-withAutoRecovery").ready()
    until(lambda: current_auditor(machine))
    assert process.stop() == 0
    assert current_auditor(machine) is None


@pytest.mark.processes
def test_autorecovery_without_a_cluster_cannot_start_now(machine: Machine, tmp_path: Path) -> None:
    conf = write_conf(tmp_path / "b1", f"sqlite://{tmp_path / 'nothing.db'}")
    status, line = refusal(machine.start(conf, command=["autorecovery"]))
    assert status == 2
    assert "metadata" in line


def test_autorecovery_has_a_help_of_its_own(capsys: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["autorecovery", "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert "bookied autorecovery" in text
    assert "3 metadata session lost" in text
    assert "--journal" not in text


def test_autorecovery_refuses_a_bookies_options(capsys: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["autorecovery", "--readOnly"])
    assert ended.value.code == 1
    assert "--readOnly" in capsys.readouterr().err


def test_a_client_setting_that_is_refused_stops_only_who_repairs(
    tmp_path: Path, capsys: Any
) -> None:
    conf = tmp_path / "b.conf"
    conf.write_text(
        "metadataServiceUri=sqlite:///x\njournalDirectories=/j\nledgerDirectories=/l\n"
        "rereplicationEntryBatchSize=0\n"
    )
    assert main(["--conf", str(conf), "--check-config"]) == 0
    assert (
        main(["--conf", str(conf), "--check-config", "-withAutoRecovery"])
        == BookieExitStatus.PROBLEMS
    )
    assert main(["autorecovery", "--conf", str(conf)]) == 1
    assert "rereplicationEntryBatchSize" in capsys.readouterr().err


@pytest.mark.processes
def test_garbage_collections_of_a_bookie_that_serves_leave_out_what_its_start_made(
    machine: Machine,
) -> None:
    hook = machine.directory / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(
        "import atexit, gc\n"
        "say = lambda: print('tracked', len(gc.get_objects()), gc.isenabled(), "
        "gc.get_stats()[2]['collections'])\n"
        "atexit.register(say)\n"
    )
    bookie = machine.start(machine.conf(), PYTHONPATH=str(hook)).ready()
    assert bookie.stop() == 0
    said = re.findall(r"^tracked (\d+) (\w+) (\d+)$", bookie.output.read_text(), re.MULTILINE)
    ((tracked, enabled, full_collections),) = said
    # 80,000 without: a full collection stops the reactor for some 40 ms.
    assert int(tracked) < 20_000
    assert enabled == "True"
    assert int(full_collections) < 3  # Each that looks through all that is loaded takes 20 ms.
