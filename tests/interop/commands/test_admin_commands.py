"""Our admin commands and Java's own, each on a tree of its own: the same before, the same after.

Java's shell runs in the shared JVM: a process for each of its commands would take a minute.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from bkclient.blocking import with_store
from bkclient.metadata.tree.store import MetadataStore
from bkclient.metadata.versions_and_watches import NEW
from bkctl.commands.local.ports import free_port
from tests.bkclient.metadata.values import B1, B2, B3, closed, metadata
from tests.interop.peers.both_shells import INSTANCE_ID, Side, bkctl
from tests.interop.peers.java_shell import java_shell
from tests.interop.peers.our_bookie import our_bookie
from tests.interop.peers.peers import Peers, ledgers_root, write_client_conf, write_conf
from tests.support import reactor
from tests.support.waiting import until
from wire.ids import LedgerId
from wire.records.cookie import Cookie, encode_cookie

CLUSTER = "11111111-2222-4333-8444-555555555555"


@pytest.fixture
def sides(peers: Peers) -> Iterator[tuple[Side, Side]]:
    """Two clusters: one for Java's commands, one for ours."""
    both = tuple(
        Side(peers, peers.metadata_uri(), peers.new_directory(name)) for name in ("java", "ours")
    )
    yield both[0], both[1]
    for side in both:
        side.close()


async def _populate(store: MetadataStore) -> None:
    """Fill a cluster with what commands work on."""
    for ledger_id in (1, 2**40):
        await store.create_ledger(LedgerId(ledger_id), metadata(ctime_ms=1, store_ctime=True))
    await store.write_ledger(LedgerId(1), closed(), 0)
    await store.write_cookie(B2, b"cookie", NEW)
    await store.mark_underreplicated(LedgerId(1), (B3,))
    await store.elect(B1)
    await store.set_lost_bookie_recovery_delay(7)


async def _make_root(store: Any) -> None:
    await store._tree.create("")


def _without_note(tree: dict[str, tuple[bytes, int]]) -> dict[str, tuple[bytes, int]]:
    """Return a tree whose switch of autorecovery does not say who disabled it, as Java's."""
    switch = "/underreplication/disable"
    return {path: (b"" if path == switch else value, version)
            for path, (value, version) in tree.items()}  # fmt: skip


def test_each_command_leaves_the_tree_that_javas_leaves(sides: tuple[Side, Side]) -> None:
    java, ours = sides
    for side in sides:
        reactor.run(_populate(side.open()))
    assert java.tree() == ours.tree()
    cookie = encode_cookie(Cookie(B1, "/j", ("/l",), None, CLUSTER))
    file = java.directory / "VERSION"
    file.write_bytes(cookie)
    all_checks = ("--check", "all-ledgers", "--check", "placement", "--check", "replicas")
    update = ("updateBookieInLedger", "-srcBookie", B1, "-destBookie", B3)
    steps: tuple[tuple[tuple[object, ...], tuple[object, ...]], ...] = (
        (("autorecovery", "-disable"), ("autorecovery", "disable")),
        (("autorecovery", "-disable"), ("autorecovery", "disable")),
        (("autorecovery", "-enable"), ("autorecovery", "enable")),
        (("lostbookierecoverydelay", "-set", "30"), ("autorecovery", "delay", "30")),
        (("triggeraudit",), ("autorecovery", "audit")),
        (("forceauditchecks", "-calc", "-ppc", "-rc"), ("autorecovery", "audit", *all_checks)),
        (("cookie_create", "-cf", file, B1),
         ("cookie", "create", B1, "--file", file, "--force", "content")),
        (("cookie_update", "-cf", file, B2),
         ("cookie", "update", B2, "--file", file, "--force", "content", "--yes")),
        (("cookie_delete", B2),
         ("cookie", "delete", B2, "--yes", "--force", "open-ledgers", "--force", "only-copies")),
        (update, ("bookie", "rename", B1, B3, "--force", "unverified", "--yes")),
    )  # fmt: skip
    unchanged = []
    for number, (java_words, our_words) in enumerate(steps):
        before = ours.tree()
        assert java.java(*java_words) == 0, java_words
        ours.ours(*our_words)
        assert java.tree() == _without_note(ours.tree()), our_words
        if ours.tree() == before:
            unchanged.append(number)
    assert unchanged == [1]


def test_java_minds_no_reason_for_which_autorecovery_is_off(sides: tuple[Side, Side]) -> None:
    _, ours = sides
    ours.ours("autorecovery", "disable", "--for", "30m", "--reason", "new disks")
    assert "new disks" in ours.ours("autorecovery", "status").out
    assert ours.java("autorecovery", "-disable") == 0
    assert "new disks" in ours.ours("autorecovery", "status").out
    assert ours.java("autorecovery", "-enable") == 0
    assert ours.ours("autorecovery", "status", "--json").json["enabled"] is True
    assert ours.ours("ledger", "list").err == "no ledgers\n"


