"""`bkctl config`: settings files, read with the tables of the bookie and the client."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from bkclient.config.client import ClientConfig
from bkclient.config.declaration import declared, is_secret_key
from bkclient.config.findings import ConfigError, FindingKind, Findings, SettingFinding, Severity
from bkclient.config.private_files import changeable_by_others
from bkclient.config.properties import Properties
from bkclient.config.settings import (
    known_keys,
    load,
    setting_origins,
    settings_of_environment,
    settings_text,
)
from bkclient.connection.security.file_checks import check_files
from bkctl.commands.cluster.backup.backup_file import is_backup
from bkctl.commands.settings.config_keys import (
    CLASSES,
    KeyInfo,
    all_keys,
    masked,
    matching,
    names,
    value_in,
)
from bkctl.errors import NothingFoundError, ProblemsError, UsageError, WarningsError
from bkctl.global_options import global_options
from bkctl.output.units import counted
from bkctl.output.views import WIDE, Column, Kind, declare_view, evolve, field, shown
from bkctl.session.cluster_settings import DEFAULT_CONF, cluster_properties, read_conf
from bkctl.session.session import Session
from bkctl.suggest import COMPARE_BACKUPS, did_you_mean
from bookied.config.bookie import BookieConfig, load_bookie_config
from wire.errors import BookKeeperError

DEFAULT: str = "default"
"""The origin of a setting that no file, variable or option sets."""


@shown("differences")
class SettingDifference:
    """A key with different values in two files; None if a file does not set the key."""

    key: str = field("The key.")
    first: str | None = field("The value in the first file.", header="FILE 1")
    second: str | None = field("The value in the second file.", header="FILE 2")
    default: str | None = field("The default value, in effect if a file does not set the key.")


_SETTING: Final = (
    Column("key", "The key, or an option of every command."),
    Column("value", "The value in effect."),
    Column("origin", "Flag, variable, profile, line of a file, or default."),
)


@shown("settings", *_SETTING, id="key", sentence=lambda v: f"{v.key}={v.value}")
class Setting:
    """One value in effect, and its origin: a flag, variable, profile or line of a file."""

    key: str
    value: str
    origin: str


@shown("settings", *_SETTING, id="key")
class SettingFrom(Setting):
    """One value in effect, shown with its origin."""


def check(session: Session, path: str | None, side: str | None, *, strict: bool) -> None:
    """Print findings about a settings file.

    Raises:
        NothingFoundError: the file does not exist.
        PropertiesError: the file has a syntax error.
        ProblemsError: a bookie or client would refuse the settings.
        WarningsError: the settings have warnings, but no error.
    """
    path = path or _file_of(session)
    session.about = path
    properties = read_conf(Path(path))
    side = side or _side_of(properties, otherwise="bookie")
    found = [*findings(properties, side, strict=strict), *changeable_by_others(path)]
    session.emit_all(sorted(found, key=lambda one: one.severity.rank), SettingFinding)
    errors = sum(one.severity is Severity.ERROR for one in found)
    warnings = sum(one.severity is Severity.WARNING for one in found)
    if errors:
        raise ProblemsError(
            f"the settings cannot be used by a {side}: {counted(errors, 'error')}",
            next_step="`bkctl config show KEY` says what a key may be",
        )
    if warnings:
        raise WarningsError(
            f"the settings can be used by a {side}, with {counted(warnings, 'warning')}"
        )
    session.note(f"{path}: the settings can be used by a {side}")


def findings(properties: Properties, side: str, *, strict: bool) -> list[SettingFinding]:
    """Return findings about settings. A bookie's file may have client keys."""
    config, some = _loaded(CLASSES[side], properties, strict=strict)
    found = list(some)
    if config is not None:
        found += check_files(config)
    if side == "bookie":
        only_clients = known_keys(ClientConfig) - known_keys(BookieConfig)
        client, some = _loaded(ClientConfig, properties, strict=False)
        if client is not None and config is not None and config.has_client:
            some = (*some, *check_files(client))
        found += [
            one for one in some if one.kind is not FindingKind.UNKNOWN and one.key in only_clients
        ]
    return found


