"""Keys and certificates that live as long as a test, in the forms that peers read."""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Sequence
from pathlib import Path

import attrs
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

PASSWORD = b"a store's password"
_BOTH_ENDS = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)


@attrs.frozen
class Issued:
    """A key, its certificate, and whoever signed it."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    authority: x509.Certificate

    @property
    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def key_pem(self, password: bytes | None = None) -> bytes:
        sealed = serialization.BestAvailableEncryption(password) if password else None
        return self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            sealed or serialization.NoEncryption(),
        )

    def pkcs12(self, password: bytes = PASSWORD) -> bytes:
        sealed = serialization.BestAvailableEncryption(password)
        return pkcs12.serialize_key_and_certificates(
            b"own", self.key, self.certificate, [self.authority], sealed
        )


class Authority:
    """Signs certificates; trusted by whoever is given its own."""

    def __init__(self, name: str = "an authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        self.certificate = self._signed(
            self._name, self._key, x509.BasicConstraints(ca=True, path_length=None), ()
        )

    @property
    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def pkcs12(self, password: bytes = PASSWORD) -> bytes:
        """Return a trust store as keytool makes one."""
        return pkcs12.serialize_java_truststore(
            [pkcs12.PKCS12Certificate(self.certificate, b"authority")],
            serialization.BestAvailableEncryption(password),
        )

    def issue(
        self,
        name: str,
        *,
        hosts: Sequence[str] = ("localhost", "127.0.0.1"),
        unit: str = "",
        days: int = 365,
        begins_days: int = -1000,
        usages: Sequence[x509.ObjectIdentifier] = _BOTH_ENDS,
    ) -> Issued:
        """Sign a new key's certificate.

        ``days`` below 0 make one that has expired, ``begins_days`` above 0 one of the future.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        extensions: list[x509.ExtensionType] = [x509.ExtendedKeyUsage(usages)]
        if hosts:
            extensions.append(x509.SubjectAlternativeName([_host(host) for host in hosts]))
        constraints = x509.BasicConstraints(ca=False, path_length=None)
        certificate = self._signed(
            _name(name, unit), key, constraints, extensions, days, begins_days
        )
        return Issued(key, certificate, self.certificate)

    def revocation_list(self, *revoked: Issued, days: int = 30) -> bytes:
        """Return the list of what is revoked, in PEM; ``days`` below 0 make one of the past."""
        now = dt.datetime.now(dt.timezone.utc)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self._name)
            .last_update(now - dt.timedelta(days=1000))
            .next_update(now + dt.timedelta(days=days))
        )
        for one in revoked:
            entry = x509.RevokedCertificateBuilder().serial_number(one.certificate.serial_number)
            builder = builder.add_revoked_certificate(entry.revocation_date(now).build())
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def _signed(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        constraints: x509.BasicConstraints,
        extensions: Sequence[x509.ExtensionType],
        days: int = 365,
        begins_days: int = -1000,
    ) -> x509.Certificate:
        now = dt.datetime.now(dt.timezone.utc)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + dt.timedelta(days=begins_days))
            .not_valid_after(now + dt.timedelta(days=days))
            .add_extension(constraints, critical=True)
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=False)
        return builder.sign(self._key, hashes.SHA256())


def _name(name: str, unit: str = "") -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
    if unit:
        parts.append(x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit))
    return x509.Name(parts)


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


@attrs.frozen
class Pem:
    """Files of one end in PEM: paths of the key, its certificate, and whom to trust."""

    key: Path
    certificate: Path
    trust: Path


def write_pem(directory: Path, own: Issued, trusted: Authority) -> Pem:
    """Write the files of one end, over those that are there."""
    directory.mkdir(parents=True, exist_ok=True)
    found = Pem(directory / "key.pem", directory / "certificate.pem", directory / "trust.pem")
    found.key.touch(0o600)
    found.key.write_bytes(own.key_pem())
    found.certificate.write_bytes(own.certificate_pem)
    found.trust.write_bytes(trusted.certificate_pem)
    return found


def bookie_keys(pem: Pem, **more: object) -> dict[str, object]:
    """Return the settings of a bookie of either kind that switch TLS on."""
    return {
        "tlsProviderFactoryClass": "org.apache.bookkeeper.tls.TLSContextFactory",
        "tlsProvider": "JDK",
        "tlsKeyStoreType": "PEM",
        "tlsKeyStore": pem.key,
        "tlsCertificatePath": pem.certificate,
        "tlsTrustStoreType": "PEM",
        "tlsTrustStore": pem.trust,
        **more,
    }


def https_keys(pem: Pem) -> dict[str, object]:
    """Return the settings of a bookie that serve HTTP in TLS; certificates may be missing."""
    return {
        "httpServerTlsEnable": "true",
        "httpServerKeyStoreType": "PEM",
        "httpServerKeyStorePath": pem.key,
        "httpServerCertificatePath": pem.certificate,
        "httpServerTrustStoreType": "PEM",
        "httpServerTrustStorePath": pem.trust,
        "httpServerTlsClientAuthentication": "false",
    }


def client_keys(pem: Pem, **more: object) -> dict[str, object]:
    """Return the settings of a client of either kind that switch TLS on."""
    return {
        "tlsProviderFactoryClass": "org.apache.bookkeeper.tls.TLSContextFactory",
        "tlsProvider": "JDK",
        "clientKeyStoreType": "PEM",
        "clientKeyStore": pem.key,
        "tlsCertificatePath": pem.certificate,
        "clientTrustStoreType": "PEM",
        "clientTrustStore": pem.trust,
        **more,
    }
