"""The shell, when its ZooKeeper goes away and comes back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bkctl.support.cluster import BKCTL
from tests.interop.peers.peers import Peers
from tests.shell.screen import terminal
from tests.support.reactor import call, run, the_reactor
from tests.support.tcp_proxy import TcpProxy

pytestmark = pytest.mark.interop


def _is_lost(lines: list[str]) -> bool:
    """Tell what the bar says: that the connection is lost, or that a question found none."""
    return "connection with the metadata service lost" in lines[-1] or "no connection" in lines[-1]


def test_a_lost_zookeeper_is_told_and_survived(peers: Peers, tmp_path: Path) -> None:
    uri = peers.metadata_uri()
    host, _, port = peers.zookeeper.address.rpartition(":")
    proxy = TcpProxy(the_reactor(), int(port))
    call(proxy.start)
    peers.on_close(lambda: run(proxy.stop()))
    through = uri.replace(f"{host}:{port}", f"127.0.0.1:{proxy.port}")
    command = [*BKCTL, "-u", through, "shell"]
    own = {"XDG_STATE_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    with terminal(command, columns=120, **own) as shell:
        shell.shows("0 of 0 bookies writable")
        shell.type("cluster info -o id\r")
        prompt = shell.until(lambda lines: lines[shell.screen.cursor.y].startswith("bkctl "))[
            shell.screen.cursor.y
        ]

        proxy.accepts = False
        call(proxy.cut)
        shell.until(_is_lost)
        lost = prompt.replace(">", "!>")
        shell.type("\r")
        shell.prompts(lost)
        shell.enter("ledger list --timeout 1", lost)
        shell.shows("bkctl: time limit reached")
        shell.type("ledger list\r", "\x03")
        shell.prompts(lost)

        proxy.accepts = True
        shell.until(lambda lines: "0 of 0" in lines[-1] and not _is_lost(lines))
        shell.enter("ledger list", prompt)
        shell.shows("no ledgers")