def test_the_whole_cluster_goes_and_comes_as_with_java(sides: tuple[Side, Side]) -> None:
    java, ours = sides
    for side in sides:
        reactor.run(_populate(side.open()))
        side.close()
        side.store = None
    assert java.java("metaformat", "-nonInteractive", "-force") == 0
    refused = ours.ours("metaformat", "-nonInteractive", "-force", ok=False)
    assert refused.status == 4
    ours.ours("metaformat", "-nonInteractive", "-force", "--no-backup", "--override", "ledgers")
    # Java deletes the instance id and creates it; ours is replaced in one step.
    assert java.tree() == {**ours.tree(), "/INSTANCEID": java.tree()["/INSTANCEID"]}
    ids = [side.ours("cluster", "instance-id").out.strip() for side in sides]
    assert len(set(ids)) == 2
    root = ledgers_root(java.uri)
    assert java.java("nukeexistingcluster", "-zkledgersrootpath", root, "-instanceid", ids[0]) == 0
    ours.ours("cluster", "nuke", "--instance-id", ids[1])
    assert java.tree() == ours.tree() == {}
    reactor.run(_make_root(ours.open()))  # As a nuke leaves it that was interrupted at its end.
    ours.close()
    ours.store = None
    ours.ours("cluster", "nuke", "--instance-id", ids[1])
    assert java.java("initnewcluster") == 0
    ours.ours("cluster", "init")
    assert java.tree() == ours.tree()
    assert java.java("initnewcluster") != 0
    assert ours.ours("cluster", "init", ok=False).status == 7


def test_a_generated_cookie_is_javas(sides: tuple[Side, Side]) -> None:
    java, _ = sides
    for index in (False, True):
        file = java.directory / f"cookie-{index}"
        more = ("-ix", "/i1,/i2") if index else ()
        words = ("cookie_generate", "-j", "/j1,/j2", "-l", "/l1,/l2", *more, "-o", file, B1)
        assert java.java(*words) == 0
        dirs = ["--journal-dir", "/j1", "--journal-dir", "/j2", "--ledger-dir", "/l1"]
        dirs += ["--ledger-dir", "/l2"]
        dirs += ["--index-dir", "/i1", "--index-dir", "/i2"] if index else []
        assert java.ours("cookie", "generate", B1, *dirs).out.encode() == file.read_bytes()


def test_javas_tools_and_ours_list_the_same_marks_and_workers(sides: tuple[Side, Side]) -> None:
    _, ours = sides
    store = ours.open()
    reactor.run(_populate(store))
    reactor.run(store.mark_underreplicated(LedgerId(2**40), (B1, B2)))
    assert reactor.run(store.acquire_lock(LedgerId(1)))
    conf = write_client_conf(ours.directory, ours.uri)
    told = java_shell(ours.peers.vm, conf, "listunderreplicated", "-pmr", "-prw")
    assert told.returncode == 0, told.stderr
    listed = ours.ours("autorecovery", "list", "--json").json["marks"]
    text = " ".join(f"{event.message} {event.attributes}" for event in told.events)
    assert [one["ledger_id"] for one in listed] == ["1", str(2**40)]
    for one in listed:
        assert one["ledger_id"] in text
        assert all(bookie in text for bookie in one["missing"])
    assert listed[0]["worker"] == "host"
    assert "host" in text


# Directories ------------------------------------------------------------------------------------


