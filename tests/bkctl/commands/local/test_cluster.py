"""A local cluster before it starts: its directory, its ports, and what its directory keeps."""

from __future__ import annotations

import grp
import json
import os
import subprocess
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from bkctl.cli.root import cli
from bkctl.commands.local.bookie_process import BookieProcess, LocalStartError, with_settings
from bkctl.commands.local.cluster import LocalCluster
from bkctl.commands.local.directory import (
    BACKGROUND_LOG,
    CONF_FILE,
    ENV_FILE,
    PROFILE_FILE,
    START_REQUEST,
    STATE_FILE,
    TOKEN_FILE,
    ClusterRecord,
    LocalDirectory,
    bookie_directory,
    former_id,
    refuse_others_directory,
)
from bkctl.commands.local.metadata import ClusterMetadata
from bkctl.commands.local.ports import free_port
from bkctl.commands.local.start_stop_status import read, start_line
from bkctl.errors import ConflictError, RefusedError
from bkctl.exit_status import ExitStatus
from bkctl.session.profiles import read_profiles
from bookied.directories.lock import LOCK, DirectoryLocks
from bookied.directories.roots import CURRENT, VERSION
from tests.bkctl.support.terminal import FakeHost
from tests.support.waiting import until
from wire.records.cookie import Cookie, encode_cookie


def test_a_directory_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(RefusedError, match="holds something else"):
        LocalCluster(tmp_path, 3)
    assert (tmp_path / "thesis.tex").exists()


def test_only_a_directory_that_was_made_here_is_removed(tmp_path: Path) -> None:
    kept = LocalCluster(tmp_path, 1)
    kept.directory.remove()
    assert tmp_path.exists()
    made = LocalCluster(None, 1)
    made.directory.remove()
    assert not made.directory.path.exists()


def test_ports_come_from_the_base_on_and_stay_the_same(tmp_path: Path) -> None:
    first = LocalCluster(tmp_path, 2, port_base=15_000)
    assert [one.bookie_id for one in first.states()] == ["127.0.0.1:15000", "127.0.0.1:15001"]
    first.save()
    again = LocalCluster(tmp_path, 3, port_base=15_000)
    ids = [one.bookie_id for one in again.states()]
    assert ids == ["127.0.0.1:15000", "127.0.0.1:15001", "127.0.0.1:15002"]
    assert json.loads((tmp_path / STATE_FILE).read_text())["ports"] == [15_000, 15_001]


def test_a_cluster_that_runs_is_not_started_again(tmp_path: Path) -> None:
    (tmp_path / STATE_FILE).write_text('{"ports": [15000], "zookeeper_port": 0}')
    held = DirectoryLocks()
    held.take([tmp_path])
    try:
        with pytest.raises(ConflictError, match="runs already") as caught:
            LocalCluster(tmp_path, 1).start(frozenset, frozenset, lambda: None)
    finally:
        held.release()
    assert caught.value.hint == (
        f"to use it: . {tmp_path}/bkctl.env; for more bookies: bkctl local N --dir {tmp_path} "
        "(N counts a decommissioned bookie until its directory is removed)"
    )


def test_a_bookie_that_was_started_by_hand_is_named_by_its_process(tmp_path: Path) -> None:
    ledgers = tmp_path / "bookie-1" / "ledgers"
    ledgers.mkdir(parents=True)
    (tmp_path / STATE_FILE).write_text('{"ports": [15000], "zookeeper_port": 0}')
    held = DirectoryLocks()
    held.take([ledgers])
    try:
        said_so = pytest.raises(ConflictError, match=r"1 bookie in .* was started by hand")
        with said_so as caught, LocalCluster(tmp_path, 1) as cluster:
            cluster.start(frozenset, frozenset, lambda: None)
        said = _bkctl("local", "status", tmp_path)
        stopped = _bkctl("local", "stop", tmp_path)
    finally:
        held.release()
    assert caught.value.hint == f"kill {os.getpid()}"
    assert f"to start it: first kill {os.getpid()}, then bkctl local 1 --dir" in said[1]
    assert (stopped[0], f"kill {os.getpid()}" in stopped[1]) == (7, True)


