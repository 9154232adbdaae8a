r"""The syntax of a Java ``bk_server.conf``: text to keys and lists of values, with their places.

Agrees with BookKeeper 4.18.0, which reads its files through Apache commons-configuration 2 with a
comma as list delimiter: ``key=value``, ``key: value`` or ``key value``; ``#`` and ``!`` comments;
backslash at the end of a line joins the next one; ``\uXXXX`` and the usual escapes; a comma
splits a value into a list (``\,`` is a plain comma); a repeated key adds to its list; ``include =
other.conf`` reads another file in place; ``${env:NAME}``, ``${sys:name}`` and ``${other.key}`` are
expanded when a value is used.
"""

from __future__ import annotations

import errno
import itertools
import os
import pwd
import re
import select
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Final

import attrs

from wire.errors import BookKeeperError

FILE_BYTES_MAX: Final = 4 * 1024 * 1024
INCLUDES_MAX: Final = 100
"""Files that one file may include, directly and indirectly."""

INCLUDE_DEPTH_MAX: Final = 16
"""The depth of includes above which they count as a circle."""

EXPANSIONS_MAX: Final = 64
"""The number of ``${…}`` in one value above which they count as a circle."""

UNKNOWN: Final = "?"
"""Java's text for a user without a name or home."""

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_KEY = re.compile(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*(.*)", re.DOTALL)
_REFERENCE = re.compile(r"\$\{([^${}]+)\}")
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "b": "\b"}


@attrs.frozen
class Origin:
    """The place where a value was set: a line of a file, an environment variable, or an option."""

    source: str
    line: int | None = None

    def __str__(self) -> str:
        return self.source if self.line is None else f"{self.source}:{self.line}"


class PropertiesError(BookKeeperError):
    """A settings file cannot be read, or breaks the syntax."""

    exit_status: ClassVar[int] = 2

    def __init__(self, message: str, origin: Origin) -> None:
        super().__init__(f"{origin}: {message}")
        self.origin = origin

    @classmethod
    def of_option(cls, option: str, message: str) -> PropertiesError:
        """Return the error of an invalid option."""
        return cls(message, Origin(option))


@attrs.frozen
class Value:
    """One element of a key's list, as written: ``${…}`` not yet expanded."""

    text: str
    origin: Origin


@attrs.frozen
class Property:
    """The values of one key; ``statements`` has a list of values for each statement, in order."""

    key: str
    statements: tuple[tuple[Value, ...], ...]

    @property
    def origin(self) -> Origin:
        return self.statements[0][0].origin

    @property
    def values(self) -> tuple[Value, ...]:
        """All values of all statements, as in Java's ``getList``."""
        return tuple(value for statement in self.statements for value in statement)


@attrs.frozen
class Properties:
    """Keys and their values in order of appearance, with values for ``${env:}`` and ``${sys:}``."""

    entries: Mapping[str, Property] = _NOTHING  # type: ignore[assignment]  # empty either way
    environ: Mapping[str, str] = attrs.field(default=_NOTHING, repr=False)
    system: Mapping[str, str] = attrs.field(default=_NOTHING, repr=False)

    def override(self, settings: Mapping[str, str], source: str) -> Properties:
        """Return these properties with ``settings`` in place of earlier values.

        The texts are split and unescaped as in a file. Errors name ``source``, in which ``{key}``
        becomes the key, as in ``"BK_{key} in the environment"``.
        """
        entries = dict(self.entries)
        for key, text in settings.items():
            origin = Origin(source.replace("{key}", key))
            entries[key] = Property(key, (_split(text, origin),))
        return attrs.evolve(self, entries=MappingProxyType(entries))

    def expand(self, value: Value) -> str:
        """Return the text of ``value`` with its ``${…}`` expanded; unknown ones stay.

        Raises:
            PropertiesError: the references form a circle.
        """
        text = value.text
        for _ in range(EXPANSIONS_MAX):
            for match in _REFERENCE.finditer(text):
                meaning = self._meaning(match.group(1))
                if meaning is not None:
                    text = text[: match.start()] + meaning + text[match.end() :]
                    break
            else:
                return text
        raise PropertiesError(f"'{value.text}' refers to itself", value.origin)

    def _meaning(self, name: str) -> str | None:
        space, colon, rest = name.partition(":")
        if colon and space == "env":
            return self.environ.get(rest)
        if colon and space == "sys":
            return self.system.get(rest)
        other = self.entries.get(name)
        return None if other is None else other.values[0].text


def parse_properties(
    text: str,
    *,
    source: str = "<text>",
    environ: Mapping[str, str] = _NOTHING,
    system: Mapping[str, str] = _NOTHING,
    include: Callable[[str, Origin], tuple[str, str]] | None = None,
) -> Properties:
    """Return the settings in ``text``.

    ``include`` gets the name in an ``include`` line and returns the source name and the text to
    read in its place; without it an ``include`` line is an error.

    Raises:
        PropertiesError: an invalid escape, or an include that cannot be read.
    """
    statements: dict[str, list[tuple[Value, ...]]] = {}
    _collect(text, source, include, statements, 0)
    entries = {key: Property(key, tuple(found)) for key, found in statements.items()}
    return Properties(MappingProxyType(entries), environ, system)


