"""The settings of a stopped bookie for commands that change its directories.

A Java bookie's file may contain settings that bookied does not support, and is still right about
the bookie's directories and identity. So only the keys below are read, and not cross-checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import attrs

from bkclient.config.findings import SettingFinding
from bkclient.config.properties import Properties
from bkclient.config.settings import load
from bookied.config.bookie import BookieConfig
from bookied.offline import directories

IDENTITY_KEYS: Final = (
    "bookiePort",
    "bookieId",
    "advertisedAddress",
    "listeningInterface",
    "allowLoopback",
    "useHostNameAsBookieID",
    "useShortHostName",
)
METADATA_CACHE: Final = "gcEntryLogMetadataCachePath"
"""The setting of a directory of Java's, which a format empties too."""

FORMAT_KEYS: Final = (
    "ledgerStorageClass",
    "sortedLedgerStorageEnabled",
    "fileInfoFormatVersionToWrite",
    "logSizeLimit",
    "skipReplayJournalInvalidRecord",
)
KEYS: Final = (*directories.KEYS, *IDENTITY_KEYS, *FORMAT_KEYS, METADATA_CACHE)


@attrs.frozen(kw_only=True)
class OfflineConfig(BookieConfig):
    """The settings of a bookie that will not be started with them."""

    def cross_check(self) -> Iterator[SettingFinding]:
        """Return no findings: the bookie is not started."""
        return iter(())


def offline_config(properties: Properties) -> OfflineConfig:
    """Return the settings of ``KEYS``; all others have their defaults.

    Raises:
        PropertiesError: a reference in the settings is circular.
        ConfigError: a setting is invalid.
    """
    known = tuple(key for key in KEYS if key != METADATA_CACHE)
    config, _ = load(OfflineConfig, directories.select_settings(properties, known))
    return config


def metadata_cache(properties: Properties) -> str | None:
    """Return the directory of ``gcEntryLogMetadataCachePath``; None if it is not set."""
    found = directories.select_settings(properties, (METADATA_CACHE,)).entries.get(METADATA_CACHE)
    if found is None:
        return None
    return ",".join(value.text for value in found.values).strip() or None
