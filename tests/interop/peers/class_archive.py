"""The classes that Java peers load, kept as the JVM has them in memory (class data sharing).

With it a bookie, a client or the shell of Java starts in about half the CPU time. It is made once
for a user and a Java, beside the jars, by a JVM that does a bit of everything; one that cannot have
it, for a Java without the archive of its own classes, makes none and is as slow as ever.
"""

from __future__ import annotations

import signal
import tempfile
from pathlib import Path
from typing import Final

from bkctl.commands.local.java import find_java
from bkctl.commands.local.ports import free_port
from bkctl.commands.local.zookeeper import ZooKeeperProcess
from tests.interop.peers.jars import archive_path, locked
from tests.interop.peers.jvm import FAST_JVM, JavaVM
from tests.interop.peers.peers import FAST_CONF, Peers, write_conf

_SHELL: Final = (("listbookies", "-rw"), ("listledgers", "-meta"), ("bookiesanity",))
_WRITING_S: Final = 120.0


def ensure_class_archive(zookeeper: ZooKeeperProcess) -> None:
    """Have the archive for the Java in use made, unless it is there (ten seconds of one core).

    Calls at the same time wait for the one that makes it.

    Raises:
        PeerUnavailable, JavaNotFoundError: there is nothing to make it with.
    """
    archive = archive_path(find_java())
    with locked(archive.with_suffix(".lock")), tempfile.TemporaryDirectory() as directory:
        if not archive.exists():
            draft = archive.with_suffix(".draft")
            _write(draft, zookeeper, Path(directory))
            if draft.exists():
                draft.rename(archive)


def _write(archive: Path, zookeeper: ZooKeeperProcess, directory: Path) -> None:
    quiet = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
    options = (*FAST_JVM, *quiet, f"-XX:ArchiveClassesAtExit={archive}")
    vm = JavaVM(directory / "vm", jvm_options=options)
    stage = Peers(zookeeper, vm, directory)
    try:
        _do_a_bit_of_everything(stage)
        stage.close()
        status = vm.stop(_WRITING_S)
        assert status == 128 + signal.SIGTERM, f"{vm.directory} ended with {status}"
    finally:
        vm.kill()


def _do_a_bit_of_everything(stage: Peers) -> None:
    uri, vm = stage.metadata_uri(), stage.vm
    conf_path = stage.directory / "bk_server.conf"
    settings = {
        "metadataServiceUri": uri, "bookiePort": free_port(), "allowLoopback": "true",
        "advertisedAddress": "127.0.0.1", "journalDirectories": stage.new_directory("journal"),
        "ledgerDirectories": stage.new_directory("ledgers"), **FAST_CONF,
    }  # fmt: skip
    write_conf(conf_path, settings)
    conf = vm.bookkeeper.conf.ServerConfiguration()
    conf.loadConf(vm.java.io.File(str(conf_path)).toURI().toURL())
    server_conf = vm.bookkeeper.server.conf.BookieConfiguration(conf)
    bookie = vm.call(vm.bookkeeper.server.Main.buildBookieServer, server_conf)
    stage.on_close(bookie.close)
    vm.call(bookie.start)
    for v2 in (False, True):
        client = stage.java_client(uri, v2=v2)
        writer = client.create_ledger(1, 1, 1)
        writer.add_many([b"some", b"entries"])
        assert client.open_ledger(writer.ledger_id).read(0, 1) == [b"some", b"entries"]
    for words in _SHELL:
        shell = vm.bookkeeper.bookie.BookieShell()
        shell.setConf(conf)
        vm.call(shell.run, vm.array(vm.java.lang.String, words))
