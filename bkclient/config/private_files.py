"""Files of settings and secrets that other users of the host can read or change."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import Any, Final

from bkclient.config.declaration import declared
from bkclient.config.findings import SettingFinding, risky

SECRET_FILES: Final = frozenset(
    {
        *("tlsKeyStore", "tlsKeyStorePasswordPath", "tlsTrustStorePasswordPath"),
        *("clientKeyStore", "clientKeyStorePasswordPath", "clientTrustStorePasswordPath"),
        *("httpServerKeyStorePath", "httpAdminTokenFile"),
        *("saslJaasConfigFile", "zkDigestAuthFile"),
    }
)
"""Settings that name a file with a secret."""


def open_to_others(config: Any) -> Iterator[SettingFinding]:
    """Warn about each secret file in the settings that other users may read."""
    for one in declared(type(config)):
        path = getattr(config, one.argument, None) if one.spec.key in SECRET_FILES else None
        problem = problem_of(path) if path else None
        if problem is not None:
            yield risky(one.spec.key, f"{path} {problem}")


def changeable_by_others(path: str) -> Iterator[SettingFinding]:
    """Warn about a settings file that other users may change: settings name programs to run."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116
    except OSError:
        return  # The reader of the file reports this error.
    if stat.S_ISREG(mode) and mode & stat.S_IWOTH:
        message = (
            f"has mode {stat.S_IMODE(mode):04o}: every user of this host can change it;"
            f" chmod o-w {path}"
        )
        yield risky(path, message)


def problem_of(path: str) -> str | None:
    """Return what other users can do to a secret file, with a remedy; else None."""
    try:
        found = os.stat(path)  # noqa: PTH116 -- pathlib costs bkctl its start time
    except OSError:
        return None  # The user of the file reports this error.
    can = "change" if found.st_mode & stat.S_IWOTH else "read"
    if found.st_mode & (stat.S_IROTH | stat.S_IWOTH):
        mode = stat.S_IMODE(found.st_mode)
        return f"has mode {mode:04o}: every user of this host can {can} it; chmod o-rwx {path}"
    return None
