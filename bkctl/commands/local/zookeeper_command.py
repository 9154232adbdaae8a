"""``bkctl local zookeeper``: one ZooKeeper server on this machine, until Ctrl-C."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bkctl.commands.local.columns import LocalZooKeeper
from bkctl.commands.local.metadata import HOST, ZooKeeperEndedError
from bkctl.errors import Interrupted, NothingFoundError, UsageError
from bkctl.exit_status import ExitStatus

if TYPE_CHECKING:
    from bkctl.commands.local.zookeeper_process import ZooKeeperProcess
    from bkctl.session.session import Session

PORT_DEFAULT: Final = 2181
PORT_MAX: Final = 65535
CONF_VARIABLE: Final = "BOOKIE_ZK_CONF"
_POLL_EVERY_S: Final = 0.5


def run(session: Session, directory: str | None, port: int | None, *, keep: bool) -> None:
    """Start a server, show where it is, and watch it until it is stopped.

    ``BOOKIE_ZK_CONF`` may name a zookeeper.conf, as for Java's launcher: its port and its directory
    count where no option says otherwise.

    Raises:
        ZooKeeperStartError: it did not start.
        ZooKeeperEndedError: it has ended by itself.
    """
    from bkctl.commands.local.zookeeper_process import ZooKeeperProcess

    conf = settings(session.host.environ)
    chosen = port or int(conf.get("clientPort", PORT_DEFAULT))
    home = directory or conf.get("dataDir")
    if session.dry_run:
        session.plan([f"start ZooKeeper at {HOST}:{chosen} in {home or 'a temporary directory'}"])
        return
    place = Path(home or tempfile.mkdtemp(prefix="bkctl-zookeeper-")).absolute()
    place.mkdir(parents=True, exist_ok=True)
    server = ZooKeeperProcess(place, chosen)
    try:
        with server:
            _watch(session, server)
    finally:
        if home is None and not keep:
            shutil.rmtree(place, ignore_errors=True)
        else:
            session.note(f"kept in {place}")


def settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what the file of ``BOOKIE_ZK_CONF`` says; nothing where it is not set.

    Raises:
        NothingFoundError: the file cannot be read.
        UsageError: its port is not a number.
    """
    path = environ.get(CONF_VARIABLE)
    if not path:
        return {}
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise NothingFoundError(f"{CONF_VARIABLE} {path}: {error.strerror}") from error
    pairs = (line.partition("=") for line in lines if not line.lstrip().startswith("#"))
    found = {key.strip(): text.strip() for key, equals, text in pairs if equals}
    port = found.get("clientPort", str(PORT_DEFAULT))
    if not port.isdigit() or not 1 <= int(port) <= PORT_MAX:
        raise UsageError(
            f"clientPort is {port!r} in {path}, ZooKeeper's settings file by {CONF_VARIABLE}; "
            f"a port is a number from 1 to {PORT_MAX}"
        )
    return found


def _watch(session: Session, server: ZooKeeperProcess) -> None:
    try:
        session.emit(
            LocalZooKeeper(
                server.address,
                server.pid,
                str(server.directory),
                f"zk+hierarchical://{server.address}/ledgers",
            )
        )
        session.finish()
        session.host.stdout.flush()
        session.note("Ctrl-C stops it")
        while server.running:
            time.sleep(_POLL_EVERY_S)
    except Interrupted as reason:
        session.note("stopping")
        if reason.exit_status == ExitStatus.TIME_LIMIT:
            raise
        return
    raise ZooKeeperEndedError(
        f"ZooKeeper ended with {server.returncode}", next_step=f"its log is {server.log}"
    )
