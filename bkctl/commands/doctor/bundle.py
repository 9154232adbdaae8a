"""`bkctl debug bundle`: writes a tar file with the output of several commands.

Each command runs in its own process. If one fails or hangs, its error is in the bundle, and the
others continue. Settings from options are passed in the environment, which other users cannot read.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import platform
import re
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from bkclient.config.declaration import MASKED, is_secret_key
from bkctl.errors import file_errors
from bkctl.output.atomic_file import making_file, require_new
from bkctl.output.units import counted
from bkctl.output.views import field, shown
from bkctl.session.session import Session

PART_TIMEOUT_S: Final = 120
LOG_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes at the end of a log that are read, however long its lines are."""

BOOKIES_MAX: Final = 50
"""The largest number of bookies whose metrics are read."""

PARTS: Final = {
    "doctor.json": ("doctor", "--json"),
    "version.json": ("version", "--all", "--json"),
    "settings-client.json": ("config", "show", "--all", "--json"),
    "settings-bookie.json": ("config", "show", "--all", "--for", "bookie", "--json"),
    "cluster.json": ("cluster", "status", "--json"),
    "bookies.json": ("bookie", "list", "--json"),
    "autorecovery.json": ("autorecovery", "status", "--json"),
}
"""Files of the bundle, and the commands that print them."""

# Names and keys have a bound: clients may write lines of any length to a log.
_PAIR: Final = re.compile(
    r"""([A-Za-z_][\w.-]{0,63})(["']?\s*[=:]\s*)("[^"]*"|'[^']*'|[^\s,;}\]]+)"""
)
_BEARER: Final = re.compile(r"(?i)\b(bearer|basic|digest)\s+[\w+/=.~-]+")
_PEM: Final = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.{0,20000}?-----END [A-Z ]{0,40}PRIVATE KEY-----",
    re.DOTALL,
)


@shown(
    "bundles",
    kw_only=True,
    sentence=lambda v: (
        f"wrote {v.path} with {counted(len(v.parts), 'file')}"
        + (f"; failed: {', '.join(v.failed)}" if v.failed else "")
    ),
)
class Bundle:
    """A written bundle: its file, its parts, and the parts whose command failed."""

    path: str = field("The file.")
    parts: tuple[str, ...] = field("Parts of the bundle.")
    failed: tuple[str, ...] = field("Parts whose command failed; each part holds its error.")


def write(session: Session, out: str | None, logs: tuple[str, ...], lines: int) -> None:
    """Write the bundle and print its parts.

    Raises:
        NothingFoundError: a log cannot be read, or the file cannot be written.
        ConflictError: the file exists.
    """
    tails = {f"log/{number}-{Path(one).name}": _tail(one, lines) for number, one in enumerate(logs)}
    environ = _environment(session)
    path = out or time.strftime("bkctl-debug-%Y%m%dT%H%M%S.tar.gz", time.gmtime())
    require_new(path)
    if session.plans_only([f"write {path}"]):
        return
    found: dict[str, bytes] = {"system.json": _system()}
    failed: list[str] = []
    with session.progress("collecting", unit="parts") as progress:
        for name, words in PARTS.items():
            progress.update(len(found))
            _take(found, failed, name, words, environ)
        for bookie_id in _bookies(found["bookies.json"]):
            name = f"metrics/{re.sub('[^A-Za-z0-9.-]', '_', bookie_id)}.json"
            _take(found, failed, name, ("bookie", "metrics", bookie_id, "--json"), environ)
    secrets = tuple(_secrets(session))
    parts = {name: mask(data, secrets) for name, data in {**found, **tails}.items()}
    _write_tar(path, parts)
    session.emit(Bundle(path=path, parts=tuple(parts), failed=tuple(failed)))


def mask(data: bytes, secrets: tuple[str, ...]) -> bytes:
    """Return a text without secrets: known secrets, values with secret names, keys and tokens."""
    text = data.decode("utf-8", "replace")
    for secret in secrets:
        text = text.replace(secret, MASKED).replace(json.dumps(secret)[1:-1], MASKED)
    text = _PEM.sub(MASKED, text)
    text = _BEARER.sub(lambda found: f"{found[1]} {MASKED}", text)
    return _PAIR.sub(_masked_pair, text).encode()


def _masked_pair(found: re.Match[str]) -> str:
    key, between, value = found.groups()
    return f"{key}{between}{MASKED}" if is_secret_key(key) else f"{key}{between}{value}"


