"""One cluster, and both sides' commands for it: Java's shell in the shared JVM, and ours."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs

from bkclient.blocking import with_store
from bkclient.metadata import open_metadata
from bkclient.metadata.tree.store import MetadataStore
from bkctl.cli.root import cli
from tests.bkctl.support.runner import Result
from tests.bkctl.support.terminal import FakeHost
from tests.interop.peers.java_client import PATIENT
from tests.interop.peers.our_bookie import PATIENT_ENVIRON
from tests.interop.peers.peers import Peers
from tests.support import reactor
from wire.ledger_metadata import decode_metadata

INSTANCE_ID = re.compile(rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def bkctl(*words: object, typed: str = "", ok: bool = True) -> Result:
    with closing(FakeHost(typed, environ=PATIENT_ENVIRON)) as host:
        status = cli.run([*map(str, words)], host)
    result = Result(status, host.out.data.decode("utf-8", "surrogateescape"), host.err.text)
    assert not ok or status == 0, (words, result)
    return result


@attrs.define
class Side:
    """One cluster, and how to give it commands."""

    peers: Peers
    uri: str
    directory: Path
    store: MetadataStore | None = None

    def java(self, *words: object, conf: Path | None = None) -> int:
        """Run a command of Java's shell; return its exit status."""
        vm = self.peers.vm.start()
        settings = vm.bookkeeper.conf.ServerConfiguration()
        if conf is not None:
            settings.loadConf(vm.java.io.File(str(conf)).toURI().toURL())
        settings.setMetadataServiceUri(self.uri)
        for key, value in PATIENT.items():
            settings.setProperty(key, value)
        shell = vm.bookkeeper.bookie.BookieShell()
        shell.setConf(settings)
        return int(vm.call(shell.run, vm.array(vm.java.lang.String, [str(w) for w in words])))

    def ours(self, *words: object, ok: bool = True) -> Result:
        return bkctl("-u", self.uri, *words, ok=ok)

    def open(self) -> MetadataStore:
        """Return a session that stays, to hold what is ephemeral."""
        self.store = open_metadata(
            self.uri,
            reactor=reactor.the_reactor(),
            session_timeout_s=PATIENT["zkTimeout"] / 1000,
            lock_owner="host",
        )
        reactor.run(self.store.connect())
        return self.store

    def tree(self) -> dict[str, Any]:
        """Return the tree, without what is random or a time."""
        dump = with_store(self.uri, _dump)
        return {path: comparable(path, *stored) for path, stored in dump.items()}

    def close(self) -> None:
        if self.store is not None:
            reactor.run(self.store.close())


async def _dump(store: MetadataStore) -> Any:
    return await store.dump()


def comparable(path: str, value: bytes, version: int) -> Any:
    """Return a node's value and version, whoever wrote it, and whenever."""
    if value.startswith(b"BookieMetadataFormatVersion"):
        return attrs.evolve(decode_metadata(value), creator_token=0), version
    if path.endswith("ctime"):
        return len(value), version
    value = re.sub(rb"ctime: \d+", b"ctime: 0", value)
    return INSTANCE_ID.sub(b"INSTANCEID", value), version