@pytest.mark.parametrize("kind", ["ledgerDirectories", "journalDirectories"])
def test_a_bookie_is_recognized_by_the_directories_of_its_settings(
    tmp_path: Path, kind: str
) -> None:
    directory, elsewhere = tmp_path / "bk", tmp_path / "disk"
    directory.mkdir()
    LocalCluster(directory, 1).save()
    home = bookie_directory(directory, 1)
    home.mkdir()
    (home / CONF_FILE).write_text(f"ledgerDirectories={tmp_path}/free\n{kind}={elsewhere}\n")
    (elsewhere / "current").mkdir(parents=True)
    cookie = Cookie("moved:3181", "/journal", (str(elsewhere),))
    (elsewhere / "current" / "VERSION").write_bytes(encode_cookie(cookie))
    held = DirectoryLocks()
    held.take([elsewhere])
    try:
        found = read(directory).bookies[0]
        with closing(FakeHost()) as host:
            words = ["local", "stop", str(directory), "moved:3181", "--dry-run"]
            assert cli.run(words, host) == 0
            assert f"stop process {os.getpid()}, bookie moved:3181" in host.out.text
    finally:
        held.release()
    assert (found.bookie_id, found.state, found.pid) == ("moved:3181", "up", os.getpid())
    assert read(directory, frozenset({"another"})).bookies[0].state == "decommissioned"


def test_a_bookie_is_not_said_to_be_down_alone_while_the_metadata_is_away(tmp_path: Path) -> None:
    (tmp_path / STATE_FILE).write_text('{"ports": [15000, 15001], "zookeeper_port": 1}')
    new = _bkctl("local", "status", tmp_path)
    assert "decommissioned" not in new[1]
    current = bookie_directory(tmp_path, 1) / "ledgers" / "current"
    current.mkdir(parents=True)
    (current / "VERSION").write_bytes(encode_cookie(Cookie("127.0.0.1:15000", "/j", ("/l",))))
    said = _bkctl("local", "status", tmp_path)
    assert "a bookie that is shown as down may have been decommissioned" in said[1]


def test_a_decommissioned_bookie_whose_directory_was_removed_is_dropped(tmp_path: Path) -> None:
    LocalCluster(tmp_path, 3, port_base=15_000).save()
    for number in (1, 3):
        bookie_directory(tmp_path, number).mkdir()
    kept = frozenset({"127.0.0.1:15000", "127.0.0.1:15002"})
    assert {one.bookie_id for one in read(tmp_path, kept).bookies} == kept
    lost = LocalCluster(tmp_path, 2)
    lost.drop_removed(lambda: kept | {"127.0.0.1:15001"})  # Its disk is lost, not the bookie.
    assert len(lost.states()) == 3
    dropped = LocalCluster(tmp_path, 2)
    dropped.drop_removed(lambda: kept)
    assert {one.bookie_id for one in dropped.states()} == kept
    assert start_line(tmp_path) == f"bkctl local 2 --dir {tmp_path} --background"
    new = LocalCluster(tmp_path, 3, port_base=15_000).states()[2]
    assert (new.bookie_id, new.directory) == ("127.0.0.1:15003", f"{tmp_path}/bookie-4")


def test_no_new_cluster_is_made_for_bookies_of_a_removed_one(tmp_path: Path) -> None:
    """They would not start there, and a backup is restored into empty metadata alone."""
    current = tmp_path / "bookie-1" / "ledgers" / CURRENT
    current.mkdir(parents=True)
    cookie = Cookie("127.0.0.1:15000", "/j", ("/l",), instance_id="former")
    (current / VERSION).write_bytes(encode_cookie(cookie))
    (tmp_path / STATE_FILE).write_text('{"ports": [15000], "zookeeper_port": 0}')
    former = former_id([tmp_path / "bookie-1"])
    with ClusterMetadata(lambda: f"sqlite://{tmp_path}/metadata.db") as metadata:
        with pytest.raises(ConflictError, match="bookies have data of cluster former") as caught:
            metadata.initialize(former)
        assert "cluster restore FILE" in caught.value.hint
        metadata.initialize()
        metadata.initialize(former)


def test_a_start_reports_how_many_bookies_have_registered(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, 2) as cluster:
        ids = [one.bookie_id for one in cluster.states()]
        seen = iter([[], [], ids[:1], ids[:1], ids])
        steps: list[str] = []
        failed = cluster.start(lambda: frozenset(next(seen)), frozenset, lambda: None, steps.append)
    waits = f"1 of 2 bookies registered; waiting for {ids[1]}"
    assert (failed, steps) == ([], ["starting 2 bookies", waits])