def _take(
    found: dict[str, bytes],
    failed: list[str],
    name: str,
    words: tuple[str, ...],
    environ: Mapping[str, str],
) -> None:
    shown, said = _run(words, environ)
    found[name] = shown or said
    if not shown:
        failed.append(name)
    elif said:
        found[f"{name}.stderr"] = said


def _run(words: tuple[str, ...], environ: Mapping[str, str]) -> tuple[bytes, bytes]:
    """Return a command's output and its stderr; an empty output means that the command failed."""
    command = [sys.executable, "-m", "bkctl", *words]
    try:
        done = subprocess.run(
            command, capture_output=True, check=False, timeout=PART_TIMEOUT_S, env=dict(environ),
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return b"", f"bkctl {' '.join(words)}: no end in {PART_TIMEOUT_S} s\n".encode()
    return done.stdout, done.stderr


def _environment(session: Session) -> dict[str, str]:
    """Return an environment that selects the session's cluster for a command."""
    options = session.options
    given = {
        "BKCTL_CONF": options.conf,
        "BKCTL_SERVICE_URI": options.service_uri,
        "BKCTL_PROFILE": options.profile,
    }
    settings = dict(one.partition("=")[::2] for one in options.overrides)
    kept = {key: text for key, text in session.host.environ.items() if key != "BKCTL_OUTPUT"}
    return {
        **kept,
        **{name: text for name, text in given.items() if text},
        **{f"BK_{key}": text for key, text in settings.items()},
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }


def _bookies(listed: bytes) -> list[str]:
    try:
        rows = json.loads(listed)
    except ValueError:
        return []
    rows = rows.get("bookies", []) if isinstance(rows, dict) else rows
    named = [one.get("bookie_id") for one in rows if isinstance(one, dict)]
    return [str(one) for one in named if one][:BOOKIES_MAX]


def _secrets(session: Session) -> Iterator[str]:
    """Yield every secret of the settings and of the files that they name."""
    from bkclient.config.private_files import SECRET_FILES
    from bkclient.config.properties import PropertiesError, read_properties

    for text in session.options.overrides:
        yield from _secret_of(*text.partition("=")[::2], SECRET_FILES)
    for name, text in session.host.environ.items():
        if name.startswith("BK_"):
            yield from _secret_of(name[3:], text, SECRET_FILES)
    conf = session.options.conf
    if not conf or not Path(conf).is_file():
        return
    with contextlib.suppress(PropertiesError):
        properties = read_properties(Path(conf), environ=session.host.environ)
        for one in properties.entries.values():
            for value in one.values:
                yield from _secret_of(one.key, value.text, SECRET_FILES)
                yield from _secret_of(one.key, properties.expand(value), SECRET_FILES)


def _secret_of(key: str, value: str, files: frozenset[str]) -> Iterator[str]:
    if is_secret_key(key) and value:
        yield value
    if key not in files or not Path(value).is_file() or Path(value).stat().st_size > 1 << 20:
        return
    text = Path(value).read_text(encoding="utf-8", errors="replace")
    yield from (one for one in re.findall(r'"([^"]+)"', text) if len(one) > 2)  # noqa: PLR2004
    if "PasswordPath" in key or "Token" in key or "Digest" in key:
        yield from (one for one in (text.strip(), text.strip().partition(":")[2]) if one)


def _tail(path: str, lines: int) -> bytes:
    with file_errors(f"--log {path}"), open(path, "rb") as file:  # noqa: PTH123
        file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_BYTES_MAX))
        return b"".join(file.readlines()[-lines:])


def _system() -> bytes:
    # Each access to ``metadata`` reads the file again.
    described = (one.metadata for one in metadata.distributions())
    packages = sorted(f"{one['Name']}=={one['Version']}" for one in described)
    found: dict[str, Any] = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "system": platform.platform(),
        "python": sys.version,
        "processors": os.cpu_count(),
        "packages": packages,
    }
    return json.dumps(found, indent=1).encode() + b"\n"


def _write_tar(path: str, parts: Mapping[str, bytes]) -> None:
    with making_file(path, private=True) as file, tarfile.open(fileobj=file, mode="w:gz") as tar:
        for name, data in parts.items():
            member = tarfile.TarInfo(f"bkctl-debug/{name}")
            member.size, member.mode, member.mtime = len(data), 0o600, int(time.time())
            tar.addfile(member, io.BytesIO(data))