@attrs.define
class StoppedBookie:
    """A bookie that has a cookie and has never run; it goes by the address of the loopback."""

    side: Side
    port: int

    @property
    def conf(self) -> Path:
        return self.side.directory / "bk_server.conf"

    def configure(self, ledgers: int = 1, **more: object) -> None:
        base = self.side.directory
        settings = {
            "metadataServiceUri": self.side.uri,
            "bookiePort": self.port,
            "listeningInterface": "lo",
            "allowLoopback": "true",
            "journalDirectories": base / "journal",
            "ledgerDirectories": ",".join(str(base / f"ledgers{n}") for n in range(ledgers)),
        }
        write_conf(self.conf, {**settings, **more})

    def state(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """Return the tree and the VERSION files, as if the directories had one name."""
        base = str(self.side.directory).encode()
        tree = {
            path: (value.replace(base, b"BASE") if isinstance(value, bytes) else value, version)
            for path, (value, version) in self.side.tree().items()
        }
        files = {
            str(path.relative_to(self.side.directory)): INSTANCE_ID.sub(
                b"INSTANCEID", path.read_bytes().replace(base, b"BASE")
            )
            for path in sorted(self.side.directory.rglob("VERSION"))
        }
        return tree, files


@pytest.fixture
def stopped(sides: tuple[Side, Side]) -> tuple[StoppedBookie, StoppedBookie]:
    port = free_port()
    java, ours = (StoppedBookie(side, port) for side in sides)
    for one in (java, ours):
        one.configure()
        bkctl("disk", "init", "--write", "-c", one.conf)
    return java, ours


def test_a_bookie_flips_between_address_and_host_name_as_with_java(
    stopped: tuple[StoppedBookie, StoppedBookie],
) -> None:
    java, ours = stopped

    async def add(store: MetadataStore) -> None:
        listing = metadata().last_fragment
        ensemble = (f"127.0.0.1:{java.port}", B2)
        fragment = attrs.evolve(listing, ensemble=ensemble)
        for ledger_id in (1, 2):
            held = metadata(fragments=(fragment,), ctime_ms=1, store_ctime=True)
            await store.create_ledger(LedgerId(ledger_id), held)

    for one in stopped:
        with_store(one.side.uri, add)
    assert java.state() == ours.state()
    for kind, by_name in (("hostname", "true"), ("ip", "false")):
        before = ours.state()
        for one in stopped:
            one.configure(useHostNameAsBookieID=by_name)
        assert java.side.java("updatecookie", "-bookieId", kind, conf=java.conf) == 0
        assert java.side.java("updateledgers", "-bookieId", kind, conf=java.conf) == 0
        bkctl("bookie", "flip-id", kind, "--yes", "-c", ours.conf)
        assert java.state() == ours.state()
        assert ours.state() != before
        assert any(f"cookies/localhost:{java.port}" in path for path in ours.state()[0]) is (
            kind == "hostname"
        )


def test_storage_is_expanded_as_with_java(stopped: tuple[StoppedBookie, StoppedBookie]) -> None:
    java, ours = stopped
    before = ours.state()
    for one in stopped:
        one.configure(ledgers=3)
        for number in (1, 2):
            (one.side.directory / f"ledgers{number}" / "current").mkdir(parents=True)
    assert java.side.java("updatecookie", "-expandstorage", conf=java.conf) == 0
    bkctl("bookie", "expand-storage", "-c", ours.conf)
    assert java.state() == ours.state()
    assert len(ours.state()[1]) == len(before[1]) + 2


def test_a_cookie_goes_with_its_files_as_with_java(
    stopped: tuple[StoppedBookie, StoppedBookie],
) -> None:
    java, ours = stopped
    before = ours.state()
    assert java.side.java("updatecookie", "-delete", "force", conf=java.conf) == 0
    said = bkctl("compat", "-conf", ours.conf, "updatecookie", "-delete", "force").err
    assert said.startswith("bkctl cookie delete --local --yes")
    assert java.state() == ours.state()
    assert (len(before[1]), ours.state()[1]) == (2, {})


# Bookies on each other's clusters ---------------------------------------------------------------


def wait_until_elected(uri: str) -> None:
    """Wait for an auditor that has published its delay, which Java's does last."""
    for name in ("delay", "auditor"):
        words = ("-u", uri, "autorecovery", name)
        until(lambda words=words: bkctl(*words, ok=False).status == 0, timeout_s=120)  # type: ignore[misc]


def test_javas_bookie_starts_on_our_cluster_and_ours_on_javas(peers: Peers) -> None:
    made_by_us = peers.metadata_uri(initialised=False)
    bkctl("-u", made_by_us, "cluster", "init")
    formatted_by_us = peers.metadata_uri()
    bkctl("-u", formatted_by_us, "metaformat", "-n", "-f", "--no-backup")
    side = Side(peers, peers.metadata_uri(), peers.new_directory("shell"))
    assert side.java("metaformat", "-nonInteractive", "-force") == 0
    theirs = [
        peers.java_bookie(made_by_us, start=False),
        peers.java_bookie(formatted_by_us, start=False, autoRecoveryDaemonEnabled="true"),
    ]
    ours = our_bookie(peers, side.uri, start=False)
    for bookie in (*theirs, ours):
        bookie.spawn()
    for bookie in (*theirs, ours):
        bookie.wait_ready()
        said = bkctl("-u", bookie.uri, "bookie", "sanity", bookie.bookie_id)
        assert "is sane" in said.out
        shown = bkctl("-u", bookie.uri, "bookie", "info", bookie.bookie_id, "--json").json
        assert shown["state"] == "writable"
        assert shown["total"] > shown["free"] > 0
        assert shown["instance_id"] == bkctl("-u", bookie.uri, "cluster", "instance-id").out.strip()
    healing = theirs[1]
    wait_until_elected(formatted_by_us)
    assert bkctl("-u", formatted_by_us, "autorecovery", "auditor").out == f"{healing.bookie_id}\n"
    assert healing.bookie_id in bkctl("-u", formatted_by_us, "autorecovery", "trigger").out
    assert bkctl("-u", formatted_by_us, "doctor").out == ""
    found = bkctl("-u", made_by_us, "doctor", "-c", theirs[0].conf_path, "--json", ok=False)
    names = {one["name"] for one in found.json["findings"]}
    assert "auditor-missing" in names
    assert not {name for name in names if "cookie" in name or "bookie" in name}, names
    refused = bkctl("-u", side.uri, "metaformat", "-n", "-f", "--no-backup", ok=False)
    assert (refused.status, ours.bookie_id in refused.err) == (4, True)
