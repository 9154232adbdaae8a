"""Changes of the user's file of profiles, line by line, so that its comments stay.

Each change is checked before it is written: the new text must say what was meant and nothing else.
A file in forms that lines cannot be told from (inline tables, texts over several lines) is left for
its owner to edit.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from bkctl.errors import CommandError
from bkctl.session.profiles import (
    CLIENT,
    DEFAULT_KEY,
    MODE,
    TABLE,
    TLS,
    Profile,
    ProfileFile,
    parse_profiles,
    parse_toml,
)

HEAD: Final = """\
# For bkctl. Lines that begin with # say what could stand here.
#
# Clusters by name: `bkctl profile create NAME -u URI`, then `--profile NAME`.
#
# profile = "NAME"                              the one that is used by default
#
# [profiles.NAME]
# service-uri = "zk+hierarchical://host:2181/ledgers"
# conf = "/etc/bookkeeper/bk_server.conf"       what it says counts after the profile
# output = "table"                              the form of results without -o
# production = true                             the shell's prompt is red
# admin-token-file = "~/.config/bkctl/token"    for what bookies are asked over HTTP
#
# [profiles.NAME.tls]                           ca-file, cert-file, key-file, key-password-file
# [profiles.NAME.client]                        keys of the settings file, as with -X
#
# How `bkctl shell` is to be:
#
# [shell]
# keys = "emacs"                                or "vi"
# bar = true                                    the line with the cluster's state
# timing = 10                                   tell times from so many seconds on; true, false
# bell = false                                  ring when a command took so many seconds
# audit = "~/bkctl.audit"                       keep what was run, and how it ended; or "syslog"
"""

_HEADER: Final = re.compile(r"\s*\[([^\[\]]+)\]\s*(?:#.*)?")
_KEY: Final = re.compile(r"\s*(?P<key>[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')\s*=")
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")

Path_ = tuple[str, ...]


def with_default(file: ProfileFile, name: str | None) -> str:
    """Return the file's text with another default profile, or none."""
    lines = _lines(file)
    _set(lines, (), DEFAULT_KEY, name)
    return _checked(file, lines, attrs.evolve(file, default=name))


def with_profile(file: ProfileFile, profile: Profile) -> str:
    """Return the file's text with a profile put in, or in place of one of that name."""
    lines = _lines(file)
    old = _tables(file.profiles.get(profile.name))
    for path, values in _tables(profile).items():
        before = old.get(path, {})
        for key in {**before, **values}:
            if before.get(key) != values.get(key):
                _set(lines, (TABLE, profile.name, *path), key, values.get(key))
    expected = attrs.evolve(file, profiles={**file.profiles, profile.name: profile})
    return _checked(file, lines, expected)


def without_profile(file: ProfileFile, name: str) -> str:
    """Return the file's text without a profile; it is the default no more either."""
    lines = _lines(file)
    for start, end in reversed([
        (start, end) for path, start, end in _sections(lines) if path[:2] == (TABLE, name)
    ]):  # fmt: skip
        del lines[start:end]
    default = None if file.default == name else file.default
    if default != file.default:
        _set(lines, (), DEFAULT_KEY, default)
    others = {one: profile for one, profile in file.profiles.items() if one != name}
    return _checked(file, lines, attrs.evolve(file, default=default, profiles=others))


def write_profiles(path: Path, text: str) -> None:
    """Put a new text in the place of the file, readable by its owner only."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    target = path.resolve()  # A link into a repository of settings stays one.
    number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=target.parent)
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), MODE)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _tables(profile: Profile | None) -> dict[Path_, Mapping[str, Any]]:
    """Return what a profile says, by the tables below its own."""
    if profile is None:
        return {}
    own = {
        "service-uri": profile.service_uri,
        "conf": profile.conf,
        "output": profile.output,
        "production": profile.production or None,
        "admin-token-file": profile.admin_token_file,
    }
    said = {key: value for key, value in own.items() if value is not None}
    return {(): said, (TLS,): profile.tls, (CLIENT,): profile.client}


def _lines(file: ProfileFile) -> list[str]:
    return (file.text or HEAD).splitlines()


def _checked(file: ProfileFile, lines: list[str], expected: ProfileFile) -> str:
    text = "\n".join(lines).strip("\n") + "\n"
    try:
        found = parse_profiles(text, file.path)
    except CommandError:
        found = None
    if found is None or (found.default, found.profiles) != (expected.default, expected.profiles):
        raise CommandError(
            f"{file.path} is written in a way that cannot be changed line by line",
            next_step=f"edit it by hand: {file.path}",
        )
    return text


def _set(lines: list[str], table: Path_, key: str, value: Any) -> None:
    """Set one key of one table, or take it out."""
    section = next(((start, end) for path, start, end in _sections(lines) if path == table), None)
    if section is None:
        if value is None:
            return
        section = _new_section(lines, table)
    start, end = section
    found = next((n for n in range(start, end) if _key_of(lines[n]) == key), None)
    line = f"{_quoted(key)} = {_toml(value)}"
    if value is None:
        if found is not None:
            del lines[found]
    elif found is not None:
        lines[found] = line
    else:
        lines.insert(_last_said(lines, start, end) + 1, line)


def _new_section(lines: list[str], table: Path_) -> tuple[int, int]:
    """Begin a table: behind those of the same profile, else at the end."""
    ends = [end for path, _, end in _sections(lines) if path[:2] == table[:2]]
    at = _last_said(lines, 0, ends[-1]) + 1 if ends else len(lines)
    lines[at:at] = ["", f"[{'.'.join(map(_quoted, table))}]"]
    return at + 1, at + 2


def _last_said(lines: list[str], start: int, end: int) -> int:
    """Return the last line of a part that is not empty, or the one before the part."""
    return next((n for n in range(end - 1, start - 1, -1) if lines[n].strip()), start - 1)


def _sections(lines: list[str]) -> list[tuple[Path_, int, int]]:
    """Return the tables of a file, each with its first line and the one behind its last."""
    found: list[tuple[Path_, int]] = [((), 0)]
    for number, line in enumerate(lines):
        if (match := _HEADER.fullmatch(line)) and (path := _path(match[1])):
            found.append((path, number))
    ends = [start for _, start in found[1:]] + [len(lines)]
    return [(path, start, end) for (path, start), end in zip(found, ends, strict=True)]


def _path(words: str) -> Path_:
    try:
        inner: Any = parse_toml(f"[{words}]")
    except ValueError:
        return ()
    path: list[str] = []
    while inner:
        ((word, inner),) = inner.items()
        path.append(word)
    return tuple(path)


def _key_of(line: str) -> str | None:
    match = _KEY.match(line)
    return match["key"].strip("\"'") if match else None


def _quoted(key: str) -> str:
    return key if _BARE.fullmatch(key) else json.dumps(key, ensure_ascii=False)


def _toml(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
