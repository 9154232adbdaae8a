"""A stopped bookie's settings, as far as commands that change its directories need them.

A Java bookie's file may ask for what ours cannot do, and still say where its data lies and who it
is. So only the keys listed here are read, and they are not checked against others.
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
"""A directory of Java's that a format empties too."""

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
    """The settings of a bookie that is not going to be started from them."""

    def cross_check(self) -> Iterator[SettingFinding]:
        """Give nothing: what would keep the bookie from starting is not the question here."""
        return iter(())


def offline_config(properties: Properties) -> OfflineConfig:
    """Return the settings behind ``KEYS``; all others have their defaults.

    Raises:
        PropertiesError: a reference in them runs in a circle.
        ConfigError: one of them cannot be.
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
