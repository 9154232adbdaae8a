"""Two bookies that restart, change their certificates and say what they have collected."""

from __future__ import annotations

import collections
import signal
from pathlib import Path
from typing import Any, Final

from bkclient.config.client import ClientConfig
from bkclient.config.properties import parse_properties
from bkclient.config.settings import load
from bkctl.bookies.http.admin_client import AdminClient
from tests.live.bookied.processes import BookieProcess, free_port, make_cluster, write_conf
from tests.support.certificates import Authority, bookie_keys, client_keys, write_pem
from wire.errors import BookKeeperError

NAMES: Final = ("b1", "b2")

_SMALL: Final = {
    "zkTimeout": 10_000,
    "logSizeLimit": 8 * 1024 * 1024,
    "journalMaxSizeMB": 16,
    "journalMaxBackups": 1,
    "flushInterval": 2000,
    "gcWaitTime": 2000,
    "minorCompactionInterval": 5,
    "majorCompactionInterval": 10,
    "minorCompactionThreshold": 0.3,
    "majorCompactionThreshold": 0.8,
}
"""What makes in minutes happen what takes a bookie days: full logs, checkpoints, compaction."""

_STORAGES: Final = {"b1": "SortedLedgerStorage", "b2": "storage.ldb.DbLedgerStorage"}
"""One of each kind of index, by the names of Java's classes."""

_COLLECTED: Final = ("minor_compactions", "major_compactions", "freed_by_removal_bytes",
                     "freed_by_compaction_bytes")  # fmt: skip


class Bookies:
    """A cluster of two in TLS, clients' certificates wanted; ``end`` leaves no process behind."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.uri = make_cluster(directory / "metadata.db")
        self._authority = Authority()
        self._client_pem = write_pem(
            directory / "client", self._authority.issue("client", hosts=()), self._authority
        )
        self._confs, self._http = {}, {name: free_port() for name in NAMES}
        for name in NAMES:
            self.rotate(name)
            self._confs[name] = self._conf(name)
        self.running: dict[str, BookieProcess] = {}
        self.counts: collections.Counter[str] = collections.Counter()

    def start(self, name: str) -> None:
        self.running[name] = BookieProcess(self._confs[name]).ready()

    def restart(self, name: str, how: signal.Signals) -> None:
        """End a bookie, and start it again.

        Raises:
            AssertionError: it did not end as it should.
        """
        self._count_collected(name)
        bookie = self.running[name]
        if how is signal.SIGKILL:
            bookie.kill()
        else:
            status = bookie.stop()
            assert status == 0, f"{name} ended with {status}: {bookie.last_line()}"
        self.counts[f"restarts by {how.name}"] += 1
        self.start(name)

    def rotate(self, name: str) -> None:
        """Write a new certificate of the same authority over a bookie's."""
        self._pem = write_pem(self.directory / name, self._authority.issue(name), self._authority)

    def rotate_all(self) -> None:
        """Have every bookie take a new certificate."""
        for name, bookie in self.running.items():
            self.rotate(name)
            bookie.process.send_signal(signal.SIGHUP)
        self.counts["certificate rotations"] += 1

    def tell_all(self) -> None:
        """Have every bookie write to its log what it is at."""
        for bookie in self.running.values():
            bookie.process.send_signal(signal.SIGQUIT)

    def end(self) -> None:
        """Stop them, and kill what does not stop."""
        for name, bookie in self.running.items():
            if bookie.process.poll() is None:
                self._count_collected(name)
                bookie.process.send_signal(signal.SIGTERM)
        for bookie in self.running.values():
            try:
                bookie.ended()
            finally:
                bookie.process.kill()

    def client_config(self, *, v2: bool) -> ClientConfig:
        """Return what a client is told that speaks V2 or V3."""
        told = client_keys(self._client_pem, tlsClientAuthentication="true")
        told |= {
            "useV2WireProtocol": str(v2).lower(), "addEntryTimeoutSec": 5,
            # What is read back at the end has to come, however busy the machine.
            "readEntryTimeoutSec": 30,
        }  # fmt: skip
        return load(ClientConfig, _properties(told))[0]

    def _conf(self, name: str) -> Path:
        told = {**_SMALL, "httpServerEnabled": "true", "httpServerPort": self._http[name]}
        told["ledgerStorageClass"] = f"org.apache.bookkeeper.bookie.{_STORAGES[name]}"
        told |= bookie_keys(self._pem, tlsClientAuthentication="true")
        return write_conf(self.directory / name, self.uri, **told)

    def _count_collected(self, name: str) -> None:
        """Add what a process has collected to the whole: its counters end with it."""
        try:
            admin = AdminClient("127.0.0.1", self._http[name], timeout_s=5)
            found = admin.ask("GET", "/api/v2/bookie/gc").json
        except BookKeeperError:
            self.counts["bookies that did not tell"] += 1
            return
        for collector in found:
            for key in _COLLECTED:
                self.counts[key.replace("_", " ")] += collector[key]


def _properties(told: dict[str, Any]) -> Any:
    return parse_properties("".join(f"{key}={value}\n" for key, value in told.items()))