def show(
    session: Session,
    *,
    keys: Sequence[str],
    all_keys: bool,
    use: str | None,
    origin: bool,
    every: bool,
    side: str | None,
) -> None:
    """Print the settings in effect, or explain the named ``keys``, or all keys.

    With ``origin``, named settings are printed with their origins.

    Raises:
        NothingFoundError: a key does not exist.
        ConfigError, PropertiesError: the settings cannot be used.
    """
    side = side or side_of_file(session)
    if all_keys or use or (keys and not origin):
        _explain(session, keys, use, side)
    else:
        _show_in_effect(session, side, keys, origin=origin, every=every)


def side_of_file(session: Session) -> str:
    """Return "bookie" or "client": the side that reads most keys of the file of ``-c`` alone."""
    if session.options.conf is None:
        return "client"
    properties, _ = cluster_properties(session.options, session.host.environ)
    return _side_of(properties, otherwise="client")


def _side_of(properties: Properties, *, otherwise: str) -> str:
    """Return the side of these settings, by the keys that only one side reads."""
    client, bookie = (len(_only_of(side, properties)) for side in ("client", "bookie"))
    if client == bookie:
        return otherwise
    return "bookie" if bookie > client else "client"


def _only_of(side: str, properties: Properties) -> set[str]:
    """Return the keys that only this side reads."""
    other = next(name for name in CLASSES if name != side)
    return (properties.entries.keys() & _declared_names(side)) - _declared_names(other)


def _explain(session: Session, wanted: Sequence[str], use: str | None, side: str) -> None:
    """Explain keys, with the values in effect; a key of the other side has that side's value.

    Raises:
        NothingFoundError: a key does not exist.
    """
    found = _named(wanted) if wanted else all_keys()
    values = {one: _values(session, one) for one in CLASSES}
    chosen = [
        evolve(info, value=values[side if side in info.read_by else info.read_by[0]].get(key))
        for key, info in found.items()
        if use is None or use in info.uses
    ]
    if len(wanted) == len(chosen) == 1:
        session.emit(chosen[0])
    else:
        session.emit_all(chosen, KeyInfo)


def _named(wanted: Sequence[str]) -> dict[str, KeyInfo]:
    """Return the keys that match the words.

    Raises:
        NothingFoundError: a word matches no key.
    """
    keys = all_keys()
    found: dict[str, KeyInfo] = {}
    for word in wanted:
        matches = matching(word, keys)
        if not matches:
            raise NothingFoundError(
                f"there is no key {word!r}{did_you_mean(word, names(keys))}",
                next_step="`bkctl config show --keys -o id` lists all",
            )
        found |= {info.key: info for info in matches}
    return found


def _values(session: Session, side: str) -> dict[str, str]:
    """Return the values in effect, or none if they cannot be used; then warn about the file."""
    try:
        return {key: text for key, text, _ in _in_effect(session, side)}
    except BookKeeperError as error:
        if session.options.conf:
            session.warn(f"no values of the {side} are shown: {error}")
        return {}


def diff(session: Session, first: str, second: str | None) -> None:
    """Compare two files, or one file with the defaults.

    Raises:
        NothingFoundError: a file does not exist.
        PropertiesError: a file has a syntax error.
        UsageError: a name is a bookie's id, or a file is a backup of metadata.
    """
    if any(
        re.fullmatch(r".+:[0-9]+", name) and not Path(name).exists()
        for name in (first, second or "")
    ):
        raise UsageError(
            "the command compares files",
            next_step="`bkctl bookie config KEY` shows a setting of each running bookie",
        )
    for name in (first, second or ""):
        if Path(name).is_file() and is_backup(Path(name)):
            raise UsageError(
                f"{name}: this is a metadata backup, not a settings file", next_step=COMPARE_BACKUPS
            )
    one = read_conf(Path(first))
    other = read_conf(Path(second)) if second is not None else None
    found = list(differences(one, other))
    if other is None and session.options.output in {None, "table"} and not session.options.columns:
        session.options.columns = "key,first,default"
    session.emit_all(found, SettingDifference)
    if not found:
        session.note("no difference")


