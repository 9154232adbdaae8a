"""The bookies of a local cluster that do not start because they have lost files."""

from __future__ import annotations

from pathlib import Path

from bkclient.config.properties import read_properties
from bkctl.commands.local.directory import (
    CONF_FILE,
    bookie_directory,
    bookie_id_in,
    host_of,
    read_record,
)
from bookied.directories.emptied_directories import losses
from bookied.directories.roots import VERSION, Directories
from bookied.offline.directories import directories_of
from bookied.storage.files.files import RealFiles
from wire.errors import BookKeeperError
from wire.ids import BookieId


def emptied_bookies(directory: Path) -> dict[BookieId, str]:
    """Return the bookies in ``directory`` that do not start, and their settings files."""
    known = read_record(directory)
    found: dict[BookieId, str] = {}
    if known is None:
        return found
    for number, port in known.numbered.items():
        conf = bookie_directory(directory, number) / CONF_FILE
        try:
            is_emptied = _is_emptied(directories_of(read_properties(conf)))
        except (OSError, BookKeeperError):
            is_emptied = True
        if is_emptied:
            before = f"{host_of(number, known.racks)}:{port}"
            found[BookieId(bookie_id_in(conf.parent, before))] = str(conf)
    return found


def _is_emptied(found: Directories) -> bool:
    has_all = all((one / VERSION).is_file() for one in found.all_dirs)
    return not has_all or any(losses(RealFiles(), found))
