"""The directory of a local cluster: its files, and the process and user that may use it.

    cluster.json    the record of the cluster: ports, metadata URI and settings; the next start
                    reads it
    bkctl.env       for a shell: `. DIR/bkctl.env` selects the cluster for bkctl
    config.toml     the profile `local`, with the address of the cluster and the admin token's file
    racks.sh        with several racks: prints the rack of an address for bookies and clients
    admin-token     the token that bookies require for changes over HTTP
    bookied.lock    locked by the process that runs the cluster
    metadata.db     the embedded metadata, or zookeeper/ with --zookeeper
    bookie-N/       bookie.conf, bookie.log, journal/ and ledgers/ of one bookie; start.request asks
                    the process that runs the cluster to start the bookie again

Only a temporary directory that was created here is ever removed.
"""

from __future__ import annotations

import contextlib
import grp
import json
import os
import pwd
import secrets
import shlex
import shutil
import stat
import tempfile
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Final

import attrs
from attrs import validators

from bkclient.config.properties import read_properties
from bkctl.errors import CommandError, ConflictError, RefusedError
from bkctl.output.atomic_file import PART, write_atomically
from bkctl.output.units import counted
from bkctl.session.profiles import Profile, read_profiles
from bookied.directories.lock import LOCK, DirectoryLocks, is_locked, lock_owner
from bookied.directories.roots import COOKIE_BYTES_MAX, CURRENT, VERSION
from bookied.errors import DirectoryInUseError
from bookied.offline.directories import directories_of
from bookied.storage.files.files import read_regular
from wire.errors import BookKeeperError, FormatError
from wire.records.cookie import Cookie, decode_cookie

STATE_FILE: Final = "cluster.json"
_RECORD_BYTES_MAX: Final = 1 << 20
ENV_FILE: Final = "bkctl.env"
CONF_FILE: Final = "bookie.conf"
START_REQUEST: Final = "start.request"
BACKGROUND_LOG: Final = "local.log"
PROFILE_FILE: Final = "config.toml"
TOKEN_FILE: Final = "admin-token"  # noqa: S105 -- its name
PROFILE: Final = "local"
RACKS_FILE: Final = "racks.sh"
RACKS_KEY: Final = "networkTopologyScriptFileName"
_RACKS: Final = """\
#!/bin/sh
# Prints the rack of each address, for networkTopologyScriptFileName.
for host; do
  case $host in
    127.0.0.*) echo "/rack-${host##*.}" ;;
    *) echo /default-rack ;;
  esac
done
"""

_TEXT: Final = validators.instance_of(str)
_PORT: Final = validators.and_(validators.instance_of(int), validators.ge(0), validators.le(65535))


@attrs.frozen
class ClusterRecord:
    """The record of a local cluster: the content of ``cluster.json``."""

    uri: str = attrs.field(validator=_TEXT)
    """The metadata service URI."""
    ports: tuple[int, ...] = attrs.field(validator=validators.deep_iterable(_PORT))
    """The ports of the bookies, in their order."""
    zookeeper_port: int = attrs.field(default=0, validator=_PORT)
    """The port of the cluster's own ZooKeeper; 0 without one."""
    elsewhere: str = attrs.field(default="", validator=_TEXT)
    """The URI of metadata that the cluster did not start; empty for metadata of its own."""
    racks: int = attrs.field(default=1, validator=_PORT)
    """The number of addresses, each a rack, that the bookies are distributed over."""
    settings: Mapping[str, str] = attrs.field(
        factory=dict, validator=validators.deep_mapping(_TEXT, _TEXT)
    )
    """Settings of every bookie besides those of each local cluster: those of the first start, and
    later ones with which a start succeeded.
    """
    removed: tuple[int, ...] = attrs.field(default=(), validator=validators.deep_iterable(_PORT))
    """The ports of decommissioned bookies whose directories were removed."""

    @property
    def numbered(self) -> Mapping[int, int]:
        """The port of each bookie by its number; a number is never reused."""
        ports = enumerate(self.ports, 1)
        return {number: port for number, port in ports if port not in self.removed}


