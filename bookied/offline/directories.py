"""Where a stopped bookie's directories are: from its settings, without asking for the rest of them.

A tool that only looks must not refuse a file for a setting that has nothing to do with where data
lies; so only the keys that name directories are read.
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
    """The settings that say where data lies; all others have their defaults here."""


def directories_of(properties: Properties) -> Directories:
    """Return the directories that a bookie's settings name; Java's defaults where they do not.

    Raises:
        PropertiesError: a reference in them runs in a circle.
        ConfigError: there is no ledger directory.
    """
    settings, _ = load(DirectorySettings, select_settings(properties, KEYS))
    return directories_by_name(
        settings.journal_directories, settings.ledger_directories, settings.index_directories
    )


def select_settings(properties: Properties, keys: Iterable[str]) -> Properties:
    """Return some of the settings: what they refer to is resolved, the rest is left out.

    Raises:
        PropertiesError: a reference in them runs in a circle.
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
    """Return directories by their names, be it the roots or their ``current``.

    Their paths are absolute, as a bookie writes them into its cookie. Without index directories the
    ledger directories are meant.
    """
    lists = (journals, ledgers, indexes or ledgers)
    return Directories(*(tuple(_root(Path(name)) for name in names) for names in lists))


def _root(path: Path) -> Path:
    path = path.absolute()
    return path.parent if path.name == CURRENT else path


def _expanded(properties: Properties, found: Property) -> Property:
    """Resolve what refers to other keys, which are left out."""
    return attrs.evolve(
        found,
        statements=tuple(
            tuple(attrs.evolve(value, text=properties.expand(value)) for value in statement)
            for statement in found.statements
        ),
    )
