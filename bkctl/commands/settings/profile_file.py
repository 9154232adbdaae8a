"""Changes of the user's file of profiles; comments and all other text stay."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any, Final

import attrs
import tomlkit

from bkctl.errors import CommandError
from bkctl.output.atomic_file import replacing_file
from bkctl.session.profiles import (
    CLIENT,
    DEFAULT_KEY,
    TABLE,
    TLS,
    Profile,
    ProfileFile,
    parse_profiles,
)

HEAD: Final = """\
# For bkctl. Lines that begin with # are examples.
#
# Clusters by name: `bkctl profile create NAME -u URI`, then `--profile NAME`.
#
# profile = "NAME"                              the default profile
#
# [profiles.NAME]
# service-uri = "zk+hierarchical://host:2181/ledgers"
# conf = "/etc/bookkeeper/bk_server.conf"       read after the profile's values
# output = "table"                              the format of results without -o
# production = true                             the shell's prompt is red
# admin-token-file = "~/.config/bkctl/token"    for the bookies' HTTP API
#
# [profiles.NAME.tls]                           ca-file, cert-file, key-file, key-password-file
# [profiles.NAME.client]                        keys of the settings file, as with -X
#
# Settings of `bkctl shell`:
#
# [shell]
# keys = "emacs"                                or "vi"
# bar = true                                    the line with the cluster's state
# timing = 10                                   show times of this many seconds or more; true, false
# bell = false                                  ring after commands of this many seconds
# audit = "~/bkctl.audit"                       log commands and their results; or "syslog"
"""

Path_ = tuple[str, ...]


def with_default(file: ProfileFile, name: str | None) -> str:
    """Return the file's text with another default profile, or none."""
    document = _document(file)
    _set(document, DEFAULT_KEY, name)
    return _checked(file, document, default=name)


def with_profile(file: ProfileFile, profile: Profile) -> str:
    """Return the file's text with a profile added or replaced."""
    document = _document(file)
    old = _tables(file.profiles.get(profile.name))
    for path, values in _tables(profile).items():
        before = old.get(path, {})
        for key in {**before, **values}:
            if before.get(key) != values.get(key):
                table = _table(file, document, (TABLE, profile.name, *path))
                _set(table, key, values.get(key))
    return _checked(file, document, profiles={**file.profiles, profile.name: profile})


def without_profile(file: ProfileFile, name: str) -> str:
    """Return the file's text without a profile.

    If it was the default, the file has no default then.
    """
    document = _document(file)
    profiles: Any = document.get(TABLE, {})
    if name in profiles:
        del profiles[name]
    default = None if file.default == name else file.default
    if default != file.default:
        _set(document, DEFAULT_KEY, None)
    others = {one: profile for one, profile in file.profiles.items() if one != name}
    return _checked(file, document, default=default, profiles=others)


def write_profiles(path: Path, text: str) -> None:
    """Replace the file's text; only its owner can read the file."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with replacing_file(path) as file:
        file.write(text.encode())


def _tables(profile: Profile | None) -> dict[Path_, Mapping[str, Any]]:
    """Return a profile's values, by the path of their table below the profile's own."""
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


def _document(file: ProfileFile) -> tomlkit.TOMLDocument:
    return tomlkit.parse(file.text or HEAD)


def _checked(file: ProfileFile, document: tomlkit.TOMLDocument, **changes: Any) -> str:
    """Return the new text, after a check that it parses to the intended values.

    Raises:
        CommandError: the text differs: the library writes some forms of tables wrongly.
    """
    text, expected = tomlkit.dumps(document), attrs.evolve(file, **changes)
    try:
        found = parse_profiles(text, file.path)
    except CommandError:
        found = None
    if found is None or (found.default, found.profiles, found.shell) != (
        expected.default,
        expected.profiles,
        expected.shell,
    ):
        raise _unknown_form(file)
    return text


def _table(
    file: ProfileFile, document: MutableMapping[str, Any], path: Path_
) -> MutableMapping[str, Any]:
    """Return a table; missing tables on its path are added.

    Raises:
        CommandError: the library cannot add a table there.
    """
    found = document
    for number, name in enumerate(path):
        if name not in found:
            try:
                # Only the last table needs a header: `[profiles.a]` needs no `[profiles]` above it.
                found[name] = tomlkit.table(is_super_table=number == 0)
            except ValueError as error:
                raise _unknown_form(file) from error
        found = found[name]
    return found


def _unknown_form(file: ProfileFile) -> CommandError:
    return CommandError(
        f"{file.path} has tables in a form that bkctl cannot change",
        next_step=f"edit it by hand: {file.path}",
    )


def _set(table: MutableMapping[str, Any], key: str, value: Any) -> None:
    """Set one key of a table, or remove it if the value is None."""
    if value is not None:
        table[key] = value
    elif key in table:
        del table[key]
