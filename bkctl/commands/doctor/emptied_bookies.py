"""The bookies of a local cluster that do not start because they have lost files."""

from __future__ import annotations

from collections.abc import Mapping
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


def local_bookies(directory: Path) -> dict[BookieId, Path]:
    """Return the bookies of the local cluster in ``directory``, and their settings files."""
    known = read_record(directory)
    found: dict[BookieId, Path] = {}
    if known is not None:
        for number, port in known.numbered.items():
            conf = bookie_directory(directory, number) / CONF_FILE
            before = f"{host_of(number, known.racks)}:{port}"
            found[BookieId(bookie_id_in(conf.parent, before))] = conf
    return found


def emptied_bookies(bookies: Mapping[BookieId, Path]) -> dict[BookieId, str]:
    """Return the local bookies that do not start, and their settings files."""
    return {bookie_id: str(conf) for bookie_id, conf in bookies.items() if _is_emptied(conf)}


def _is_emptied(conf: Path) -> bool:
    try:
        return _has_lost_files(directories_of(read_properties(conf)))
    except (OSError, BookKeeperError):
        return True


def _has_lost_files(found: Directories) -> bool:
    has_all = all((one / VERSION).is_file() for one in found.all_dirs)
    return not has_all or any(losses(RealFiles(), found))
