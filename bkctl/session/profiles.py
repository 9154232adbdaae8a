"""Profiles: clusters by name, in one TOML file of the user.

A profile has the address of a cluster and the client's settings for it. Flags and the environment
override it; it overrides a settings file.

    profile = "staging"

    [profiles.staging]
    service-uri = "zk+hierarchical://zk1:2181/ledgers"
    production = false

    [profiles.staging.client]
    readTimeout = 10

The default profile (``profile`` above) is used only if neither ``-u`` nor ``-c`` names a cluster:
a command for one cluster never gets half of its settings from another cluster.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import attrs

from bkctl.errors import CommandError, NothingFoundError, UsageError
from bkctl.global_options import OF_PROFILE, OUTPUTS, Options
from bkctl.suggest import did_you_mean

if TYPE_CHECKING:
    from bkctl.session.stderr_and_stdin import Messages

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NO_PROFILE: Final = "none"
"""The value of ``--profile`` for no profile, not even the default."""

CHARS_MAX: Final = 1_000_000
"""The maximum size; a longer file is refused."""

TABLE: Final = "profiles"
DEFAULT_KEY: Final = "profile"
SHELL: Final = "shell"
"""A table of the same file: the user's settings of the shell; see ``commands.tool.shell``."""
CLIENT: Final = "client"
TLS: Final = "tls"

_TLS_KEYS: Final = {
    "ca-file": ("clientTrustStore", {"clientTrustStoreType": "PEM"}),
    "cert-file": ("tlsCertificatePath", {"tlsClientAuthentication": "true"}),
    "key-file": ("clientKeyStore", {"clientKeyStoreType": "PEM"}),
    "key-password-file": ("clientKeyStorePasswordPath", {}),
}
_TLS_SWITCH: Final = {"tlsProviderFactoryClass": "org.apache.bookkeeper.tls.TLSContextFactory"}


@attrs.frozen(kw_only=True)
class Profile:
    """A named cluster: ``tls`` has paths by ``ca-file`` and so on, ``client`` settings by key."""

    name: str
    service_uri: str | None = None
    conf: str | None = None
    output: str | None = None
    production: bool = False
    admin_token_file: str | None = None
    tls: Mapping[str, str] = MappingProxyType({})
    client: Mapping[str, str] = MappingProxyType({})

    @property
    def keys(self) -> dict[str, str]:
        """The profile's settings, by the keys of a settings file."""
        found = dict(_TLS_SWITCH) if self.tls else {}
        for name, path in self.tls.items():
            key, more = _TLS_KEYS[name]
            found |= {key: of_user(path), **more}
        return {**found, **self.client}


@attrs.frozen(kw_only=True)
class ProfileFile:
    """The user's file: its profiles, and the name of the default profile."""

    path: Path
    text: str = ""
    default: str | None = None
    profiles: Mapping[str, Profile] = MappingProxyType({})
    shell: Mapping[str, Any] = MappingProxyType({})

    def __getitem__(self, name: str) -> Profile:
        """Return a profile.

        Raises:
            NothingFoundError: the file has no profile of this name.
        """
        if name not in self.profiles:
            meant = did_you_mean(name, self.profiles)
            if not self.path.exists():
                raise NothingFoundError(
                    f"{self.path}: no such file, so there is no profile {name!r}",
                    next_step="`bkctl profile create` creates one; if the cluster of `bkctl local` "
                    "was removed: unset BKCTL_CONFIG BKCTL_PROFILE BKCTL_SERVICE_URI",
                )
            raise NothingFoundError(
                f"there is no profile {name!r} in {self.path}{meant}",
                next_step="`bkctl profile list` lists the profiles",
            )
        return self.profiles[name]


def profile_path(environ: Mapping[str, str]) -> Path | None:
    """Return the path of the user's file, which may not exist; None for a user without a home."""
    if named := environ.get("BKCTL_CONFIG"):
        return Path(of_user(named))
    if base := environ.get("XDG_CONFIG_HOME"):
        return Path(base) / "bkctl" / "config.toml"
    home = environ.get("HOME")
    return Path(home) / ".config" / "bkctl" / "config.toml" if home else None


def of_user(path: str) -> str:
    """Return a path with ``~`` expanded; unchanged for a user without a home."""
    return os.path.expanduser(path)  # noqa: PTH111 -- that one raises without a home


def is_open_to_others(path: Path) -> bool:
    """Return whether users other than its owner can read a file; False if it does not exist."""
    try:
        return bool(path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))
    except OSError:
        return False


def read_profiles(environ: Mapping[str, str]) -> ProfileFile:
    """Return the user's file; an empty one if it does not exist.

    Raises:
        UsageError: the file cannot be read, or has an invalid entry.
    """
    path = profile_path(environ)
    if path is None:
        return ProfileFile(path=Path("bkctl/config.toml"))
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(CHARS_MAX + 1)
    except FileNotFoundError:
        return ProfileFile(path=path)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    if len(text) > CHARS_MAX:
        raise UsageError(f"{path}: more than {CHARS_MAX} characters")
    return parse_profiles(text, path)


def parse_toml(text: str) -> dict[str, Any]:
    """Return the content of a TOML text.

    Raises:
        ValueError: the text is not TOML.
    """
    try:
        found: dict[str, Any] = tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("values are nested too deep") from error
    return found