def _has_profile(path: Path, wanted: Profile) -> bool:
    """Return whether a file of profiles contains this profile; its user may have added others."""
    try:
        return read_profiles({"BKCTL_CONFIG": str(path)}).profiles.get(wanted.name) == wanted
    except CommandError:
        return False


def read_record(directory: Path) -> ClusterRecord | None:
    """Return the record of the cluster in a directory; None without a cluster.

    Raises:
        RefusedError: the file is not a record.
        OSError: the file is not a regular file, is too large, or cannot be read.
    """
    path = directory / STATE_FILE
    try:
        known = json.loads(read_regular(path, _RECORD_BYTES_MAX))
        given = {
            field.name: known[field.name]
            for field in attrs.fields(ClusterRecord)
            if field.name in known
        }
        return ClusterRecord(**{"uri": "", **given})
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise RefusedError(f"{path} is not the record of a local cluster") from error


def how_to_grow(directory: Path) -> str:
    """Return the commands that add bookies to a running cluster."""
    where = shlex.quote(str(directory))
    return (
        f"for more bookies: bkctl local N --dir {where} (N counts a decommissioned bookie until its"
        " directory is removed)"
    )


class LocalDirectory:
    """The directory of one local cluster, for the process that runs the cluster."""

    def __init__(self, path: Path | None) -> None:
        """Without ``path`` a temporary directory is created.

        Raises:
            RefusedError: another user owns the directory or can change it, or it contains files
                that no local cluster has.
        """
        self.is_temporary = path is None
        self.path = (path or Path(tempfile.mkdtemp(prefix="bkctl-local-"))).absolute()
        self._lock = DirectoryLocks()
        refuse_others_directory(self.path)
        refuse_foreign(self.path)

    @property
    def env_file(self) -> Path:
        return self.path / ENV_FILE

    @property
    def token_file(self) -> Path:
        return self.path / TOKEN_FILE

    @property
    def racks_file(self) -> Path:
        return self.path / RACKS_FILE

    def bookie(self, number: int) -> Path:
        """Return the directory of a bookie; 1 is the first."""
        return bookie_directory(self.path, number)

    def take(self) -> None:
        """Create the directory and lock it.

        Raises:
            ConflictError: another process runs the cluster.
            RefusedError: another user has created the directory meanwhile.
        """
        make_own(self.path)
        try:
            self._lock.take([self.path])
        except DirectoryInUseError as error:
            raise self.runs_already() from error

    def runs_already(self) -> ConflictError:
        """Return the error for a second start."""
        return ConflictError(
            f"the cluster in {self.path} runs already",
            next_step=f"to use it: . {shlex.quote(str(self.env_file))}; {how_to_grow(self.path)}",
        )

    def release(self) -> None:
        """Unlock the directory, so that another process can run the cluster."""
        self._lock.release()

    def remove(self) -> None:
        """Remove the directory if it is temporary."""
        if self.is_temporary:
            shutil.rmtree(self.path, ignore_errors=True)

    def save(self, record: ClusterRecord) -> None:
        """Write the record, the profile and the file for a shell; create the token once."""
        write_private(self.path / STATE_FILE, json.dumps(attrs.asdict(record), indent=1) + "\n")
        if not self.token_file.exists():
            write_private(self.token_file, secrets.token_urlsafe(24) + "\n")
        profile_file = self.path / PROFILE_FILE
        if record.racks > 1:
            write_private(self.racks_file, _RACKS)
            self.racks_file.chmod(0o700)
        profile = Profile(
            name=PROFILE,
            service_uri=record.uri,
            admin_token_file=str(self.token_file),
            client={
                **({RACKS_KEY: str(self.racks_file)} if record.racks > 1 else {}),
                **_security(record.settings),
            },
        )
        if not _has_profile(profile_file, profile):
            write_private(profile_file, _profile_text(profile))
        lines = (
            f"# The cluster in {self.path}, for a shell: . {shlex.quote(str(self.env_file))}\n"
            f"export BKCTL_SERVICE_URI={shlex.quote(record.uri)}\n"
            f"export BKCTL_CONFIG={shlex.quote(str(profile_file))}\n"
            f"export BKCTL_PROFILE={PROFILE}\n"
        )
        write_atomically(str(self.env_file), lines.encode())


