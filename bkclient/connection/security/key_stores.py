"""Keys and certificates from files: PEM, and PKCS12, JKS and JCEKS as keytool writes them.

Every error is a ``SecurityError`` with the setting and the file. No message contains a password.

The library pyjks reads key and trust stores of Java's own forms, JKS and JCEKS.

Agrees with the JDK's JavaKeyStore and JceKeyStore, and with BookKeeper 4.18.0, TLSContextFactory,
which opens a store and its keys with one password. The checksum over the file shows a wrong
password before anything in the file is used.
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
from bkclient.errors import SecurityError

MAGICS: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
"""The first bytes of a JKS and a JCEKS file."""

ITERATIONS_MAX: Final = 5_000_000
"""The largest number of hash rounds in a JCEKS file that is accepted: the limit of the JDK."""


def is_java_store(data: bytes) -> bool:
    """Return whether a file begins like a JKS or JCEKS store."""
    return data.startswith(MAGICS)


def key_in_java_store(
    store: StoreFile, data: bytes, password: str
) -> tuple[Any, tuple[x509.Certificate, ...]]:
    """Return the first private key of a store, and its certificates, its own first.

    Raises:
        SecurityError: the store cannot be read, or has no key that the password opens.
    """
    keys = _entries(store, data, password).private_keys
    if not keys:
        raise SecurityError(f"{store.key}: {store.path} holds no key with its certificate")
    alias, entry = next(iter(keys.items()))
    try:
        is_bounded = _iterations(entry) <= ITERATIONS_MAX
        if is_bounded:
            entry.decrypt(password)
            key = serialization.load_der_private_key(entry.pkey_pkcs8, None)
        certificates = tuple(map(_certificate, entry.cert_chain))
    except Exception as error:  # The errors of three libraries, which have no common class.
        raise SecurityError(
            f"{store.key}: the key {alias!r} in {store.path} cannot be read with the password of"
            " the store"
        ) from error
    if not is_bounded:
        raise SecurityError(f"{store.key}: {store.path} asks for too many iterations")
    if not certificates:
        raise SecurityError(f"{store.key}: {store.path} holds no key with its certificate")
    return key, certificates


def trusted_in_java_store(
    store: StoreFile, data: bytes, password: str
) -> tuple[x509.Certificate, ...]:
    """Return the trusted certificates of a store, and those of its keys, as Java trusts them.

    Raises:
        SecurityError: the store cannot be read.
    """
    found = _entries(store, data, password)
    own = [entry.cert_chain[0] for entry in found.private_keys.values() if entry.cert_chain]
    trusted = [(entry.type, entry.cert) for entry in found.certs.values()]
    try:
        return tuple(map(_certificate, [*trusted, *own]))
    except ValueError as error:
        raise SecurityError(
            f"{store.key}: {store.path} holds a certificate that cannot be read"
        ) from error


def _entries(store: StoreFile, data: bytes, password: str) -> Any:
    """Return the store with its keys still encrypted: their decryption is bounded separately."""
    try:
        import jks
    except ImportError as error:
        raise SecurityError(
            f"{store.key}: {store.path} is a JKS or JCEKS file: pip install 'bkctl[jks]', "
            "or convert it: keytool -importkeystore -deststoretype PKCS12"
        ) from error
    try:
        return jks.KeyStore.loads(data, password, try_decrypt_keys=False)
    except jks.KeystoreSignatureException as error:
        if not password:
            text = "cannot be read without its password"
        else:
            where = f" in {store.password_path}" if store.password_path else ""
            text = f"is damaged, or the password{where} is wrong"
        raise SecurityError(f"{store.key}: {store.path} {text}") from error
    except Exception as error:  # The library passes on the errors of its decoders.
        raise SecurityError(f"{store.key}: {store.path} is a damaged JKS or JCEKS file") from error


def _iterations(entry: Any) -> int:
    """Return the hash rounds of a key's password: one for JKS, the file's number for JCEKS."""
    from jks.rfc2898 import PBEParameter
    from jks.sun_crypto import SUN_JCE_ALGO_ID
    from pyasn1.codec.ber import decoder
    from pyasn1_modules import rfc5208

    encrypted = entry._encrypted  # noqa: SLF001  not offered in another way
    info = decoder.decode(encrypted, asn1Spec=rfc5208.EncryptedPrivateKeyInfo())[0]
    algorithm = info["encryptionAlgorithm"]
    if algorithm["algorithm"].asTuple() != SUN_JCE_ALGO_ID:
        return 1
    parameters = decoder.decode(algorithm["parameters"], asn1Spec=PBEParameter())[0]
    return int(parameters["iterationCount"])


def _certificate(typed: tuple[str, bytes]) -> x509.Certificate:
    return x509.load_der_x509_certificate(typed[1])


REVOKED_KEY: Final = "tlsRevocationListPath"
_PEM: Final = b"-----BEGIN "


@attrs.frozen
class OwnKey:
    """A private key, its certificate, and the intermediate certificates."""

    key: Any = attrs.field(repr=False)
    certificate: x509.Certificate
    chain: tuple[x509.Certificate, ...]


def read_own_key(settings: TlsSettings) -> OwnKey:
    """Return the key and certificates of this end."""
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
    """Return the trusted certificates; at least one."""
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
    _require_readable(store, data)
    try:
        key = serialization.load_pem_private_key(data, password or None)
    except TypeError as error:
        # The library reports a missing password, and an unnecessary one, in this way.
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
    _require_readable(store, data)
    try:
        return pkcs12.load_pkcs12(data, password)
    except (ValueError, UnsupportedAlgorithm) as error:
        if not password:
            text = "cannot be read without a password, or is not a PKCS12 file"
        else:
            where = f" in {store.password_path}" if store.password_path else ""
            text = f"is not a PKCS12 file, or the password{where} is wrong"
        raise SecurityError(f"{store.key}: {store.path} {text}") from error


def _require_readable(store: StoreFile, data: bytes) -> None:
    """Refuse a file whose first bytes belong to another type."""
    is_pem = data.lstrip().startswith(_PEM)
    if is_pem and store.type is not StoreType.PEM:
        raise SecurityError(f"{store.key}: {store.path} is PEM; set {store.type_key}=PEM")
    if not is_pem and store.type is StoreType.PEM and b"-----BEGIN" not in data:
        raise SecurityError(f"{store.key}: {store.path} is not PEM, as {store.type_key} says")


def _password(store: StoreFile) -> bytes | None:
    """Return the content of the password file, trimmed as by Java's trim()."""
    if store.password:
        return store.password.encode()
    if not store.password_path:
        return None
    return _read(f"{store.key}PasswordPath", store.password_path).strip()


def _java_password(store: StoreFile) -> str:
    """Return the password as Java's characters; empty if there is none, as in Java."""
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
