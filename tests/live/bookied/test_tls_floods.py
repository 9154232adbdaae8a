"""A live bookie that asks for certificates, floods in TLS, and a client in clear that behaves."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.live.bookied import tls_floods
from tests.live.bookied.attacked_bookie import Live, kept_service
from tests.support.certificates import Authority, bookie_keys, write_pem
from tests.support.waiting import until

pytestmark = pytest.mark.processes

FLOOD_S = 1.5
HALF_OPEN = 500
CERTIFICATES, FILLING_BYTES = 100, 10_000
MEMORY_KIB_MAX = 40_000
LOG_LINES_MAX = 5
FILES_MAX = 10
"""Files that the bookie may open meanwhile for the client that behaves."""

Flood = Callable[[int], AbstractContextManager[Any]]


def name(number: int) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"c{number}")])


def chain(filling_bytes: int) -> tuple[list[x509.Certificate], ec.EllipticCurvePrivateKey]:
    """Return certificates of which each is signed by the next, and the key of the first."""
    now = dt.datetime.now(dt.timezone.utc)
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(CERTIFICATES + 1)]
    certificates = []
    for number in range(CERTIFICATES):
        filling = x509.UnrecognizedExtension(
            x509.ObjectIdentifier("1.3.6.1.4.1.99999.1"), bytes(filling_bytes)
        )
        builder = (
            x509.CertificateBuilder()
            .subject_name(name(number))
            .issuer_name(name(number + 1))
            .public_key(keys[number].public_key())
            .serial_number(number + 1)
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=number > 0, path_length=None), critical=True)
            .add_extension(filling, critical=False)
        )
        certificates.append(builder.sign(keys[number + 1], hashes.SHA256()))
    return certificates, keys[0]


def chains(filling_bytes: int) -> Flood:
    return lambda port: tls_floods.long_chains(port, *chain(filling_bytes))


FLOODS: dict[str, Flood] = {
    "half open": partial(tls_floods.half_open, clients=HALF_OPEN),
    "byte by byte": partial(tls_floods.half_open, clients=HALF_OPEN, byte_every_s=0.05),
    "other bytes": tls_floods.clear_text,
    "tiny records behind large ones": tls_floods.mixed_records,
    "key updates": tls_floods.key_updates,
    "a chain of 80 KB": chains(300),
    "a chain of a megabyte": chains(FILLING_BYTES),
}


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    directory, authority = tmp_path_factory.mktemp("floods"), Authority()
    pem = write_pem(directory / "keys", authority.issue("bookie"), authority)
    found = Live(directory, **bookie_keys(pem, tlsClientAuthentication="true"))
    yield found
    assert found.process.stop() == 0
    assert "Traceback" not in found.process.output.read_text()


def descriptors(live: Live) -> int:
    return len(list(Path(f"/proc/{live.process.pid}/fd").iterdir()))


def log_lines(live: Live) -> int:
    return live.process.output.read_text().count("\n")


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_in_tls_keeps_no_client_waiting_and_leaves_nothing(live: Live, name: str) -> None:
    memory_kib, open_files, lines = live.process.rss_kib(), descriptors(live), log_lines(live)
    with kept_service(live.port, name), FLOODS[name](live.port):
        time.sleep(FLOOD_S)
    until(lambda: descriptors(live) <= open_files + FILES_MAX)
    until(lambda: live.process.rss_kib() - memory_kib < MEMORY_KIB_MAX)
    assert log_lines(live) - lines <= LOG_LINES_MAX