@pytest.mark.parametrize(("columns", "shown"), [(80, True), (40, False)])
def test_the_table_of_the_bookies_fits_the_terminal(
    monkeypatch: pytest.MonkeyPatch, columns: int, *, shown: bool
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    host = FakeHost(tty=True, environ={"NO_COLOR": "1"})
    with TemporaryDirectory(prefix="bk") as path, closing(host):  # Shorter than ``tmp_path``.
        LocalCluster(Path(path), 2, port_base=15_000).save()
        assert cli.run(["local", "status", path], host) == ExitStatus.DONE
        table = [line.rstrip() for line in host.out.text.splitlines() if ":15" in line]
        said = host.err.text
    for number, line in enumerate(table, 1):
        cells = [f"127.0.0.1:{14_999 + number}", "down", "-", f"{path}/bookie-{number}"]
        assert line.split() == (cells if shown else cells[:3])
        assert len(line) <= columns
    assert len(table) == 2
    assert ("no space for: directory" in said) is not shown


def _bkctl(*words: object) -> tuple[int, str]:
    with closing(FakeHost()) as host:
        return cli.run(list(map(str, words)), host), host.err.text


def test_a_cluster_of_another_shape_is_a_conflict(tmp_path: Path) -> None:
    LocalCluster(tmp_path, 3).save()
    with pytest.raises(
        ConflictError, match="holds 3 bookies, not 2; a decommissioned bookie counts until"
    ) as caught:
        LocalCluster(tmp_path, 2)
    assert caught.value.hint == f"bkctl local 3 --dir {tmp_path} --background"
    with pytest.raises(ConflictError, match="without --zookeeper"):
        LocalCluster(tmp_path, 3, zookeeper=True)


def test_later_settings_are_kept_once_a_start_has_proven_them(tmp_path: Path) -> None:
    """A cluster keeps those that it was made with at once: the next start must not drop a login."""
    LocalCluster(tmp_path, 1, settings={"a": "1", "b": "2"}).save()  # As a start does at first.
    assert LocalCluster(tmp_path, 1).settings == {"a": "1", "b": "2"}
    later = LocalCluster(tmp_path, 1, settings={"b": "3"})
    later.save()
    assert LocalCluster(tmp_path, 1).settings == {"a": "1", "b": "2"}
    later.keep_settings()
    assert LocalCluster(tmp_path, 1).settings == {"a": "1", "b": "3"}


def test_new_values_replace_the_statements_of_a_settings_file_that_have_the_key() -> None:
    before = b"# a=0 \\\na=1,\\\n  2\n\nb : 3\n  aa=4"
    found = with_settings(before, {"a": "5", "b": "6"})
    assert found == b"# a=0 \\\n\n  aa=4\na=5\nb=6\n"
    assert with_settings(b"", {"a": "1"}) == b"a=1\n"


def test_the_settings_of_each_bookie_are_left_for_javas_shell(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path / "a,b", 2, port_base=15_000)
    for number in (1, 2):
        conf = tmp_path / "a,b" / f"bookie-{number}" / CONF_FILE
        conf.parent.mkdir(parents=True)
        conf.write_text(f"bookiePort={14_999 + number}\n")
    cluster.write_configs(tmp_path / "configs")
    found = {path.name: path.read_text() for path in (tmp_path / "configs").iterdir()}
    assert found == {
        "127.0.0.1:15000.conf": "bookiePort=15000\n",
        "127.0.0.1:15001.conf": "bookiePort=15001\n",
        "baseconf.conf": f"metadataServiceUri=sqlite://{tmp_path}/a\\,b/metadata.db\n",
    }


def test_metadata_elsewhere_stays_what_a_directory_was_made_with(tmp_path: Path) -> None:
    uri = "zk+hierarchical://zk:2181/ledgers"
    made = LocalCluster(tmp_path, 1, uri=uri)
    made.save()
    assert made.uri == LocalCluster(tmp_path, 1, uri=uri).uri == uri
    with pytest.raises(ConflictError, match="was made with zk"):
        LocalCluster(tmp_path, 1)
    (tmp_path / "own").mkdir()
    LocalCluster(tmp_path / "own", 1).save()
    with pytest.raises(ConflictError, match="metadata of its own"):
        LocalCluster(tmp_path / "own", 1, uri=uri)


def test_the_profile_names_the_cluster_and_its_token(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, 1)
    cluster.save()
    token = cluster.directory.token_file.read_text()
    assert len(token.strip()) >= 24
    assert cluster.directory.token_file.stat().st_mode & 0o077 == 0
    profile = read_profiles({"BKCTL_CONFIG": str(tmp_path / "config.toml")})["local"]
    assert profile.service_uri == cluster.uri
    assert profile.admin_token_file == str(cluster.directory.token_file)
    LocalCluster(tmp_path, 1).save()
    assert cluster.directory.token_file.read_text() == token  # That of bookies that run.


def test_the_profile_has_what_clients_of_secured_bookies_need(tmp_path: Path) -> None:
    given = {
        "tlsTrustStore": "/keys/authority.pem",
        "tlsKeyStore": "/keys/bookie.key",
        "clientKeyStore": "/keys/client.key",
        "saslJaasConfigFile": "/keys/jaas.conf",
        "bookieAuthProviderFactoryClass": "SASLBookieAuthProviderFactory",
        "gcWaitTime": "1000",
    }
    directory = LocalCluster(tmp_path, 1).directory
    directory.save(ClusterRecord("sqlite:///a.db", (), settings=given))
    profile = read_profiles({"BKCTL_CONFIG": str(tmp_path / "config.toml")})["local"]
    assert profile.client == {
        "clientTrustStore": "/keys/authority.pem",
        "clientKeyStore": "/keys/client.key",
        "saslJaasConfigFile": "/keys/jaas.conf",
    }


def test_a_profile_of_the_address_alone_names_the_one_with_the_token(tmp_path: Path) -> None:
    (tmp_path / "bk").mkdir(mode=0o700)
    cluster = LocalCluster(tmp_path / "bk", 1)
    cluster.save()
    with closing(FakeHost(environ={"BKCTL_CONFIG": str(tmp_path / "mine.toml")})) as host:
        assert cli.run(["profile", "create", "prod", "-u", cluster.uri], host) == 0
        line = f"bkctl profile import {tmp_path}/bk/config.toml"
        assert line in host.err.text
        assert cli.run([*line.split()[1:]], host) == 0
        assert cli.run(["profile", "create", "other", "-u", "sqlite:///l.db"], host) == 0
        assert host.err.text.count(line) == 1
    profile = read_profiles({"BKCTL_CONFIG": str(tmp_path / "mine.toml")})["local"]
    assert profile.admin_token_file == str(cluster.directory.token_file)


def test_a_profile_beside_that_of_the_cluster_survives_a_start_and_its_place_is_named(
    tmp_path: Path,
) -> None:
    LocalCluster(tmp_path, 1).save()
    before = (tmp_path / PROFILE_FILE).read_text()
    with closing(FakeHost(environ={"BKCTL_CONFIG": str(tmp_path / PROFILE_FILE)})) as host:
        assert cli.run(["profile", "create", "mine", "-u", "sqlite:///l.db"], host) == 0
        assert f"is removed with the local cluster in {tmp_path}, because" in host.err.text
        LocalCluster(tmp_path, 1).save()
        assert cli.run(["profile", "list", "-o", "id"], host) == 0
        assert host.out.text.endswith("local\nmine\n")
    for damaged in ("[", before.replace("sqlite", "sqlit")):
        (tmp_path / PROFILE_FILE).write_text(damaged)
        LocalCluster(tmp_path, 1).save()
        assert (tmp_path / PROFILE_FILE).read_text() == before


def test_bookies_are_spread_over_racks_that_a_script_names(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, 3, port_base=15_000, racks=2)
    ids = ["127.0.0.1:15000", "127.0.0.2:15001", "127.0.0.1:15002"]
    assert [one.bookie_id for one in cluster.states()] == ids
    cluster.save()
    script = tmp_path / "racks.sh"
    profile = read_profiles({"BKCTL_CONFIG": str(tmp_path / PROFILE_FILE)})["local"]
    assert profile.client == {"networkTopologyScriptFileName": str(script)}
    hosts = ["127.0.0.2", "127.0.0.1", "localhost"]
    said = subprocess.run([script, *hosts], check=True, capture_output=True, text=True).stdout
    assert said.split() == ["/rack-2", "/rack-1", "/default-rack"]
    assert [one.bookie_id for one in LocalCluster(tmp_path, 4).states()][:3] == ids
    with pytest.raises(ConflictError, match="was made with --racks 2"):
        LocalCluster(tmp_path, 3, racks=3)
    with closing(FakeHost()) as host:
        assert cli.run(["local", "status", str(tmp_path), "-o", "id"], host) == ExitStatus.DONE
        assert host.out.text.split() == ids


def test_its_files_are_replaced_not_overwritten(tmp_path: Path) -> None:
    LocalCluster(tmp_path, 1, port_base=15_000).save()
    names = (STATE_FILE, ENV_FILE)
    (tmp_path / STATE_FILE).chmod(0o644)  # As an editor may leave it.
    opened = {name: (tmp_path / name).open() for name in names}
    before = {name: (tmp_path / name).read_text() for name in names}
    LocalCluster(tmp_path, 1).save()
    for name, file in opened.items():
        with file:
            assert file.read() == before[name]
            assert os.fstat(file.fileno()).st_nlink == 0
    assert (tmp_path / STATE_FILE).stat().st_mode & 0o777 == 0o600
    assert not list(tmp_path.glob("*.part"))


def test_a_start_that_was_killed_before_its_record_was_complete_is_no_obstacle(
    tmp_path: Path,
) -> None:
    part = tmp_path / f".{STATE_FILE}.12ab34cd.part"
    part.write_text('{"ur')
    part.chmod(0o644)
    LocalCluster(tmp_path, 1).save()
    assert (tmp_path / STATE_FILE).stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to somebody else")
def test_a_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    path, link = tmp_path / "bk", tmp_path / "link"
    path.mkdir(mode=0o700)
    link.symlink_to(path)
    os.lchown(link, 65534, 65534)
    with pytest.raises(RefusedError, match="link belongs to user 65534"):
        LocalCluster(link, 1)
    os.chown(path, 65534, 65534)
    with pytest.raises(RefusedError, match="bk belongs to user 65534"):
        LocalCluster(path, 1)


def test_a_directory_that_every_user_can_change_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bk"
    path.mkdir()
    path.chmod(0o777)
    with pytest.raises(RefusedError, match="every user can change the files in"):
        LocalCluster(path, 1)


def test_a_directory_that_a_group_can_change_is_refused_unless_it_is_the_users_own(
    tmp_path: Path,
) -> None:
    path = tmp_path / "bk"
    path.mkdir()
    path.chmod(0o770)
    LocalCluster(path, 1)
    group = next(one for one in grp.getgrall() if one.gr_gid != os.getegid())
    if os.geteuid() == 0 or group.gr_gid in os.getgroups():
        os.chown(path, -1, group.gr_gid)
        path.chmod(0o770)
        with pytest.raises(RefusedError, match=f"group {group.gr_name} can change the files in"):
            LocalCluster(path, 1)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to somebody else")
def test_a_directory_that_another_user_made_meanwhile_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bk"
    found = LocalDirectory(path)
    path.mkdir(mode=0o700)
    os.chown(path, 65534, 65534)
    with pytest.raises(RefusedError, match="bk belongs to user 65534"):
        found.take()
    assert list(path.iterdir()) == []


FILES = (
    START_REQUEST,
    STATE_FILE,
    f"{STATE_FILE}.part",
    ENV_FILE,
    f"{ENV_FILE}.part",
    PROFILE_FILE,
    TOKEN_FILE,
    BACKGROUND_LOG,
    LOCK,
    "metadata.db",
    "bookie-1/bookie.conf",
    "bookie-1/bookie.log",
    "bookie-1/start.request",
)


@pytest.mark.parametrize("name", FILES)
def test_a_fifo_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path, name: str) -> None:
    path = tmp_path / "bk"
    path.mkdir()
    LocalCluster(path, 1).save()
    (path / "bookie-1").mkdir(exist_ok=True)
    (path / name).unlink(missing_ok=True)
    os.mkfifo(path / name)
    with closing(FakeHost()) as host:
        for words in (["1"], ["1", "--background"], ["stop"], ["status"]):
            given = [words[0], str(path), *words[1:]]
            assert cli.run(["local", *given], host) == ExitStatus.REFUSED, host.err.text
        assert f"{name} is not a regular file" in host.err.text


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("is_dangling", [False, True])
def test_a_link_in_the_place_of_a_file_is_refused(
    tmp_path: Path, name: str, *, is_dangling: bool
) -> None:
    path, elsewhere = tmp_path / "bk", tmp_path / "elsewhere"
    path.mkdir()
    LocalCluster(path, 1).save()
    (path / "bookie-1").mkdir(exist_ok=True)
    (path / name).unlink(missing_ok=True)
    (path / name).symlink_to(elsewhere)
    if not is_dangling:
        elsewhere.write_text("kept")
    before = [elsewhere.exists() and elsewhere.read_text()]
    with closing(FakeHost()) as host:
        for words in (["1"], ["1", "--background"], ["stop"], ["status"]):
            given = [words[0], str(path), *words[1:]]
            assert cli.run(["local", *given], host) == ExitStatus.REFUSED, host.err.text
        assert f"{name} is a symbolic link" in host.err.text
    assert before == [elsewhere.exists() and elsewhere.read_text()]


