"""The TLS settings of both ends, by Java's keys.

Agrees with BookKeeper 4.18.0, AbstractConfiguration, ServerConfiguration, ClientConfiguration and
TLSContextFactory. Java reads a list of versions or ciphers only up to its first comma; this module
reads the complete list. ``bkclient.connection.security.tls_contexts`` reads the files, and reads
them again when they change.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import attrs

from bkclient.config.auth import not_offered
from bkclient.config.declaration import setting
from bkclient.config.findings import SettingFinding, risky

VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
"""The supported versions; older ones are broken, and off in Java and OpenSSL."""

_OLD_VERSIONS: Final = frozenset({"SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1"})
_NEW_SUITE: Final = re.compile(r"TLS_(AES_128_GCM|AES_256_GCM|CHACHA20_POLY1305)_SHA(256|384)")
_OLD_SUITE: Final = re.compile(
    r"TLS_(?:(ECDHE|DHE)_)?(RSA|ECDSA)_WITH_(AES_\d+_(?:GCM|CBC)|CHACHA20_POLY1305)_(SHA\d*)"
)
_OPENSSL_SUITE: Final = re.compile(r"[A-Z0-9]+(-[A-Z0-9]+)+")


def split(listed: Iterable[str]) -> tuple[str, ...]:
    """Return the names in a setting, whose commas may be escaped, as Java requires."""
    return tuple(name.strip() for text in listed for name in text.split(",") if name.strip())


def versions_refused(listed: Iterable[str]) -> str | None:
    """Return the fault of a list of versions; old versions beside a new one are ignored."""
    names = split(listed)
    unknown = [name for name in names if name not in {*VERSIONS, *_OLD_VERSIONS}]
    if unknown:
        return (
            f"names {', '.join(unknown)}, which is not a version of TLS; give {', '.join(VERSIONS)}"
        )
    if names and not set(names) & set(VERSIONS):
        return f"names no version of TLS that is safe; give {', '.join(VERSIONS)}"
    return None


def versions(listed: Iterable[str]) -> tuple[str, ...]:
    """Return the enabled versions, lowest first; all supported ones for an empty list."""
    names = split(listed)
    return tuple(name for name in VERSIONS if not names or name in names)


def suites_refused(listed: Iterable[str]) -> str | None:
    """Return the fault of a list of cipher suites."""
    unknown = [name for name in split(listed) if openssl_suite(name) is None]
    return f"names {', '.join(unknown)}, which is not a known cipher suite" if unknown else None


def openssl_suite(name: str) -> str | None:
    """Return OpenSSL's name of a suite; ``None`` for an unknown or unsupported name.

    The suites of TLS 1.3 have the same name in both.
    """
    if is_tls13(name):
        return name
    found = _OLD_SUITE.fullmatch(name)
    if found is None:
        is_one = _OPENSSL_SUITE.fullmatch(name) and not name.startswith("TLS")
        return name if is_one else None
    exchange, signed, cipher, digest = found.groups()
    cipher = cipher.replace("AES_", "AES").replace("_CBC", "").replace("_", "-")
    parts = [*([exchange, signed] if exchange else []), cipher]
    return "-".join(parts if cipher.startswith("CHACHA20") else [*parts, digest])


def is_tls13(name: str) -> bool:
    """Return whether a suite is one of TLS 1.3."""
    return _NEW_SUITE.fullmatch(name) is not None


FACTORY: Final = "TLSContextFactory"
"""The simple name of Java's one TLS provider, which bkclient implements."""


class StoreType(enum.Enum):
    """The type of a file with keys or certificates."""

    PEM = "PEM"
    PKCS12 = "PKCS12"
    JKS = "JKS"
    JCEKS = "JCEKS"


@attrs.frozen(kw_only=True)
class StoreFile:
    """A file with keys or certificates, and its password or password file; ``""`` for none.

    ``key`` is the setting with the file's name, for messages.
    """

    key: str
    type: StoreType
    path: str
    password_path: str = ""
    password: str = attrs.field(default="", repr=False)

    @property
    def type_key(self) -> str:
        """The setting with the file's type."""
        return f"{self.key.removesuffix('Path')}Type"


@attrs.frozen(kw_only=True)
class TlsSettings:
    """The settings of one end, from any of their keys.

    ``check_host`` is for clients: a bookie's certificate must match its host. ``asks_certificate``
    is for servers: clients are asked for a certificate and also served without one;
    ``client_authentication`` refuses clients without one.
    """

    certificate_path: str
    key_store: StoreFile
    trust_store: StoreFile
    client_authentication: bool
    versions: tuple[str, ...] = ()
    suites: tuple[str, ...] = ()
    refresh_s: int = 0
    timeout_s: int = 10
    check_host: bool = False
    asks_certificate: bool = False
    revoked_path: str = ""
    certificate_key: str = "tlsCertificatePath"
    """The setting with the certificate's file, for messages."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Every file in the settings."""
        stores = (self.key_store, self.trust_store)
        named = [
            self.certificate_path,
            self.revoked_path,
            *(path for s in stores for path in (s.path, s.password_path)),
        ]
        return tuple(path for path in named if path)