def parse_profiles(text: str, path: Path) -> ProfileFile:
    """Return the content of a file of profiles.

    Raises:
        UsageError: the text is not TOML, or has an invalid entry.
    """
    try:
        found = parse_toml(text)
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from error
    try:
        _only(found, (DEFAULT_KEY, TABLE, SHELL), "")
        tables = _table(found.get(TABLE, {}), TABLE)
        profiles = {name: _profile(name, _table(one, name)) for name, one in tables.items()}
        default = _text(found.get(DEFAULT_KEY), DEFAULT_KEY)
        shell = _table(found.get(SHELL, {}), SHELL)
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from error
    return ProfileFile(path=path, text=text, default=default, profiles=profiles, shell=shell)


def resolve_profile(options: Options, environ: Mapping[str, str]) -> Profile | None:
    """Return the profile for a command line.

    Raises:
        NothingFoundError: the named profile does not exist.
        UsageError: the file cannot be used.
    """
    if options.profile == NO_PROFILE:
        return None
    if options.profile is None and (options.service_uri or options.conf):
        return None
    file = read_profiles(environ)
    name = options.profile or file.default
    return None if name is None or name == NO_PROFILE else file[name]


def profile_names(environ: Mapping[str, str]) -> list[str]:
    """Return the names of all profiles; empty if the file cannot be read."""
    try:
        return list(read_profiles(environ).profiles)
    except CommandError:
        return []


def take_profile(options: Options, environ: Mapping[str, str], messages: Messages) -> None:
    """Apply the profile's settings that neither flags nor the environment set.

    Raises:
        NothingFoundError: the profile does not exist.
        UsageError: the file of profiles cannot be used.
    """
    path = profile_path(environ)
    if options.profile is None and (path is None or not path.exists()):
        return
    if use_profile(options, environ) is not None and path is not None:
        warn_of_open_file(messages, path)


def warn_of_open_file(messages: Messages, path: Path) -> None:
    """Warn, once, if other users can read the file of profiles."""
    warned = messages.host.warned
    if is_open_to_others(path) and str(path) not in warned:
        warned.add(str(path))
        messages.warn(f"{path} can be read by others; chmod 600 {path}")


def use_profile(options: Options, environ: Mapping[str, str]) -> Profile | None:
    """Apply the profile's settings that neither flags nor the environment set; return the profile.

    Raises:
        NothingFoundError, UsageError: see ``resolve_profile``.
    """
    if not options.profile_is_used:
        _forget_variables(options)
        found = options.used_profile = resolve_profile(options, environ)
        options.profile_is_used = True
        if found is not None:
            conf = found.conf and of_user(found.conf)
            for name, value in (("conf", conf), ("output", found.output)):
                if value is not None and getattr(options, name) is None:
                    setattr(options, name, value)
                    options.origins[name] = f"{OF_PROFILE}{found.name}"
    used: Profile | None = options.used_profile
    return used


def is_typed(options: Options) -> bool:
    """Return whether a profile is named on the command line, and so overrides variables."""
    typed = options.is_typed("profile")
    return typed and options.profile != NO_PROFILE


def _forget_variables(options: Options) -> None:
    """Drop the cluster from variables if a profile is typed: it may be another cluster."""
    for name in ("service_uri", "conf") if is_typed(options) else ():
        if not options.origins.get(name, "-").startswith("-"):
            del options.origins[name]
            setattr(options, name, None)


def _profile(name: str, table: Mapping[str, Any]) -> Profile:
    where = f"{TABLE}.{name}"
    known = {one.name.replace("_", "-") for one in attrs.fields(Profile)} - {"name"}
    _only(table, known, where)
    tls = _table(table.get(TLS, {}), f"{where}.{TLS}")
    _only(tls, _TLS_KEYS, f"{where}.{TLS}")
    client = _table(table.get(CLIENT, {}), f"{where}.{CLIENT}")
    output = _text(table.get("output"), f"{where}.output")
    if output is not None and output not in OUTPUTS:
        raise ValueError(f"{where}.output: {output!r} is not one of {', '.join(OUTPUTS)}")
    production = table.get("production", False)
    if not isinstance(production, bool):
        raise ValueError(f"{where}.production is not a boolean; write true or false")  # noqa: TRY004
    return Profile(
        name=name,
        service_uri=_text(table.get("service-uri"), f"{where}.service-uri"),
        conf=_text(table.get("conf"), f"{where}.conf"),
        output=output,
        production=production,
        admin_token_file=_text(table.get("admin-token-file"), f"{where}.admin-token-file"),
        tls={key: _text(value, f"{where}.{TLS}.{key}") or "" for key, value in tls.items()},
        client={key: _as_value(value, f"{where}.{CLIENT}.{key}") for key, value in client.items()},
    )


def _only(table: Mapping[str, Any], known: Any, where: str) -> None:
    for key in table:
        if key not in known:
            place = f"{where}.{key}" if where else key
            raise ValueError(f"there is no {place}{did_you_mean(key, known)}")


def _table(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{where} is not a table")  # noqa: TRY004 -- all become one UsageError
    return value


def _text(value: Any, where: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{where} is not a string; put it in quotes")
    return value


def _as_value(value: Any, where: str) -> str:
    """Return a value in the form of a settings file."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int, float)):
        return str(value)
    if isinstance(value, list):
        return ",".join(_as_value(element, where) for element in value)
    raise ValueError(f"{where} is not a string, number, list or boolean")