def test_a_bookie_may_have_its_directories_on_another_disk(tmp_path: Path) -> None:
    path, disk = tmp_path / "bk", tmp_path / "disk"
    (path / "bookie-1").mkdir(parents=True)
    path.chmod(0o700)
    disk.mkdir()
    (path / "bookie-1" / "ledgers").symlink_to(disk)
    refuse_others_directory(path)
    if os.geteuid() == 0:
        os.lchown(path / "bookie-1" / "ledgers", 65534, 65534)
        with pytest.raises(RefusedError, match="ledgers is a symbolic link"):
            refuse_others_directory(path)


def test_a_directory_need_not_be_named_where_its_environment_was_read(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, 1)
    cluster.save()
    for environ, status in (
        ({"BKCTL_CONFIG": str(tmp_path / PROFILE_FILE)}, ExitStatus.DONE),
        ({"BKCTL_CONFIG": str(tmp_path / "mine.toml")}, ExitStatus.USAGE),
        ({}, ExitStatus.USAGE),
    ):
        with closing(FakeHost(environ=environ)) as host:
            assert cli.run(["local", "status"], host) == status, host.err.text
            named = host.out.text if status is ExitStatus.DONE else host.err.text
            assert (str(tmp_path) in named) == (status is ExitStatus.DONE), named
    bookie_id = cluster.states()[0].bookie_id
    with closing(FakeHost(environ={"BKCTL_CONFIG": str(tmp_path / PROFILE_FILE)})) as host:
        assert cli.run(["local", "stop", bookie_id], host) == ExitStatus.DONE
        assert f"bookie {bookie_id} does not run" in host.err.text