def store_type(key: str, store: str, *aliases: str) -> StoreType:
    """Declare the setting of the type of a key store or trust store."""
    return setting(
        StoreType.JKS,
        key=key,
        aliases=aliases,
        doc=f"Type of the {store} store: PEM, PKCS12, JKS or JCEKS. Between the last three, the "
        "file's first bytes decide.",
    )


@attrs.frozen(kw_only=True, slots=False)  # One of several base classes.
class TlsConfig:
    """The TLS settings of both ends."""

    tls_factory: str = setting(
        "",
        key="tlsProviderFactoryClass",
        group="TLS",
        doc="org.apache.bookkeeper.tls.TLSContextFactory switches TLS on; empty switches TLS off.",
        refuse=not_offered(FACTORY),
    )
    tls_client_authentication: bool = setting(
        False,
        key="tlsClientAuthentication",
        doc="Require a certificate from each client that uses TLS; clients then send theirs.",
    )
    tls_certificate_path: str = setting(
        "",
        key="tlsCertificatePath",
        doc="File with the certificate of the key in the key store, and its chain. Only with a "
        "PEM key store.",
    )
    tls_versions: tuple[str, ...] = setting(
        (),
        key="tlsEnabledProtocols",
        doc="Allowed versions: TLSv1.2, TLSv1.3, or both (default).",
        refuse=versions_refused,
    )
    tls_suites: tuple[str, ...] = setting(
        (),
        key="tlsEnabledCipherSuites",
        doc="Allowed cipher suites, by Java's or OpenSSL's names; all if empty.",
        refuse=suites_refused,
    )
    tls_revoked_path: str = setting(
        "",
        key="tlsRevocationListPath",
        doc="PEM file with a revocation list of each certificate authority in the trust store. "
        "Not a key of Java.",
    )
    tls_refresh_s: int = setting(
        0,
        key="tlsCertFilesRefreshDurationSeconds",
        minimum=0,
        doc="How often the TLS files are checked for changes, when a connection is made; 0 is "
        "never.",
    )

    @property
    def has_tls(self) -> bool:
        """True if TLS is on."""
        return bool(self.tls_factory)

    def _tls_settings(self, **own: Any) -> TlsSettings:
        """Return the settings of one end; ``own`` are those that the other end does not have."""
        return TlsSettings(
            certificate_path=self.tls_certificate_path,
            versions=self.tls_versions,
            suites=self.tls_suites,
            revoked_path=self.tls_revoked_path,
            refresh_s=self.tls_refresh_s,
            **own,
        )


@attrs.frozen(kw_only=True, slots=False)  # One of several base classes.
class ClientTlsConfig(TlsConfig):
    """A client's TLS settings; a bookie's keys apply if the client's are not set."""

    client_key_store_type: StoreType = store_type("clientKeyStoreType", "key", "tlsKeyStoreType")
    client_key_store: str = setting(
        "", key="clientKeyStore", aliases=("tlsKeyStore",), doc="File with the client's key."
    )
    client_key_store_password_path: str = setting(
        "",
        key="clientKeyStorePasswordPath",
        aliases=("tlsKeyStorePasswordPath",),
        doc="File with the password of the key store.",
    )
    client_trust_store_type: StoreType = store_type(
        "clientTrustStoreType", "trust", "tlsTrustStoreType"
    )
    client_trust_store: str = setting(
        "",
        key="clientTrustStore",
        aliases=("tlsTrustStore",),
        doc="File with the certificate authorities of bookies.",
    )
    client_trust_store_password_path: str = setting(
        "",
        key="clientTrustStorePasswordPath",
        aliases=("tlsTrustStorePasswordPath",),
        doc="File with the password of the trust store.",
    )
    tls_check_host: bool = setting(
        True,
        key="tlsHostnameVerificationEnabled",
        doc="Require that a bookie's certificate names its host. Java's default is false, for "
        "clusters whose certificates name no host.",
    )
    start_tls_timeout_s: int = setting(
        10, key="startTLSTimeoutSecs", minimum=1, doc="Time limit of the TLS handshake."
    )

    @property
    def tls(self) -> TlsSettings | None:
        """The settings of the client's end; ``None`` if TLS is off."""
        return self._own_tls(shows=self.tls_client_authentication) if self.has_tls else None

    def tls_problems(self) -> Iterator[SettingFinding]:
        """Warn if any bookie's certificate would be accepted for any other bookie."""
        if self.has_tls and not self.tls_check_host:
            yield risky(
                "tlsHostnameVerificationEnabled",
                "is false: an attacker with the key of one bookie can pose as every bookie",
            )

    @property
    def https(self) -> TlsSettings:
        """The settings of a client of bookies' HTTP servers, with a certificate if it has one."""
        return self._own_tls(shows=bool(self.client_key_store))

    def _own_tls(self, *, shows: bool) -> TlsSettings:
        return self._tls_settings(
            key_store=StoreFile(
                key="clientKeyStore",
                type=self.client_key_store_type,
                path=self.client_key_store,
                password_path=self.client_key_store_password_path,
            ),
            trust_store=StoreFile(
                key="clientTrustStore",
                type=self.client_trust_store_type,
                path=self.client_trust_store,
                password_path=self.client_trust_store_password_path,
            ),
            client_authentication=shows,
            timeout_s=self.start_tls_timeout_s,
            check_host=self.tls_check_host,
        )
