"""A bookie's cookie, in the metadata and in each directory.

Agrees byte for byte with BookKeeper 4.18.0, Cookie.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import attrs

from wire.errors import FormatError
from wire.pb import data_formats_pb2 as pb
from wire.records import protobuf_text

COOKIE_VERSION: Final = 5
_COOKIE_VERSION_MIN: Final = 3
_TEXT_COOKIE_VERSION: Final = 4
_LINES_OF_V3: Final = 4


_INTEGER: Final = re.compile(rb"[+-]?[0-9]{1,9}")


@attrs.frozen
class Cookie:
    """The record that ties a bookie's directories to its id and its cluster.

    ``journal_dirs`` are the journal directories joined with commas. Directories are the configured
    names. ``index_dirs`` is ``None`` if none are configured; then they are the ledger directories.
    """

    bookie_id: str
    journal_dirs: str
    ledger_dirs: tuple[str, ...]
    index_dirs: tuple[str, ...] | None = None
    instance_id: str | None = None
    layout_version: int = COOKIE_VERSION


@attrs.frozen
class CookieDifference:
    """One field of a cookie that differs from the configuration, and the cookie's place."""

    field: str
    configured: str
    found: str
    place: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.field} is {self.found}, expected {self.configured}"


def encode_cookie(cookie: Cookie) -> bytes:
    """Return a cookie in the current version, whatever version was read."""
    message = pb.CookieFormat(
        bookieHost=cookie.bookie_id,
        journalDir=cookie.journal_dirs,
        ledgerDirs=_encode_dirs(cookie.ledger_dirs),
    )
    if cookie.instance_id is not None:
        message.instanceId = cookie.instance_id
    if cookie.index_dirs is not None:
        message.indexDirs = _encode_dirs(cookie.index_dirs)
    return b"%d\n" % COOKIE_VERSION + protobuf_text.write(message)


def decode_cookie(data: bytes) -> Cookie:
    """Parse a cookie of version 3 to 5. Java treats a higher version as 5.

    This function refuses it.

    Raises:
        FormatError: empty, too old or too new, or a required field is missing.
    """
    first, _, body = data.partition(b"\n")
    if _INTEGER.fullmatch(first.strip()) is None:
        raise FormatError(f"cookie begins with {first[:40]!r}, not with its version")
    version = int(first)
    if version < _COOKIE_VERSION_MIN:
        raise FormatError(f"cookie of version {version} is too old to be read")
    if version > COOKIE_VERSION:
        raise FormatError(f"cookie of version {version} is of a newer release")
    if version < _TEXT_COOKIE_VERSION:
        return _decode_cookie_v3(body, version)
    message = protobuf_text.parse(body, pb.CookieFormat())
    for name in ("bookieHost", "journalDir", "ledgerDirs"):
        if not message.HasField(name):
            raise FormatError(f"cookie has no {name}")
    return Cookie(
        bookie_id=message.bookieHost,
        journal_dirs=message.journalDir,
        ledger_dirs=_decode_dirs(message.ledgerDirs),
        index_dirs=_decode_dirs(message.indexDirs) if message.indexDirs else None,
        instance_id=message.instanceId or None,
        layout_version=version,
    )


def _decode_cookie_v3(body: bytes, version: int) -> Cookie:
    lines = body.decode("utf-8", "replace").replace("\r\n", "\n").split("\n")
    if len(lines) + 1 < _LINES_OF_V3:
        raise FormatError("cookie of version 3 has too few lines")
    return Cookie(lines[0], lines[1], _decode_dirs(lines[2]), layout_version=version)


def _encode_dirs(dirs: Iterable[str]) -> str:
    listed = list(dirs)
    return "\t".join((str(len(listed)), *listed))


def _decode_dirs(text: str) -> tuple[str, ...]:
    count, *dirs = text.split("\t")
    if count != str(len(dirs)):
        raise FormatError(f"cookie lists directories as {text!r}")
    return tuple(dirs)


def cookie_differences(
    ours: Cookie, theirs: Cookie, *, superset: bool = False, place: str = ""
) -> list[CookieDifference]:
    """Return the differences of the cookie at ``place`` from the configured one.

    Empty if it matches.

    With ``superset`` the configuration may have additional ledger and index directories.
    """
    differences = [
        _difference("bookie id", ours.bookie_id, theirs.bookie_id),
        _difference("journal directories", ours.journal_dirs, theirs.journal_dirs),
        _difference_of_dirs("ledger directories", ours.ledger_dirs, theirs.ledger_dirs, superset),
        None
        # None means the ledger directories, compared above.
        if ours.index_dirs == theirs.index_dirs
        else _difference_of_dirs(
            "index directories",
            ours.index_dirs or ours.ledger_dirs,
            theirs.index_dirs or theirs.ledger_dirs,
            superset,
        ),
        _difference("instance id", ours.instance_id or "none", theirs.instance_id or "none"),
    ]
    return [attrs.evolve(one, place=place) for one in differences if one is not None]


def _difference(field: str, ours: str, theirs: str) -> CookieDifference | None:
    return None if ours == theirs else CookieDifference(field, ours, theirs)


def _difference_of_dirs(
    field: str,
    ours: tuple[str, ...],
    theirs: tuple[str, ...],
    superset: bool,  # noqa: FBT001
) -> CookieDifference | None:
    if ours == theirs or (superset and set(ours) >= set(theirs)):
        return None
    return CookieDifference(field, ", ".join(ours), ", ".join(theirs))
