"""The keys of settings files, from the tables of ``bookied`` and the client.

Only the notes are stored in this module: differences between Java's sample file or reference page
and its code (BookKeeper 4.18.0, conf/bk_server.conf and site3 docs).
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from types import MappingProxyType
from typing import Final

from bkclient.config.client import ClientConfig
from bkclient.config.declaration import (
    MASKED,
    DeclaredSetting,
    OtherKey,
    declared,
    is_secret_key,
    other_keys,
)
from bkclient.config.properties import Properties, Property
from bkctl.output.views import WIDE, Column, evolve, field, shown
from bkctl.suggest import keys_like
from bookied.config.bookie import BookieConfig

CLASSES: Final = MappingProxyType({"bookie": BookieConfig, "client": ClientConfig})

NOTES: Final = MappingProxyType(
    {
        "gcWaitTime": "Java's sample file sets 1000, its code has 600000 by default.",
        "ledgerManagerType": "Java's reference page says flat; its code takes hierarchical.",
        "logSizeLimit": "Java's reference page says 2 GB; more than 1 GiB stops the start.",
        "journalMaxSizeMB": 'Java\'s older page says "2kB" and means 2048 MB.',
        "metadataServiceUri": "Java's sample file sets zk+hierarchical://localhost:2181/ledgers.",
        "minUsableSizeForIndexFileCreation": "Java's sample file says 1 GiB, its code 100 MiB.",
        "minUsableSizeForEntryLogCreation": "Java's pages say 1.2 times logSizeLimit; its code "
        "cuts that to 1.0.",
        "readOnlyModeEnabled": "Java's older pages contradict each other; its code says true.",
        "stickyReadSEnabled": "Java's sample file sets true, its code has false by default.",
        "tlsHostnameVerificationEnabled": "Java's default is false.",
        "tlsClientAuthentication": "Java's sample file hints at true; its code has false.",
        "zkRetryBackoffStartMs": "Java's sample file says 1000; its code takes zkTimeout.",
        "zkRetryBackoffMaxMs": "Java's sample file says 10000; its code takes zkTimeout.",
        "lostBookieRecoveryDelay": "Also stored in the metadata after an auditor was elected, and "
        "the stored value is used: `bkctl autorecovery delay`.",
        "journalDirectory": "If journalDirectories is empty, too, Java uses /tmp/bk-txn.",
    }
)


def _value(value: str | None) -> str:
    """Return a value; a Java class is shortened to its own name."""
    text = value or "-"
    return text.rpartition(".")[2] if text.startswith("org.apache.") else text


def _uses(v: KeyInfo) -> str:
    """Return the use of the key; the other uses apply to some values only."""
    first, *others = v.uses
    return f"{first}; some values are {' or '.join(others)}" if others else first


def _readers(v: KeyInfo) -> str:
    """Return who reads the key; autorecovery is a client."""
    return " ".join("client and autorecovery" if one == "client" else one for one in v.read_by)


@shown("keys", Column("note", "Difference from Java's files.", rank=WIDE), kw_only=True)
class KeyInfo:
    """One key of a settings file. ``uses``: honoured, no effect, warned, refused."""

    key: str = field("Name of the key in a file, or a pattern of names.")
    uses: tuple[str, ...] = field("honoured, no effect, warned, refused.", cell=_uses)
    value: str | None = field(
        "The value in effect.", rank=1, cell=lambda v: _value(v.value), default=None
    )
    """The value in effect; a secret is masked."""
    default: str | None = field(
        "The value in effect if no file sets the key.",
        rank=2,
        cell=lambda v: _value(v.default),
        default=None,
    )
    unit: str = field("The unit of the value.", of=lambda v: v.unit or None, rank=3, default="")
    doc: str = field("Description of the setting.")
    kind: str = field("Type of the value.", of=lambda v: v.kind or None, rank=WIDE, default="")
    allowed: str = field(
        "The allowed values.", of=lambda v: v.allowed or None, rank=WIDE, default=""
    )
    aliases: tuple[str, ...] = field(
        "Older names.", rank=WIDE, cell=lambda v: " ".join(v.aliases) or "-", default=()
    )
    instead: str = field(
        "The correct name of the key.", of=lambda v: v.instead or None, rank=WIDE, default=""
    )
    read_by: tuple[str, ...] = field("bookie, client.", rank=WIDE, cell=_readers)
    secret: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The key and its older names."""
        return (self.key, *self.aliases)

    @property
    def note(self) -> str | None:
        return NOTES.get(self.key)