def differences(first: Properties, second: Properties | None) -> Iterator[SettingDifference]:
    """Yield the keys whose values in effect differ, by their current names."""
    keys = all_keys()
    used = {key: info for key, info in keys.items() if info.default is not None}
    known = {name for info in used.values() for name in (info.key, *info.aliases)}
    said = dict.fromkeys(key for file in (first, second) if file for key in file.entries)
    others = {
        key: KeyInfo(key=key, read_by=(), uses=(), doc="", secret=is_secret_key(key))
        for key in said
        if key not in known
    }
    for info in (*used.values(), *others.values()):
        default = info.default
        one, _ = value_in(first, info)
        two, _ = value_in(second, info) if second is not None else (None, None)
        if (default if one is None else one) != (default if two is None else two):
            yield SettingDifference(info.key, masked(info, one), masked(info, two), default)


def _show_in_effect(
    session: Session, side: str, wanted: Sequence[str], *, origin: bool, every: bool
) -> None:
    """Show the settings in effect; only those that match ``wanted``, if any.

    Raises:
        ConfigError, PropertiesError: the settings cannot be used.
    """
    kind = SettingFrom if origin else Setting
    if wanted:
        named = _named(wanted)
        found = [one for one in _in_effect(session, side) if one[0] in named]
    else:
        found = [*(_given(session) if origin else ()), *_in_effect(session, side)]
    session.emit_all((kind(*one) for one in found if wanted or every or one[2] != DEFAULT), kind)
    if not session.options.is_for_people:
        return
    properties, path = cluster_properties(session.options, session.host.environ)
    other = next(name for name in CLASSES if name != side)
    hidden = _only_of(other, properties)
    if side == "bookie":
        session.note(
            "settings for the next start; of a running bookie: `bkctl bookie config BOOKIE_ID`"
        )
    if hidden and path is not None and not wanted:
        session.note(f"not shown: {counted(len(hidden), 'key')} of {path}; see --for {other}")


def _declared_names(side: str) -> set[str]:
    return {name for one in declared(CLASSES[side]) for name in (one.spec.key, *one.spec.aliases)}


def _in_effect(session: Session, side: str) -> Iterator[tuple[str, str, str]]:
    """Yield key, text and origin of every setting."""
    properties, _ = cluster_properties(session.options, session.host.environ)
    cls: Any = CLASSES[side]
    if side == "bookie":
        words = settings_of_environment(session.host.environ, BookieConfig)
        missing = {key: text for key, text in words.items() if key not in known_keys(ClientConfig)}
        properties = properties.override(missing, "BK_{key}")
    config, _ = load(cls, properties, also=CLASSES.values())
    origins = setting_origins(cls, properties)
    for key, text in settings_text(config).items():
        yield key, text, origins.get(key, DEFAULT)


def _given(session: Session) -> Iterator[tuple[str, str, str]]:
    """Yield the global options that a flag, a variable or a profile sets."""
    options = session.options
    words = {one.name: max(one.opts, key=len) for one in global_options(root=True)}
    if options.used_profile is not None:
        source = options.origins.get("profile", "the default profile")
        yield "--profile", options.used_profile.name, source
    for name, source in options.origins.items():
        if name == "profile" and options.used_profile is not None:
            continue
        if name in {"conf", "output"} or (name in words and not source.startswith("-")):
            yield words[name], str(getattr(options, name)), source


def _loaded(cls: Any, properties: Properties, *, strict: bool) -> tuple[Any | None, Findings]:
    """Return settings and their findings; None instead of the settings if they are refused."""
    others = [one for one in CLASSES.values() if one is not cls]
    try:
        if cls is BookieConfig:
            return load_bookie_config(properties, strict=strict)
        return load(cls, properties, also=others, strict=strict)
    except ConfigError as error:
        return None, error.findings


def _file_of(session: Session) -> str:
    path = session.options.conf or next((str(p) for p in DEFAULT_CONF if p.is_file()), None)
    if path is None:
        raise UsageError("no settings file is named", next_step="name it, or give -c FILE")
    return path


declare_view(
    SettingFinding,
    "findings",
    Column("severity", "error, warning or note.", "severity.value", Kind.STATE),
    Column("key", "The key."),
    Column(
        "kind",
        "Kind of the problem; the word does not change between releases.",
        "kind.value",
        rank=WIDE,
    ),
    Column("message", "Description of the problem."),
    Column(
        "origin",
        "The file and the line.",
        lambda v: None if v.origin is None else str(v.origin),
        rank=2,
    ),
    Column("allowed", "The allowed values.", lambda v: v.allowed or None, rank=WIDE),
    id="key",
    sentence=lambda v: f"{v.severity.value}: {v}",
)
