"""Our own bookie as a process, with the same handles as a Java one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

from bkclient.config.client import ClientConfig
from tests.interop.peers.java_client import PATIENT
from tests.interop.peers.peers import JavaBookie, Peers

PATIENT_CONFIG: Final = ClientConfig(
    timeout_s=PATIENT["readTimeout"], zk_timeout_ms=PATIENT["zkTimeout"]
)
"""For clients of ours that are not to take a slow bookie for a dead one."""

PATIENT_ENVIRON: Final = {
    "PAGER": "",
    **{
        f"BK_{key}": str(PATIENT[key])
        for key in ("readTimeout", "getBookieInfoTimeoutSecs", "zkTimeout")
    },
}
"""The environment of commands of ours that are to be as patient."""


class OurBookie(JavaBookie):
    """A ``bookied`` on the very ``bk_server.conf`` that a Java bookie would get."""

    def _command(self) -> list[str]:
        return [sys.executable, "-m", "bookied", "--conf", str(self.conf_path)]

    @classmethod
    def shipped(cls, uri: str, directory: Path, port: int = 0, **conf: Any) -> OurBookie:
        """Return one with its own defaults, to measure beside ``JavaBookie.shipped``."""
        return cls(uri, directory, port, defaults={}, **conf)


def our_bookies(peers: Peers, count: int, uri: str, **options: Any) -> list[OurBookie]:
    """Start bookies of ours side by side."""
    bookies = [our_bookie(peers, uri, start=False, **options) for _ in range(count)]
    for bookie in bookies:
        bookie.spawn()
    for bookie in bookies:
        bookie.wait_ready()
    return bookies


def our_bookie(peers: Peers, uri: str, *, start: bool = True, **options: Any) -> OurBookie:
    """Make a bookie of ours in a directory of its own, and start it."""
    bookie = OurBookie(uri, peers.new_directory("bookied"), **options)
    peers.on_close(bookie.kill)
    if start:
        bookie.start()
    return bookie
