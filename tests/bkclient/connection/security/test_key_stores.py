"""Stores that cannot be used: which setting, which file, and why, but never a password."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from bkclient.config.tls import StoreFile, StoreType, TlsSettings
from bkclient.connection.security.key_stores import read_own_key, read_trusted
from bkclient.errors import SecurityError
from tests.support.certificates import PASSWORD, Authority, write_pem

AUTHORITY = Authority()
OWN = AUTHORITY.issue("own")


def store(key: str, kind: StoreType, path: Path | str, password: Path | str = "") -> StoreFile:
    return StoreFile(key=key, type=kind, path=str(path), password_path=str(password))


class Stage:
    """Files of one end, all in order at first."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        pem = write_pem(directory, OWN, AUTHORITY)
        self.pem = pem
        self.password = directory / "password"
        self.password.write_bytes(PASSWORD)
        self.settings = TlsSettings(
            certificate_path=str(pem.certificate),
            key_store=store("tlsKeyStore", StoreType.PEM, pem.key),
            trust_store=store("tlsTrustStore", StoreType.PEM, pem.trust),
            client_authentication=True,
        )

    def file(self, data: bytes) -> Path:
        path = self.directory / "store"
        path.write_bytes(data)
        return path

    def with_key(self, kind: StoreType, data: bytes, *, password: bool = False) -> None:
        path, given = self.file(data), self.password if password else ""
        found = store("tlsKeyStore", kind, path, given)
        self.settings = attrs.evolve(self.settings, key_store=found)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_a_chain_is_read_behind_its_certificate(stage: Stage) -> None:
    stage.pem.certificate.write_bytes(OWN.certificate_pem + AUTHORITY.certificate_pem)
    found = read_own_key(stage.settings)
    assert found.certificate == OWN.certificate
    assert found.chain == (AUTHORITY.certificate,)
    assert "key=" not in repr(found)


def test_pkcs12_holds_key_certificate_and_chain(stage: Stage) -> None:
    stage.with_key(StoreType.PKCS12, OWN.pkcs12(), password=True)
    found = read_own_key(stage.settings)
    assert (found.certificate, found.chain) == (OWN.certificate, (AUTHORITY.certificate,))


JKS, PKCS12, PEM = StoreType.JKS, StoreType.PKCS12, StoreType.PEM
Break = Callable[[Stage], None]
UNUSABLE: list[tuple[Break, str]] = [
    (
        lambda s: s.with_key(JKS, b"\xfe\xed\xfe\xed\0\0\0\2"),
        "tlsKeyStore: {0}/store is a damaged JKS or JCEKS file",
    ),
    (
        lambda s: s.with_key(JKS, OWN.key_pem()),
        "tlsKeyStore: {0}/store is PEM; set tlsKeyStoreType=PEM",
    ),
    (
        lambda s: s.with_key(PEM, OWN.pkcs12()),
        "tlsKeyStore: {0}/store is not PEM, as tlsKeyStoreType says",
    ),
    (
        lambda s: s.with_key(PKCS12, OWN.pkcs12(b"another"), password=True),
        "tlsKeyStore: {0}/store is not a PKCS12 file, or the password in {0}/password is wrong",
    ),
    (
        lambda s: s.with_key(PKCS12, OWN.pkcs12()),
        "tlsKeyStore: {0}/store cannot be read without a password, or is not a PKCS12 file",
    ),
    (
        lambda s: s.with_key(PKCS12, AUTHORITY.pkcs12(), password=True),
        "tlsKeyStore: {0}/store holds no key with its certificate",
    ),
    (
        lambda s: s.with_key(PEM, OWN.key_pem(b"another"), password=True),
        "tlsKeyStore: {0}/store is not a private key, or the password is wrong",
    ),
    (
        lambda s: s.with_key(PEM, OWN.key_pem(b"another")),
        "tlsKeyStore: {0}/store: Password was not given but private key is encrypted",
    ),
    (
        lambda s: s.with_key(PEM, AUTHORITY.issue("b").key_pem()),
        (
            "tlsKeyStore: the key in {0}/store does not belong to the first certificate in"
            " {0}/certificate.pem"
        ),
    ),
    (
        lambda s: s.pem.certificate.write_bytes(b"nothing"),  # type: ignore[arg-type,return-value]
        "tlsCertificatePath: {0}/certificate.pem holds no certificate in PEM",
    ),
    (
        lambda s: s.pem.key.unlink(),
        "tlsKeyStore: cannot read {0}/key.pem: No such file or directory",
    ),
]


@pytest.mark.parametrize(("break_", "told"), UNUSABLE)
def test_an_unusable_key_is_told_by_setting_and_file(stage: Stage, break_: Break, told) -> None:
    break_(stage)
    with pytest.raises(SecurityError) as caught:
        read_own_key(stage.settings)
    assert str(caught.value) == told.format(stage.directory)


def test_unusable_trust_is_told_by_setting_and_file(stage: Stage) -> None:
    def refused(kind: StoreType, path: Path | str, password: Path | str = "") -> str:
        with pytest.raises(SecurityError) as caught:
            read_trusted(store("clientTrustStore", kind, path, password))
        return str(caught.value)

    assert refused(PEM, "") == (
        "clientTrustStore is not set, so that no certificate could be trusted"
    )
    assert refused(PEM, stage.file(b"x")).endswith("/store holds no certificate in PEM")
    assert "is a damaged JKS or JCEKS file" in refused(JKS, stage.file(b"\xfe\xed\xfe\xed"))
    missing = stage.directory / "none"
    assert "clientTrustStorePasswordPath: cannot read" in refused(
        PKCS12, stage.file(AUTHORITY.pkcs12()), missing
    )
