"""JKS and JCEKS stores as keytool writes them, and what is refused of them."""

from __future__ import annotations

import hashlib
import sys
import time
from pathlib import Path

import pytest

from bkclient.config.tls import StoreFile, StoreType, TlsSettings
from bkclient.connection.security.key_stores import (
    ITERATIONS_MAX,
    OwnKey,
    read_own_key,
    read_trusted,
)
from bkclient.errors import SecurityError
from tests.support.certificates import PASSWORD, Authority
from tests.support.keytool import key_store, keytool, trust_store

AUTHORITY = Authority()
OWN = AUTHORITY.issue("own")
TYPES = ("JKS", "JCEKS")


class Stores:
    """The stores of one form, and the file with their password."""

    def __init__(self, directory: Path, kind: str) -> None:
        self.kind = StoreType(kind)
        self.own = key_store(directory / "own", kind, OWN)
        self.trust = trust_store(directory / "trust", kind, AUTHORITY)
        self.password = directory / "password"
        self.password.write_bytes(PASSWORD + b"\n")

    def file(self, path: Path, kind: StoreType | None = None) -> StoreFile:
        return StoreFile(
            key="tlsKeyStore",
            type=kind or self.kind,
            path=str(path),
            password_path=str(self.password) if self.password else "",
        )

    def key(self, path: Path | None = None) -> OwnKey:
        store = self.file(path or self.own)
        return read_own_key(
            TlsSettings(
                certificate_path="", key_store=store, trust_store=store, client_authentication=True
            )
        )


@pytest.fixture(scope="module", params=TYPES)
def made(request, tmp_path_factory) -> Stores:
    return Stores(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture
def stores(made: Stores, tmp_path: Path) -> Stores:
    made.password = tmp_path / "password"
    made.password.write_bytes(PASSWORD + b"\n")
    return made


def refused(stores: Stores, path: Path | None = None) -> str:
    with pytest.raises(SecurityError) as caught:
        stores.key(path)
    assert PASSWORD.decode() not in str(caught.value)
    return str(caught.value)


def test_a_key_is_read_with_its_certificates(stores: Stores) -> None:
    found = stores.key()
    assert found.key.private_numbers() == OWN.key.private_numbers()
    assert found.certificate == OWN.certificate
    assert found.chain == (AUTHORITY.certificate,)


@pytest.mark.parametrize("kind", [StoreType.JKS, StoreType.JCEKS, StoreType.PKCS12])
def test_a_trust_store_is_known_by_its_bytes(stores: Stores, kind: StoreType) -> None:
    assert read_trusted(stores.file(stores.trust, kind)) == (AUTHORITY.certificate,)


def test_certificates_of_keys_are_trusted_as_java_does(stores: Stores) -> None:
    assert read_trusted(stores.file(stores.own)) == (OWN.certificate,)


def test_without_the_library_the_error_names_the_extra(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jks", None)
    said = refused(stores)
    assert str(stores.own) in said
    assert "pip install 'bkctl[jks]'" in said


def test_a_wrong_password_is_told_by_its_file(stores: Stores) -> None:
    stores.password.write_bytes(b"another")
    assert refused(stores) == (
        f"tlsKeyStore: {stores.own} is damaged, or the password in {stores.password} is wrong"
    )
    stores.password.write_bytes(b"\xff")
    assert refused(stores) == f"tlsKeyStorePasswordPath: {stores.password} is not UTF-8"
    stores.password.write_bytes(b"")
    assert refused(stores) == f"tlsKeyStore: {stores.own} cannot be read without its password"


def test_a_store_without_a_key_is_told(stores: Stores) -> None:
    assert refused(stores, stores.trust).endswith("trust holds no key with its certificate")


def test_a_key_with_a_password_of_its_own_is_told(stores: Stores, tmp_path: Path) -> None:
    path = key_store(tmp_path / "store", stores.kind.value, OWN)
    keytool(
        *("-keypasswd", "-alias", "own", "-keystore", path, "-storetype", stores.kind.value),
        *("-storepass", PASSWORD.decode(), "-keypass", PASSWORD.decode(), "-new", "different"),
    )
    assert refused(stores, path) == (
        f"tlsKeyStore: the key 'own' in {path} cannot be read with the password of the store"
    )


def test_any_damage_is_refused_and_ends_at_once(stores: Stores, tmp_path: Path) -> None:
    data, path = stores.own.read_bytes(), tmp_path / "store"
    begun = time.monotonic()
    for at in range(4, len(data), 7):
        for damaged in (data[:at], data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]):
            path.write_bytes(damaged)
            assert "damaged" in refused(stores, path)
    assert time.monotonic() - begun < 30


def test_a_key_cannot_ask_for_endless_work(tmp_path: Path) -> None:
    stores = Stores(tmp_path, "JCEKS")
    content, asked = stores.own.read_bytes()[:-20], b"\x02\x03\x03\x0d\x40"
    assert content.count(asked) == 1  # 200,000, as keytool writes it.
    content = content.replace(asked, b"\x02\x03\x7f\xff\xff")
    assert ITERATIONS_MAX < 0x7FFFFF
    seal = hashlib.sha1(PASSWORD.decode().encode("utf-16be") + b"Mighty Aphrodite" + content)
    path = tmp_path / "store"
    path.write_bytes(content + seal.digest())
    assert refused(stores, path) == f"tlsKeyStore: {path} asks for too many iterations"
