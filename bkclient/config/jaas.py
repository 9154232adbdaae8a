r"""JAAS files, which contain names and passwords for Java's programs.

    BookKeeper {
        org.apache.zookeeper.server.auth.DigestLoginModule required
        username="bookkeeper"
        password="...";
    };

Agrees with Java 17, com.sun.security.auth.login.ConfigFile: sections of login modules, each with
options up to a semicolon, comments as in Java. ``${…}`` is not expanded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NoReturn

import attrs

from bkclient.config.auth import simple_name
from bkclient.errors import SecurityError

_TOKEN: Final = re.compile(
    r'\s*(?:(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<mark>[{};=])|"(?P<quoted>(?:\\.|[^"\\\n])*)"'
    r'|(?P<word>[^\s{};="/]+(?:/(?![/*])[^\s{};="/]*)*))',
    re.DOTALL,
)
_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
_KERBEROS: Final = "Krb5LoginModule"


@attrs.frozen
class LoginModule:
    """One entry of a section: its class and its options, which may contain passwords."""

    name: str
    options: Mapping[str, str] = attrs.field(repr=False)

    @property
    def is_kerberos(self) -> bool:
        """True if the module uses Kerberos."""
        return simple_name(self.name) == _KERBEROS


@attrs.frozen
class Login:
    """The name and password of a client."""

    user: str
    password: str = attrs.field(repr=False)


class JaasFile:
    """The sections of one file."""

    def __init__(self, path: str, text: str) -> None:
        """Parse ``text``; ``path`` is for messages.

        Raises:
            SecurityError: the text is not a JAAS file; the error names the line.
        """
        self.path = path
        self._sections = dict(_Reader(path, text).sections())

    def __contains__(self, section: str) -> bool:
        return section in self._sections

    def users(self, section: str) -> dict[str, str]:
        """Return the passwords of a server's users by name, from options ``user_NAME="…"``.

        Raises:
            SecurityError: the section is missing, is for Kerberos, or names no user.
        """
        found: dict[str, str] = {}
        for module in self._modules(section):
            for key, value in module.options.items():
                if key.startswith("user_"):
                    found[key.removeprefix("user_")] = value
        if not found:
            raise SecurityError(f'{self.path}: {section} names no user; add user_NAME="PASSWORD"')
        return found

    def login(self, section: str) -> Login:
        """Return a client's login, from the options ``username`` and ``password``.

        Raises:
            SecurityError: the section is missing, is for Kerberos, or lacks an option.
        """
        for module in self._modules(section):
            if {"username", "password"} <= module.options.keys():
                return Login(module.options["username"], module.options["password"])
        raise SecurityError(f"{self.path}: {section} has no username and password")

    def _modules(self, section: str) -> tuple[LoginModule, ...]:
        modules = self._sections.get(section)
        if modules is None:
            existing = ", ".join(self._sections) or "none"
            raise SecurityError(
                f"{self.path}: there is no section {section}; existing sections: {existing}"
            )
        if any(module.is_kerberos for module in modules):
            raise SecurityError(
                f"{self.path}: {section} logs in by Kerberos (GSSAPI), which is not offered;"
                " DIGEST-MD5 is, with org.apache.zookeeper.server.auth.DigestLoginModule"
            )
        return modules


def read_jaas(path: str) -> JaasFile:
    """Return the content of a file.

    Raises:
        SecurityError: the file cannot be read, or is not a JAAS file.
    """
    if not path:
        raise SecurityError(
            "saslJaasConfigFile is not set; it names the file that Java is given as"
            " -Djava.security.auth.login.config"
        )
    try:
        return JaasFile(path, Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise SecurityError(f"saslJaasConfigFile: cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SecurityError(f"saslJaasConfigFile: {path} is not valid UTF-8") from error


class _Reader:
    """The tokens of a file, in order."""

    def __init__(self, path: str, text: str) -> None:
        self._path, self._text = path, text
        self._at = 0

    def sections(self) -> Iterator[tuple[str, tuple[LoginModule, ...]]]:
        while (name := self._take()) is not None:
            self._require("{", self._take())
            modules = []
            while (token := self._take()) != "}":
                modules.append(self._module(token))
            self._require(";", self._take())
            yield name, tuple(modules)

    def _module(self, name: str | None) -> LoginModule:
        flag = self._take()
        if name is None or flag is None or flag.lower() not in _FLAGS:
            self._fail("a login module and its flag (required, …)", flag)
        options: dict[str, str] = {}
        while (key := self._take()) != ";":
            self._require("=", self._take())
            value = self._take()
            if key is None or value is None:
                self._fail("an option", None)
            options[key] = value
        return LoginModule(name, options)

    def _require(self, wanted: str, found: str | None) -> None:
        if found != wanted:
            self._fail(f"'{wanted}'", found)

    def _fail(self, wanted: str, found: str | None) -> NoReturn:
        line = self._text.count("\n", 0, self._at) + 1
        # The text may be half a password, so it is not shown.
        what = "the file ends" if found is None else "there is something else"
        raise SecurityError(f"{self._path}:{line}: {wanted} is missing; {what}")

    def _take(self) -> str | None:
        while True:
            match = _TOKEN.match(self._text, self._at)
            if match is None:
                if self._text[self._at :].strip():
                    self._fail("something that can be understood", "")
                return None
            self._at = match.end()
            if match["comment"] is None:
                break
        quoted = match["quoted"]
        return match["mark"] or match["word"] if quoted is None else _unescaped(quoted)


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)
