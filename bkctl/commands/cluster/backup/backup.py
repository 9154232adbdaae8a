"""`cluster backup`: all metadata is written to a file."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

from bkclient.client import Client
from bkclient.concurrency import wall_ms
from bkclient.metadata import zk_paths
from bkclient.metadata.errors import MetadataAccessError
from bkclient.metadata.versions_and_watches import StoredNode
from bkctl.commands.cluster.backup.backup_file import INFO_COLUMNS, BackupInfo, write_nodes
from bkctl.errors import CommandError, NothingFoundError, RefusedError
from bkctl.output.atomic_file import replacing_file, require_new
from bkctl.output.units import counted, human_bytes, human_duration
from bkctl.output.views import Kind, field, shown
from bkctl.session.session import Session


def _written(v: BackupWritten) -> str:
    has = ", ".join(v.info.lines()) or "no ledger"
    return (
        f"wrote {counted(v.info.nodes, 'node')} ({has}) to {v.file}:"
        f" {human_bytes(v.file_bytes)} in {human_duration(v.seconds)}"
    )


@shown("backups", *INFO_COLUMNS, kw_only=True, sentence=_written)
class BackupWritten:
    """A file with a cluster's metadata."""

    file: str = field("Path of the backup file.")
    info: BackupInfo
    file_bytes: int = field("Size of the backup file.")
    seconds: float = field("Duration of the backup.", kind=Kind.SECONDS)


def backup(session: Session, file: Path) -> None:
    """Write all persistent metadata to a file, and print a summary; `-` is stdout.

    Raises:
        RefusedError: stdout is a terminal; see ``write`` for other errors.
    """
    to_stdout = str(file) == "-"
    if to_stdout and session.host.stdout.isatty():
        raise RefusedError(
            "the backup contains ledger passwords; it is not shown on a terminal",
            next_step="give a file, or a pipe",
        )
    if not to_stdout:
        _require_writable(file)
    if session.dry_run:
        session.plan([f"write all metadata of {session.uri} to {'stdout' if to_stdout else file}"])
    elif to_stdout:
        stream = session.host.stdout.buffer
        write_nodes(stream, session.call(_about), session.iterate(_lasting))
        stream.flush()
    else:
        session.emit(write(session, file))


def write(session: Session, file: Path) -> BackupWritten:
    """Write all persistent metadata to a file; return a summary.

    Raises:
        ConflictError: the file exists.
        NothingFoundError: its directory is missing.
        CommandError: the file cannot be written.
    """
    _require_writable(file)
    began_s = time.monotonic()
    info = session.call(_about)
    found = session.iterate(_lasting)
    with session.progress("backing up", unit="nodes") as progress:
        try:
            with replacing_file(file) as stream:
                info = write_nodes(stream, info, found, progress.update)
                size = stream.tell()
        except OSError as error:
            raise CommandError(f"{file}: {error.strerror or error}") from error
    return BackupWritten(
        file=str(file), info=info, file_bytes=size, seconds=time.monotonic() - began_s
    )


def _require_writable(file: Path) -> None:
    if not file.parent.is_dir():
        raise NothingFoundError(
            f"{file.parent}: no such directory", next_step="create it, or give another file"
        )
    require_new(file)


async def _about(client: Client) -> BackupInfo:
    store = client.store
    return BackupInfo(
        uri=store.uri,
        instance_id=await store.instance_id(),
        layout=(await store.layout()).name,
        time_ms=wall_ms(client.cluster.clock),
    )


async def _lasting(client: Client) -> AsyncIterator[tuple[StoredNode, ...]]:
    """Yield the persistent nodes, without the root and without the nodes that generate ids."""
    async for some in client.store.nodes():
        lasting = tuple(node for node in some if _lasts(node))
        for node in lasting:
            if node.unreadable:  # A backup without the node would lose its value.
                raise MetadataAccessError(node.unreadable)
        yield lasting


def _lasts(node: StoredNode) -> bool:
    name = node.path.rpartition("/")[2]
    return not node.is_ephemeral and bool(node.path) and not name.startswith(zk_paths.ID_PREFIX)