def test_a_bookie_that_was_renamed_starts_on_its_new_port(tmp_path: Path) -> None:
    old, new = free_port(), free_port()
    own = {"metadataServiceUri": f"sqlite://{tmp_path}/missing", "httpAdminTokenFile": "token"}
    keys = {"bookiePort": str(new), "ledgerDirectories": str(tmp_path / "ledgers"), **own}
    (tmp_path / CONF_FILE).write_text("".join(f"{key}={text}\n" for key, text in keys.items()))
    bookie = BookieProcess("127.0.0.1", old, tmp_path)
    with pytest.raises(LocalStartError, match=f"does not set bookiePort={old}") as error:
        bookie.start(own)
    assert f"bkctl bookie rename -c {tmp_path / CONF_FILE}" in error.value.hint
    (tmp_path / "ledgers" / CURRENT).mkdir(parents=True)
    cookie = Cookie(f"127.0.0.1:{new}", "/j", (str(tmp_path / "ledgers"),))
    (tmp_path / "ledgers" / CURRENT / VERSION).write_bytes(encode_cookie(cookie))
    assert (bookie.port, bookie.bookie_id) == (new, f"127.0.0.1:{new}")
    try:
        bookie.start(own)
        assert bookie.runs
    finally:
        bookie.kill()
        bookie.stop(10)