def read_properties(
    path: Path, *, environ: Mapping[str, str] = _NOTHING, system: Mapping[str, str] | None = None
) -> Properties:
    """Read a file and its includes; names in ``include`` are relative to the including file.

    Files are UTF-8; a file that is not counts as ISO 8859-1, as in Java.

    Raises:
        PropertiesError: a file is missing, unreadable, or breaks the syntax.
    """
    included = itertools.count(1)

    def include(name: str, origin: Origin) -> tuple[str, str]:
        if next(included) > INCLUDES_MAX:
            raise PropertiesError(f"more than {INCLUDES_MAX} files are included", origin)
        target = Path(origin.source).parent / name
        return str(target), _read_text(target, origin)

    return parse_properties(
        _read_text(path, Origin(str(path))),
        source=str(path),
        environ=environ,
        system=java_system_properties() if system is None else system,
        include=include,
    )


def user_name() -> str:
    """Return the name of the process's user; ``?`` without one, as in Java.

    In containers a user often has only a number. The environment is ignored.
    """
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return UNKNOWN


def java_system_properties() -> Mapping[str, str]:
    """Return Java's system properties that have a meaning without Java."""
    home = os.path.expanduser("~")  # noqa: PTH111 -- that one raises where there is none
    return {
        "user.name": user_name(),
        "user.home": UNKNOWN if home == "~" else home,
        "user.dir": str(Path.cwd()),
        "java.io.tmpdir": tempfile.gettempdir(),
        "file.separator": "/",
        "path.separator": ":",
    }


def _read_text(path: Path, origin: Origin) -> str:
    included = f"cannot read {path}: " if str(path) != origin.source else ""
    try:
        data = read_at_most(str(path), FILE_BYTES_MAX)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise PropertiesError(included + why, origin) from error
    if len(data) > FILE_BYTES_MAX:
        raise PropertiesError(f"{included}larger than {FILE_BYTES_MAX} bytes", origin)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("iso-8859-1")


def _collect(
    text: str,
    source: str,
    include: Callable[[str, Origin], tuple[str, str]] | None,
    statements: dict[str, list[tuple[Value, ...]]],
    depth: int,
) -> None:
    for line, origin in _logical_lines(text, source):
        match = _KEY.fullmatch(line)
        assert match is not None, "every line matches"
        key = _unescape(match.group(1), origin)
        if key != "include":
            statements.setdefault(key, []).append(_split(match.group(2), origin))
            continue
        if include is None:
            raise PropertiesError("cannot include another file from here", origin)
        if depth == INCLUDE_DEPTH_MAX:
            raise PropertiesError("files include each other in a circle", origin)
        for value in _split(match.group(2), origin):
            name, included = include(value.text, origin)
            _collect(included, name, include, statements, depth + 1)


def _logical_lines(text: str, source: str) -> Iterator[tuple[str, Origin]]:
    """Yield each statement and its place; comments within a continued statement are skipped."""
    joined, started = "", 0
    for number, physical in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        line = physical.strip()
        if not line or line[0] in "#!":
            continue
        started = started or number
        if (len(line) - len(line.rstrip("\\"))) % 2:
            joined += line[:-1]
            continue
        yield joined + line, Origin(source, started)
        joined, started = "", 0
    if joined:
        yield joined, Origin(source, started)


def _split(text: str, origin: Origin) -> tuple[Value, ...]:
    """Split ``text`` at its unescaped commas into at least one value, which may be empty."""
    parts = re.findall(r"((?:\\.|[^\\,])*\\?)(,|$)", text, re.DOTALL)
    if len(parts) > 1 and not parts[-2][1]:
        parts.pop()  # The pattern also matches the empty text after the last part.
    texts = [_unescape(part.strip(), origin) for part, _ in parts]
    return tuple(Value(part, origin) for part in texts)


def _unescape(text: str, origin: Origin) -> str:
    if "\\" not in text:
        return text

    def replace(match: re.Match[str]) -> str:
        name = match.group(1)
        if not name.startswith("u"):
            return _ESCAPES.get(name, name)
        try:
            return chr(int(name[1:], 16))
        except ValueError:
            raise PropertiesError(
                f"'\\{name}' is not a \\uXXXX with four hexadecimal digits", origin
            ) from None

    return re.sub(r"\\(u.{0,4}|.)", replace, text, flags=re.DOTALL)


PIECE_BYTES: Final = 64 * 1024

WRITER_WAIT_S: Final = 2.0
"""Seconds that a pipe may have no writer: a shell may start the writer after the reader."""


def read_at_most(path: str, bytes_max: int, writer_wait_s: float = WRITER_WAIT_S) -> bytes:
    """Return the content of a file, up to one byte more than ``bytes_max``.

    A pipe with a writer is read to its end, however long that takes.

    Raises:
        OSError: the file cannot be read, or is a pipe without a writer (``EPIPE``).
    """
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        is_pipe, data = stat.S_ISFIFO(os.fstat(number).st_mode), bytearray()
        poll, is_waited_for = select.poll(), False
        poll.register(number, select.POLLIN)
        while len(data) <= bytes_max:
            try:
                piece = os.read(number, min(PIECE_BYTES, bytes_max + 1 - len(data)))
            except BlockingIOError:
                is_waited_for = True  # The pipe has a writer.
                poll.poll()
                continue
            if not piece and is_pipe and not (data or is_waited_for):
                if not poll.poll(writer_wait_s * 1000):
                    raise OSError(errno.EPIPE, "no process writes to this pipe", path)
                is_waited_for = True
                continue
            if not piece:
                break
            data += piece
        return bytes(data)
    finally:
        os.close(number)