def _security(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of TLS and logins that clients of these bookies need, too."""
    if not settings:
        return {}
    from bkclient.config.client import ClientConfig
    from bkclient.config.declaration import declared

    found = {}
    for one in declared(ClientConfig):
        if one.spec.group in {"TLS", "Authentication"}:
            names = (one.spec.key, *one.spec.aliases)
            given = next((name for name in names if name in settings), None)
            if given is not None:
                found[one.spec.key] = settings[given]
    return found


def _profile_text(profile: Profile) -> str:
    """Return a file of profiles with this profile as the default."""
    keys = {"service-uri": profile.service_uri, "admin-token-file": profile.admin_token_file}
    table = f"[profiles.{profile.name}"
    client = f"\n{table}.client]\n{_toml(profile.client)}" if profile.client else ""
    return f'profile = "{profile.name}"\n\n{table}]\n{_toml(keys)}{client}'


def _toml(keys: Mapping[str, str | None]) -> str:
    # No escapes for characters that are not ASCII: TOML has no surrogates.
    lines = (f"{key} = {json.dumps(text, ensure_ascii=False)}\n" for key, text in keys.items())
    return "".join(lines)


def holds_cluster(directory: Path) -> bool:
    """Return whether a directory contains a local cluster."""
    return (directory / STATE_FILE).is_file()


def directory_in_use(environ: Mapping[str, str]) -> str | None:
    """Return the directory of the local cluster whose `bkctl.env` this shell has read, if any."""
    profiles = Path(environ.get("BKCTL_CONFIG", ""))
    is_local = profiles.name == PROFILE_FILE and holds_cluster(profiles.parent)
    return str(profiles.parent) if is_local else None


def host_of(number: int, racks: int) -> str:
    """Return the address of a bookie; 1 is the first bookie. Each address is a rack."""
    return f"127.0.0.{(number - 1) % racks + 1}"


def bookie_directory(directory: Path, number: int) -> Path:
    """Return the directory of a bookie of the cluster in ``directory``; 1 is the first."""
    return directory / f"bookie-{number}"


def bookie_roots(home: Path) -> tuple[Path, ...]:
    """Return a bookie's directories: those of its settings, then the default ones."""
    named: tuple[Path, ...] = ()
    # The bookie's start reports an error in the file.
    with contextlib.suppress(OSError, BookKeeperError):
        named = directories_of(read_properties(home / CONF_FILE)).roots
    return tuple(dict.fromkeys((*named, home / "ledgers", home / "journal")))


def locked_root(home: Path) -> Path | None:
    """Return a directory that a bookie's process has locked; None while no process runs."""
    return next(filter(is_locked, bookie_roots(home)), None)


def requested_port(request: Path) -> int:
    """Return the first port to try for a new bookie, as its request names it; 0 for any."""
    with contextlib.suppress(OSError, ValueError):
        return int(read_regular(request, len("65535")))
    return 0


def bookie_id_in(home: Path, before_start: str) -> str:
    """Return the bookie id in a bookie's files; ``before_start`` without one."""
    cookie = cookie_in(home)
    return before_start if cookie is None else cookie.bookie_id


def cookie_in(home: Path) -> Cookie | None:
    """Return the first readable cookie in a bookie's directories."""
    for root in bookie_roots(home):
        with contextlib.suppress(OSError, FormatError):
            return decode_cookie(read_regular(root / CURRENT / VERSION, COOKIE_BYTES_MAX))
    return None


def former_id(homes: Iterable[Path]) -> str | None:
    """Return the instance id in the bookies' cookies; None without a cookie."""
    found = (cookie_in(home) for home in homes)
    return next((one.instance_id for one in found if one is not None), None)


def is_decommissioned(home: Path, bookie_id: str, known: Collection[str]) -> bool:
    """Return whether a bookie has started in its directory before, and has no cookie now."""
    return bookie_id not in known and any(
        (root / CURRENT / VERSION).exists() for root in bookie_roots(home)
    )


def is_removed(home: Path, bookie_id: str, known: Collection[str]) -> bool:
    """Return whether a bookie has no directory and no cookie, while other bookies have one."""
    return bool(known) and bookie_id not in known and not home.exists()


def refuse_started_by_hand(directory: Path, homes: Iterable[Path]) -> None:
    """Refuse while a bookie runs that the cluster's process did not start.

    Raises:
        ConflictError: a bookie was started by hand; the hint has the command that stops it.
    """
    locked = [root for root in map(locked_root, homes) if root is not None]
    if locked:
        was = "was" if len(locked) == 1 else "were"
        pids = " ".join(str(pid) for pid in map(lock_owner, locked) if pid is not None)
        raise ConflictError(
            f"{counted(len(locked), 'bookie')} in {directory} {was} started by hand and still"
            f" {'runs' if len(locked) == 1 else 'run'}",
            next_step=f"kill {pids}"
            if pids
            else "fuser -v on their lock files shows the processes",
        )


def make_own(directory: Path) -> None:
    """Create a directory for its user alone; check that an existing directory is the user's.

    Raises:
        RefusedError: another user owns the directory or can change it, or it contains links.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    refuse_others_directory(directory)  # Another user may have created it first.


def refuse_others_directory(directory: Path) -> None:
    """Refuse a directory that another user owns or can change: we trust the settings in it.

    Links in the directory are refused, too: a write would follow them. A link to a directory is
    allowed if the user owns the link: it may lead to another disk. FIFOs, sockets and devices are
    refused because a read would block.

    Raises:
        RefusedError: the directory is refused.
    """
    for found in (read(directory) for read in (os.lstat, os.stat) if directory.exists()):
        if found.st_uid != os.geteuid():
            raise RefusedError(
                f"{directory} belongs to user {found.st_uid}",
                next_step="give a directory of your own",
            )
        who = _others_who_can_write(found) if stat.S_ISDIR(found.st_mode) else None
        if who is not None:
            raise RefusedError(
                f"{who} can change the files in {directory}",
                next_step=f"chmod go-w {shlex.quote(str(directory))}",
            )
    for home in (directory, *directory.glob("bookie-*")):
        _refuse_special_files(home)


def _others_who_can_write(found: os.stat_result) -> str | None:
    """Return the users who can change a directory; a user's own group has no other members."""
    if found.st_mode & stat.S_IWOTH:
        return "every user"
    if not found.st_mode & stat.S_IWGRP:
        return None
    try:
        user, group = pwd.getpwuid(found.st_uid), grp.getgrgid(found.st_gid)
    except KeyError:
        return f"group {found.st_gid}"
    is_own = user.pw_gid == found.st_gid and user.pw_name == group.gr_name
    if is_own and not set(group.gr_mem) - {user.pw_name}:
        return None
    return f"group {group.gr_name}"


def _refuse_special_files(home: Path) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(home) as found:
        for one in found:
            if one.is_dir(follow_symlinks=False) or one.is_file(follow_symlinks=False):
                continue
            is_own = one.stat(follow_symlinks=False).st_uid == os.geteuid()
            if one.is_symlink() and is_own and one.is_dir():
                continue
            kind = "a symbolic link" if one.is_symlink() else "not a regular file"
            raise RefusedError(f"{one.path} is {kind}", next_step=f"rm {shlex.quote(one.path)}")


def refuse_foreign(directory: Path) -> None:
    """Refuse a directory with files but without a cluster.

    Raises:
        RefusedError: the directory is refused.
    """
    if not directory.is_dir() or holds_cluster(directory):
        return
    before_the_record = (BACKGROUND_LOG, LOCK, f".{STATE_FILE}.*{PART}")
    if not all(any(map(child.match, before_the_record)) for child in directory.iterdir()):
        raise RefusedError(f"{directory} holds something else", next_step="give an empty directory")


def write_private(path: Path, text: str) -> None:
    """Replace a file that may contain a secret, atomically; only its user can read it."""
    write_atomically(str(path), text.encode(), private=True)
