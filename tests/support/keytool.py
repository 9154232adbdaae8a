"""Key and trust stores as the JDK's keytool makes them, in any of its forms."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from bkctl.commands.local.java import JavaNotFoundError, find_java
from tests.support.certificates import PASSWORD, Authority, Issued
from tests.support.programs import missing

_SHORT_LIVED: Final = ("-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC")
"""Options of a JVM that ends before its optimising compiler pays."""


def keytool(*arguments: object) -> None:
    """Run keytool, or skip the test where there is no JDK."""
    try:
        program = find_java().home / "bin" / "keytool"
    except JavaNotFoundError as error:
        missing(error)
    command = [str(program), *_SHORT_LIVED, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def key_store(path: Path, kind: str, own: Issued, password: str = PASSWORD.decode()) -> Path:
    """Return a new store of a key and its certificates, which one password opens."""
    source = path.with_suffix(".source")
    source.write_bytes(own.pkcs12(password.encode()))
    keytool(
        *("-importkeystore", "-noprompt"),
        *("-srckeystore", source, "-srcstoretype", "PKCS12", "-srcstorepass", password),
        *("-destkeystore", path, "-deststoretype", kind, "-deststorepass", password),
    )
    return path


def trust_store(
    path: Path, kind: str, trusted: Authority, password: str = PASSWORD.decode()
) -> Path:
    """Return a new store of an authority's certificate."""
    source = path.with_suffix(".source")
    source.write_bytes(trusted.certificate_pem)
    keytool(
        *("-importcert", "-noprompt", "-alias", "authority", "-file", source),
        *("-keystore", path, "-storetype", kind, "-storepass", password),
    )
    return path