@pytest.mark.parametrize("is_typed", [False, True])
def test_a_bookie_without_a_port_in_its_id_needs_no_directory(
    tmp_path: Path, *, is_typed: bool
) -> None:
    LocalCluster(tmp_path, 1).save()
    current = bookie_directory(tmp_path, 1) / "ledgers" / CURRENT
    current.mkdir(mode=0o700, parents=True)
    (current / VERSION).write_bytes(encode_cookie(Cookie("one", "/j", ("/l",))))
    environ = {} if is_typed else {"BKCTL_CONFIG": str(tmp_path / PROFILE_FILE)}
    more = ["--dir", str(tmp_path)] if is_typed else []
    for bookie_id, said in (("one", "bookie one does not run"), ("two", "has no bookie two")):
        with closing(FakeHost(environ=environ)) as host:
            cli.run(["local", "stop", bookie_id, *more], host)
            assert said in host.err.text


def test_a_stop_does_not_end_a_process_that_has_only_the_number(tmp_path: Path) -> None:
    LocalCluster(tmp_path, 1).save()
    held = DirectoryLocks()
    held.take([tmp_path])
    other = subprocess.Popen(["sleep", "60"])
    try:
        (tmp_path / LOCK).write_text(f"{other.pid}\n")
        with closing(FakeHost()) as host:
            cli.run(["local", "stop", str(tmp_path), "--dry-run"], host)
            assert "the process cannot be determined" in host.err.text
            cli.run(["local", "stop", str(tmp_path)], host)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
        held.release()


