"""`bkctl profile`: changes of the user's file of profiles."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from bkclient.config.client import ClientConfig
from bkclient.config.declaration import MASKED, declared
from bkclient.config.properties import Properties
from bkclient.config.settings import known_keys
from bkclient.metadata import check_uri
from bkctl.commands.settings import profile_file
from bkctl.errors import CommandError, ConflictError, NothingFoundError, RefusedError, UsageError
from bkctl.output.views import WIDE, Column, Kind, field, shown
from bkctl.session.cluster_settings import URI_KEY, overrides, read_conf
from bkctl.session.profiles import (
    NO_PROFILE,
    Profile,
    ProfileFile,
    parse_profiles,
    profile_path,
    read_profiles,
    resolve_profile,
    warn_of_open_file,
)
from bkctl.session.session import Session
from bkctl.suggest import did_you_mean

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

_FILE_OPTIONS: Final = ("ca_file", "cert_file", "key_file", "key_password_file")


@shown(
    "profiles",
    Column("profile", "Name of the profile.", "profile.name"),
    Column("default", "Whether commands without --profile use the profile."),
    Column(
        "production",
        "Whether the profile is marked as production.",
        "profile.production",
        Kind.FLAG,
    ),
    Column("service_uri", "The metadata service.", "profile.service_uri"),
    Column("conf", "The settings file.", "profile.conf", rank=2),
    Column("output", "Format of results without -o.", "profile.output", rank=3),
    Column(
        "admin_token_file",
        "File of the token for the bookies' HTTP API.",
        "profile.admin_token_file",
        rank=WIDE,
    ),
    Column("tls", "Files for TLS.", "profile.tls", Kind.NESTED, rank=WIDE),
    Column("client", "Keys of the settings file.", rank=WIDE),
    kw_only=True,
)
class ProfileRow:
    """One profile, and whether it is the default; secrets among its keys are masked."""

    profile: Profile
    default: bool

    @property
    def client(self) -> dict[str, str]:
        secret = {one.spec.key for one in declared(ClientConfig) if one.spec.secret}
        return {k: MASKED if k in secret else v for k, v in self.profile.client.items()}


@shown(
    "profiles",
    sentence=lambda v: (
        f"profile {v.name} {v.action} ({v.path})" if v.action != "saved" else f"{v.path} saved"
    ),
)
class ProfileChanged:
    """A change of a profile, and the changed file."""

    name: str = field("Name of the profile.", name="profile")
    action: str = field("The change that was made.")
    path: str = field("The file.")


def list_profiles(session: Session) -> None:
    """Print all profiles."""
    session.emit_all(profiles(session), ProfileRow)


def show(session: Session, name: str | None) -> None:
    """Print a profile; without a name, the profile in use.

    Raises:
        NothingFoundError: the profile does not exist, or no profile is in use.
    """
    session.emit(profile(session, name))


def profiles(session: Session) -> Iterator[ProfileRow]:
    """Yield all profiles."""
    file = _file(session)
    for one in file.profiles.values():
        yield ProfileRow(profile=one, default=one.name == file.default)


def profile(session: Session, name: str | None) -> ProfileRow:
    """Return a profile; without a name, the profile in use.

    Raises:
        NothingFoundError: the profile does not exist, or no profile is in use.
    """
    file = _file(session)
    if name is None:
        found = resolve_profile(session.options, session.host.environ)
        if found is None:
            raise NothingFoundError(
                "no profile is in use", next_step="`bkctl profile use NAME` makes one the default"
            )
    else:
        found = file[name]
    return ProfileRow(profile=found, default=found.name == file.default)


def create(session: Session, /, name: str, **values: Any) -> None:
    """Add a new profile to the file.

    Raises:
        ConflictError: the profile exists.
        UsageError: no option names a cluster, or the name or a key is invalid.
    """
    file = _file(session)
    _check_name(name)
    if name in file.profiles:
        raise ConflictError(
            f"there is a profile {name!r} already",
            next_step=f"`bkctl profile edit {name} -u URI` changes its cluster",
        )
    made = _changed(session, Profile(name=name), values)
    if made.service_uri is None and made.conf is None and not made.client:
        raise UsageError("no cluster is named", next_step="give -u URI or -c FILE")
    _put(session, file, made, "created", use_it=values["use"])
    _note_profile_of_local_cluster(session, made)


def _check_name(name: str) -> str:
    """Return the name, if a new profile may have it.

    Raises:
        UsageError: the name is invalid.
    """
    if not _NAME.fullmatch(name) or name == NO_PROFILE:
        raise UsageError(
            f"{name!r} is not a valid name for a profile",
            next_step="letters, digits, dots, dashes and underscores, and not `none`",
        )
    return name


def _note_profile_of_local_cluster(session: Session, made: Profile) -> None:
    from bkctl.commands.local.directory import PROFILE_FILE, holds_cluster

    _, scheme, path = (made.service_uri or "").rpartition("sqlite://")
    home = Path(path).parent
    if scheme and made.admin_token_file is None and holds_cluster(home):
        session.finish()
        session.note(
            "this cluster has a profile with its admin token and racks: "
            f"bkctl profile import {shlex.quote(str(home / PROFILE_FILE))}"
        )


def edit(session: Session, /, name: str | None, *, unset: Sequence[str], **values: Any) -> None:
    """Change a profile by the options; without options open the file in an editor.

    Raises:
        NothingFoundError: the profile does not exist, or lacks a field of ``unset``.
        UsageError: no profile was named.
        RefusedError: there is no terminal for an editor.
    """
    if name is None and not unset and not _is_given(session, values):
        edit_by_hand(session)
        return
    if name is None:
        raise UsageError("no profile is named", next_step="`bkctl profile list` shows them")
    file = _file(session)
    before = file[name]
    if not unset and not _is_given(session, values):
        edit_by_hand(session)
        return
    made = _changed(session, _without(before, unset), values)
    _put(session, file, made, "changed", use_it=values["use"])


def use(session: Session, name: str) -> None:
    """Make a profile the default; the name ``none`` removes the default.

    Raises:
        NothingFoundError: the profile does not exist.
    """
    file = _file(session)
    wanted = None if name == NO_PROFILE else file[name].name
    if session.plans_only([f"make {name} the default in {file.path}"]):
        return
    _write(session, file, profile_file.with_default(file, wanted))
    session.emit(ProfileChanged(name, "made the default", str(file.path)))
    _warn_of_overrides(session, name)


def delete(session: Session, name: str) -> None:
    """Remove a profile from the file, after a confirmation.

    Raises:
        NothingFoundError: the profile does not exist.
        RefusedError: the user did not confirm.
    """
    file = _file(session)
    where = file[name].service_uri or file[name].conf or "no cluster"
    if session.plans_only([f"take profile {name} ({where}) out of {file.path}"]):
        return
    session.confirm([f"profile {name}: {where}"], f"Forget profile {name}?")
    _write(session, file, profile_file.without_profile(file, name))
    session.emit(ProfileChanged(name, "deleted", str(file.path)))


def take_over(
    session: Session, path: str, name: str | None, *, new_name: str | None, replace: bool
) -> None:
    """Copy profiles from another file into the user's file; ``new_name`` renames a single profile.

    Raises:
        NothingFoundError: the file or the profile does not exist.
        ConflictError: a profile of this name exists, and ``replace`` is false.
        UsageError: the file has no profile, or several for one new name.
    """
    file = _file(session)
    found = _profiles_of(Path(path), name)
    if new_name is not None:
        if len(found) > 1:
            names = ", ".join(one.name for one in found)
            raise UsageError("--as is for one profile", next_step=f"choose it with --name: {names}")
        found = [attrs.evolve(found[0], name=_check_name(new_name))]
    taken = [one.name for one in found if one.name in file.profiles]
    if taken and not replace:
        raise ConflictError(
            f"there is a profile {taken[0]!r} already",
            next_step="add --replace, or give another name with --as NAME",
        )
    if session.plans_only([f"put profile {one.name} into {file.path}" for one in found]):
        return
    for one in found:
        text = profile_file.with_profile(file, one)
        file = attrs.evolve(parse_profiles(text, file.path))
    _write(session, file, file.text)
    done = [ProfileChanged(one.name, "imported", str(file.path)) for one in found]
    session.emit_all(done, ProfileChanged)


def edit_by_hand(session: Session) -> None:
    """Open a copy of the file in an editor; the saved copy replaces the file if it is valid.

    Raises:
        RefusedError: there is no terminal for an editor.
        UsageError: the saved copy is invalid; it stays beside the file.
    """
    path = _path(session)
    if not session.questions.can_ask:
        raise RefusedError(
            "an editor needs a terminal", next_step=f"change {path} with another program"
        )
    before = path.read_text(encoding="utf-8") if path.exists() else profile_file.HEAD
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    number, name = tempfile.mkstemp(prefix="config-", suffix=".toml", dir=path.parent)
    with os.fdopen(number, "w", encoding="utf-8") as copy:
        copy.write(before)
    environ = session.host.environ
    editor = environ.get("VISUAL") or environ.get("EDITOR") or "vi"
    status = subprocess.run([*shlex.split(editor), name], check=False).returncode
    if status:
        Path(name).unlink()
        raise CommandError(f"{editor} ended with status {status}; nothing was changed")
    after = Path(name).read_text(encoding="utf-8")
    parse_profiles(after, Path(name))
    profile_file.write_profiles(path, after)
    Path(name).unlink()
    session.emit(ProfileChanged("all profiles", "saved", str(path)))


def _path(session: Session) -> Path:
    path = profile_path(session.host.environ)
    if path is None:
        raise UsageError("there is no home directory for profiles", next_step="set BKCTL_CONFIG")
    return path


def _file(session: Session) -> ProfileFile:
    file = read_profiles(session.host.environ)
    warn_of_open_file(session.messages, file.path)
    return file


def _put(session: Session, file: ProfileFile, made: Profile, action: str, *, use_it: bool) -> None:
    text = profile_file.with_profile(file, made)
    if use_it:
        text = profile_file.with_default(parse_profiles(text, file.path), made.name)
    if session.plans_only([f"write profile {made.name} to {file.path}"]):
        return
    _write(session, file, text)
    session.emit(ProfileChanged(made.name, action, str(file.path)))
    if use_it:
        session.note(f"profile {made.name} is the default now")
        _warn_of_overrides(session, made.name)
    if action == "created":
        _warn_of_local_file(session)


def _warn_of_local_file(session: Session) -> None:
    from bkctl.commands.local.directory import directory_in_use

    if directory := directory_in_use(session.host.environ):
        session.warn(
            f"the profile is removed with the local cluster in {directory}, because BKCTL_CONFIG "
            "names the file there; to use your own file: unset BKCTL_CONFIG"
        )


def _warn_of_overrides(session: Session, name: str) -> None:
    """Warn of variables that select another cluster than the default profile ``name``."""
    options = session.options
    others = {"service_uri", "conf"} | ({"profile"} if options.profile != name else set())
    found = sorted(
        variable
        for option, variable in options.origins.items()
        if option in others and variable in session.host.environ
    )
    if found:
        session.warn(
            f"{' and '.join(found)} {'overrides' if len(found) == 1 else 'override'} the default "
            f"profile in this shell; to use the default: unset {' '.join(found)}"
        )


def _write(session: Session, file: ProfileFile, text: str) -> None:
    path = _path(session)
    assert path == file.path
    profile_file.write_profiles(path, text)


# Values of a profile ------------------------------------------------------------------------------


def _flag(session: Session, name: str) -> Any:
    """Return a global option that was typed as a flag; values of variables are not stored."""
    return getattr(session.options, name) if session.options.is_typed(name) else None


def _is_given(session: Session, values: Mapping[str, Any]) -> bool:
    flags = (_flag(session, name) for name in ("service_uri", "conf", "overrides"))
    return (
        any(flags)
        or any(value not in {None, False} for value in values.values())
        or (values["production"] is False)
    )


def _changed(session: Session, before: Profile, values: Mapping[str, Any]) -> Profile:
    """Return a profile with new values.

    Raises:
        IncorrectParameterError: the URI is invalid.
        NothingFoundError: a file is missing.
    """
    files = {
        name.replace("_", "-"): _absolute(values[name]) for name in _FILE_OPTIONS if values[name]
    }
    conf = _flag(session, "conf")
    if conf and not Path(conf).is_file():
        raise NothingFoundError(
            f"{conf}: no such file", next_step="give the settings file of a bookie or a client"
        )
    if (uri := _flag(session, "service_uri")) is not None:
        check_uri(uri)
    token_file = values["admin_token_file"]
    for path in (*files.values(), token_file and _absolute(token_file)):
        if path and not Path(path).is_file():
            raise NothingFoundError(f"{path}: no such file")
    given = {
        "service_uri": _flag(session, "service_uri"),
        "conf": conf and _absolute(conf),
        "output": values["default_output"],
        "production": values["production"],
        "admin_token_file": token_file and _absolute(token_file),
        "tls": {**before.tls, **files},
        "client": {**before.client, **_client_keys(session)},
    }
    return attrs.evolve(before, **{k: v for k, v in given.items() if v is not None})


def _absolute(path: str) -> str:
    """Return a path without ``..``; a file that is a symbolic link keeps its name."""
    file = Path(path)
    return str(file.parent.resolve() / file.name)


_OF_A_LEDGER: Final = "each ledger has its quorums: `bkctl ledger create -E 3 -W 2 -A 2`"


def _client_keys(session: Session) -> dict[str, str]:
    found = overrides(_flag(session, "overrides") or ())
    known = known_keys(ClientConfig)
    for key in found:
        if key not in known:
            raise UsageError(
                f"-X {key}: clients know no such key{did_you_mean(key, known)}",
                next_step=_OF_A_LEDGER if "quorum" in key.lower() else "",
            )
    return found


def _without(before: Profile, unset: Sequence[str]) -> Profile:
    """Return a profile without some of its fields.

    Raises:
        NothingFoundError: the profile does not have a field.
    """
    for name in unset:
        field = name.replace("-", "_")
        if name in before.tls:
            before = attrs.evolve(before, tls={k: v for k, v in before.tls.items() if k != name})
        elif name in before.client:
            rest = {k: v for k, v in before.client.items() if k != name}
            before = attrs.evolve(before, client=rest)
        elif field != "name" and isinstance(getattr(before, field, None), (str, bool)):
            said: dict[str, Any] = {field: False if field == "production" else None}
            before = attrs.evolve(before, **said)
        else:
            raise NothingFoundError(f"profile {before.name} says nothing of {name}")
    return before


# Other files --------------------------------------------------------------------------------------


def _profiles_of(path: Path, name: str | None) -> list[Profile]:
    if path.suffix != ".toml":
        return [_from_settings(read_conf(path), name or path.stem, path)]
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise NothingFoundError(f"{path}: no such file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}") from error
    file = parse_profiles(text, path)
    found = [file[name]] if name else list(file.profiles.values())
    if not found:
        raise UsageError(f"{path}: there is no profile in it")
    return [attrs.evolve(one, name=_check_name(one.name)) for one in found]


def _from_settings(properties: Properties, name: str, path: Path) -> Profile:
    """Return a profile with the cluster and the client keys of a Java settings file."""
    used = {key for one in declared(ClientConfig) for key in (one.spec.key, *one.spec.aliases)}
    said = {
        prop.key: ",".join(properties.expand(value) for value in prop.values)
        for prop in properties.entries.values()
        if prop.key in used
    }
    uri = said.pop(URI_KEY, None)
    if uri is None and "zkServers" not in said:
        raise UsageError(f"{path}: names no cluster", next_step=f"it lacks {URI_KEY}")
    return Profile(name=_check_name(name), service_uri=uri, client=said)
