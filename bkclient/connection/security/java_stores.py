"""Key and trust stores of Java's own two forms, JKS and JCEKS, read by the library pyjks.

Agrees with the JDK's JavaKeyStore and JceKeyStore, and with BookKeeper 4.18.0, TLSContextFactory,
which opens a store and its keys with one password. A wrong password is seen by the checksum over
the file, before anything in it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from bkclient.errors import SecurityError

if TYPE_CHECKING:
    from bkclient.config.tls import StoreFile

MAGICS: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
"""How a JKS and a JCEKS file begin."""

ITERATIONS_MAX: Final = 5_000_000
"""How often a password is hashed at most, by a JCEKS file's own word: the limit of the JDK."""


def is_java_store(data: bytes) -> bool:
    """Return whether a file begins as a JKS or JCEKS store does."""
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
    except Exception as error:  # Those of three libraries, which have no class in common.
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
    """Return the store, its keys still locked: opening them is bounded work of its own."""
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
    except Exception as error:  # The library leaves errors of its decoders as they are.
        raise SecurityError(f"{store.key}: {store.path} is a damaged JKS or JCEKS file") from error


def _iterations(entry: Any) -> int:
    """Return how often the password of a key is hashed: once with JKS, as it says with JCEKS."""
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