def all_keys() -> dict[str, KeyInfo]:
    """Return every key by its name, including patterns of unused keys."""
    found: dict[str, KeyInfo] = {}
    for side, cls in CLASSES.items():
        for info in (*_used(side, cls), *(_unused(side, one) for one in other_keys(cls))):
            before = found.get(info.key)
            if before is None:
                found[info.key] = info
            elif before.uses[0] == info.uses[0]:
                found[info.key] = evolve(before, read_by=(*before.read_by, side))
            # A key that one side honours is listed for that side only.
            elif info.uses[0] == _HONOURED:
                found[info.key] = info
    return found


def matching(pattern: str, keys: dict[str, KeyInfo]) -> list[KeyInfo]:
    """Return the keys that match ``pattern``.

    The pattern is a name, an older name, a part of a name or a pattern with ``*``. The last two
    ignore case. A name that matches only a pattern of the table returns that pattern.
    """
    if "*" not in pattern:
        if pattern in keys:
            return [keys[pattern]]
        if by_alias := [info for info in keys.values() if pattern in info.aliases]:
            return by_alias
        of_pattern = [key for key in keys if "*" in key and fnmatch.fnmatchcase(pattern, key)]
        if of_pattern:
            return [keys[of_pattern[0]]]
    found = set(keys_like(pattern, (name for one in keys.values() for name in one.names)))
    return [one for one in keys.values() if not found.isdisjoint(one.names)]


def names(keys: dict[str, KeyInfo]) -> list[str]:
    """Return every name that a file may have, for suggestions."""
    return [
        name
        for key, info in keys.items()
        if "*" not in key and not info.instead
        for name in (key, *info.aliases)
    ]


def value_in(properties: Properties, info: KeyInfo) -> tuple[str | None, Property | None]:
    """Return a key's value in a file, in a comparable form, and its property."""
    candidates = (properties.entries.get(name) for name in (info.key, *info.aliases))
    prop = next((one for one in candidates if one is not None), None)
    if prop is None:
        return None, None
    one = _declared().get(info.key)
    is_list = one is None or one.is_list
    values = prop.values if is_list else prop.values[:1]
    text = ",".join(properties.expand(value) for value in values)
    return (text if one is None else _plain(one, text)), prop


def masked(info: KeyInfo, text: str | None) -> str | None:
    """Return a printable value: a secret is masked."""
    return MASKED if info.secret and text else text


def _declared() -> dict[str, DeclaredSetting]:
    return {one.spec.key: one for cls in (ClientConfig, BookieConfig) for one in declared(cls)}


def _plain(one: DeclaredSetting, text: str) -> str:
    """Return a value in its normal form: ``yes`` becomes ``true``."""
    if one.is_list or one.spec.parse is not None:
        return text
    try:
        value = one.convert(text)
    except ValueError:
        return text
    return str(value).lower() if isinstance(value, (bool, int, float)) else text


_HONOURED: Final = "honoured"


def _used(side: str, cls: type) -> Iterator[KeyInfo]:
    for one in declared(cls):
        spec = one.spec
        uses = [_HONOURED]
        uses += ["warned"] if spec.risky else []
        uses += ["refused"] if spec.refuse else []
        yield KeyInfo(
            key=spec.key,
            read_by=(side,),
            uses=tuple(uses),
            doc=spec.doc,
            kind=one.kind,
            unit=spec.unit,
            default=one.default_text,
            allowed=one.allowed,
            aliases=spec.aliases,
            secret=spec.secret,
        )


def _unused(side: str, other: OtherKey) -> KeyInfo:
    use = "warned" if other.risky or other.instead else "no effect"
    return KeyInfo(
        key=other.pattern,
        read_by=(side,),
        uses=(use,),
        doc=other.doc[:1].upper() + other.doc[1:] + ".",
        default=other.default,
        instead=other.instead,
        secret=is_secret_key(other.pattern),
    )