def test_a_bookie_whose_process_cannot_be_determined_is_not_said_to_be_down(
    tmp_path: Path,
) -> None:
    cluster = LocalCluster(tmp_path, 1)
    cluster.save()
    ledgers = tmp_path / "bookie-1" / "ledgers"
    held = DirectoryLocks()
    held.take([tmp_path, ledgers])
    try:
        for lock in (tmp_path / LOCK, ledgers / LOCK):
            lock.write_text("999999999\n")
        with closing(FakeHost()) as host:
            bookie_id = cluster.states()[0].bookie_id
            status = cli.run(["local", "stop", str(tmp_path), bookie_id], host)
            assert status == ExitStatus.CONFLICT
            assert "ledgers is locked, and the process cannot be determined" in host.err.text
            cli.run(["local", "status", str(tmp_path)], host)
            assert "None" not in host.err.text
        (tmp_path / LOCK).unlink()
        with closing(FakeHost()) as host:
            cli.run(["local", "status", str(tmp_path)], host)
            assert "the cluster is stopped" in host.err.text
            assert "None" not in host.err.text
    finally:
        held.release()


def test_a_huge_record_is_not_read(tmp_path: Path) -> None:
    (tmp_path / STATE_FILE).touch()
    os.truncate(tmp_path / STATE_FILE, 1 << 40)
    with closing(FakeHost()) as host:
        assert cli.run(["local", "stop", str(tmp_path)], host) == 1
        assert "cluster.json: larger than" in host.err.text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"ports": 3}',
        "{}",
        "[" * 100_000,
        '{"ports": ["x"]}',
        '{"ports": [1e999]}',
        '{"ports": [65536]}',
        '{"ports": [1], "uri": 5}',
        '{"ports": [1], "elsewhere": null}',
        '{"ports": [1], "zookeeper_port": "x"}',
        '{"ports": [1], "settings": ["x"]}',
        '{"ports": [1], "settings": {"x": 1}}',
    ],
)
def test_a_record_that_cannot_be_read_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / STATE_FILE).write_text(text)
    with pytest.raises(RefusedError, match=r"cluster\.json is not the record of a local cluster"):
        LocalCluster(tmp_path, 1)


@pytest.mark.parametrize(("racks", "adds"), [(2, True), (3, False)])
def test_bookies_are_added_to_a_running_cluster_with_its_number_of_racks(
    tmp_path: Path, racks: int, *, adds: bool
) -> None:
    directory = LocalDirectory(tmp_path / "d")
    directory.take()
    directory.save(ClusterRecord(uri=f"sqlite://{tmp_path}/m.db", ports=(1, 2), racks=2))
    host = FakeHost()
    words = ["local", "3", "--racks", str(racks), "--dir", str(directory.path), "--dry-run"]
    cli.run(words, host)
    directory.release()
    assert ("1 bookie more" in host.out.text + host.err.text) is adds


def test_the_request_to_start_a_bookie_that_is_still_ending_waits_for_its_end(
    tmp_path: Path,
) -> None:
    """The request was dropped, and `local start` waited a minute for a bookie that nobody began."""
    with LocalCluster(tmp_path, 1) as cluster:
        home = bookie_directory(tmp_path, 1)
        home.mkdir()
        request = home / START_REQUEST
        request.touch()
        cluster.start_requested(pytest.fail)
        assert not request.exists()
        request.touch()
        cluster.start_requested(pytest.fail)  # The bookie has just begun, and will find no cluster.
        assert request.exists()
        until(lambda: cluster.states()[0].state == "down")
        cluster.start_requested(pytest.fail)
        assert not request.exists()
