"""The directories of a stopped bookie, from its settings file.

Only the keys that name directories are read: a tool that only reads data must not refuse a file
because of an unrelated setting.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import MappingProxyType

import attrs

from bkclient.config.properties import Properties, Property
from bkclient.config.settings import load
from bookied.config.journal import JournalConfig
from bookied.config.storage import LedgerConfig
from bookied.directories.roots import CURRENT, Directories

KEYS = ("journalDirectories", "journalDirectory", "ledgerDirectories", "indexDirectories")


@attrs.frozen(kw_only=True)
class DirectorySettings(LedgerConfig, JournalConfig):
    """The settings that name the data directories; all others have their defaults."""


def directories_of(properties: Properties) -> Directories:
    """Return the directories that a bookie's settings name, or Java's defaults.

    Raises:
        PropertiesError: a reference in the settings is circular.
        ConfigError: there is no ledger directory.
    """
    settings, _ = load(DirectorySettings, select_settings(properties, KEYS))
    return directories_by_name(
        settings.journal_directories, settings.ledger_directories, settings.index_directories
    )


def select_settings(properties: Properties, keys: Iterable[str]) -> Properties:
    """Return the settings ``keys`` with their references resolved, and no other settings.

    Raises:
        PropertiesError: a reference in the settings is circular.
    """
    entries = {
        key: _expanded(properties, found)
        for key in keys
        if (found := properties.entries.get(key)) is not None
    }
    return attrs.evolve(properties, entries=MappingProxyType(entries))


def directories_by_name(
    journals: tuple[str, ...], ledgers: tuple[str, ...], indexes: tuple[str, ...] = ()
) -> Directories:
    """Return directories by the names of their roots or their ``current``.

    The paths are absolute, as a bookie writes them into its cookie. Without index directories, the
    ledger directories contain the index.
    """
    lists = (journals, ledgers, indexes or ledgers)
    return Directories(*(tuple(_root(Path(name)) for name in names) for names in lists))


def _root(path: Path) -> Path:
    path = path.absolute()
    return path.parent if path.name == CURRENT else path


def _expanded(properties: Properties, found: Property) -> Property:
    """Resolve references to keys that are left out."""
    return attrs.evolve(
        found,
        statements=tuple(
            tuple(attrs.evolve(value, text=properties.expand(value)) for value in statement)
            for statement in found.statements
        ),
    )
