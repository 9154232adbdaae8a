"""Keys and certificates from files: PEM, and PKCS12, JKS and JCEKS as keytool writes them.

Everything raises ``SecurityError`` with the setting and the file that is wrong. No password is ever
part of a message.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import attrs
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from bkclient.config.tls import StoreFile, StoreType, TlsSettings
from bkclient.connection.security.java_stores import (
    is_java_store,
    key_in_java_store,
    trusted_in_java_store,
)
from bkclient.errors import SecurityError

REVOKED_KEY: Final = "tlsRevocationListPath"
_PEM: Final = b"-----BEGIN "


@attrs.frozen
class OwnKey:
    """A private key, its certificate, and the certificates between that and an authority."""

    key: Any = attrs.field(repr=False)
    certificate: x509.Certificate
    chain: tuple[x509.Certificate, ...]


def read_own_key(settings: TlsSettings) -> OwnKey:
    """Return what one end shows of itself."""
    store = settings.key_store
    if store.type is StoreType.PEM:
        return _own_key_in_pem(store, settings)
    data = _read(store.key, store.path)
    if is_java_store(data):
        key, certificates = key_in_java_store(store, data, _java_password(store))
        return OwnKey(key, certificates[0], certificates[1:])
    found = _pkcs12(store, data)
    if found.key is None or found.cert is None:
        raise SecurityError(f"{store.key}: {store.path} holds no key with its certificate")
    chain = tuple(one.certificate for one in found.additional_certs)
    return OwnKey(found.key, found.cert.certificate, chain)


def read_trusted(store: StoreFile) -> tuple[x509.Certificate, ...]:
    """Return the certificates that others must come from; at least one."""
    if not store.path:
        raise SecurityError(f"{store.key} is not set, so that no certificate could be trusted")
    if store.type is StoreType.PEM:
        return _certificates(store.key, store.path)
    data = _read(store.key, store.path)
    if is_java_store(data):
        trusted = trusted_in_java_store(store, data, _java_password(store))
    else:
        found = _pkcs12(store, data)
        own = [] if found.cert is None else [found.cert]
        trusted = tuple(one.certificate for one in (*own, *found.additional_certs))
    if not trusted:
        raise SecurityError(f"{store.key}: {store.path} holds no certificate")
    return trusted


def read_revoked(path: str) -> tuple[x509.CertificateRevocationList, ...]:
    """Return the revocation lists in a file; at least one."""
    data = _read(REVOKED_KEY, path)
    lists = re.findall(rb"-----BEGIN X509 CRL-----.*?-----END X509 CRL-----", data, re.DOTALL)
    try:
        found = tuple(map(x509.load_pem_x509_crl, lists))
    except ValueError as error:
        raise SecurityError(f"{REVOKED_KEY}: {path} has a list that cannot be read") from error
    if not found:
        raise SecurityError(f"{REVOKED_KEY}: {path} holds no revocation list in PEM")
    return found


def _own_key_in_pem(store: StoreFile, settings: TlsSettings) -> OwnKey:
    certificate_path = settings.certificate_path
    certificate, *chain = _certificates(settings.certificate_key, certificate_path)
    data, password = _read(store.key, store.path), _password(store)
    _insist_readable(store, data)
    try:
        key = serialization.load_pem_private_key(data, password or None)
    except TypeError as error:
        # So it says of a password that is missing, and of one that is given where none is needed.
        raise SecurityError(f"{store.key}: {store.path}: {error}") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise SecurityError(
            f"{store.key}: {store.path} is not a private key, or the password is wrong"
        ) from error
    own = key.public_key()
    if own != certificate.public_key():
        raise SecurityError(
            f"{store.key}: the key in {store.path} does not belong to the first certificate in"
            f" {certificate_path}"
        )
    return OwnKey(key, certificate, tuple(chain))


def _certificates(key: str, path: str) -> tuple[x509.Certificate, ...]:
    try:
        return tuple(x509.load_pem_x509_certificates(_read(key, path)))
    except ValueError as error:
        raise SecurityError(f"{key}: {path} holds no certificate in PEM") from error


def _pkcs12(store: StoreFile, data: bytes) -> Any:
    password = _password(store)
    _insist_readable(store, data)
    try:
        return pkcs12.load_pkcs12(data, password)
    except (ValueError, UnsupportedAlgorithm) as error:
        if not password:
            text = "cannot be read without a password, or is not a PKCS12 file"
        else:
            where = f" in {store.password_path}" if store.password_path else ""
            text = f"is not a PKCS12 file, or the password{where} is wrong"
        raise SecurityError(f"{store.key}: {store.path} {text}") from error


def _insist_readable(store: StoreFile, data: bytes) -> None:
    """Refuse what can be told by its first bytes to be of another type."""
    is_pem = data.lstrip().startswith(_PEM)
    if is_pem and store.type is not StoreType.PEM:
        raise SecurityError(f"{store.key}: {store.path} is PEM; set {store.type_key}=PEM")
    if not is_pem and store.type is StoreType.PEM and b"-----BEGIN" not in data:
        raise SecurityError(f"{store.key}: {store.path} is not PEM, as {store.type_key} says")


def _password(store: StoreFile) -> bytes | None:
    """Return what the password file holds, without the line's end, as Java's trim() leaves it."""
    if store.password:
        return store.password.encode()
    if not store.password_path:
        return None
    return _read(f"{store.key}PasswordPath", store.password_path).strip()


def _java_password(store: StoreFile) -> str:
    """Return the password as Java's characters; one that cannot be had is empty, as there."""
    try:
        return (_password(store) or b"").decode()
    except UnicodeDecodeError as error:
        raise SecurityError(
            f"{store.key}PasswordPath: {store.password_path} is not UTF-8"
        ) from error


def _read(key: str, path: str) -> bytes:
    if not path:
        raise SecurityError(f"{key} is not set")
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise SecurityError(f"{key}: cannot read {path}: {error.strerror}") from error
