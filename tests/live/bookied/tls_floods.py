"""Hostile clients in TLS: what they send is as costly for the bookie as TLS allows."""

from __future__ import annotations

import _ssl
import contextlib
import ctypes
import datetime as dt
import threading
from collections.abc import Iterator
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from OpenSSL import SSL

from tests.live.bookied.floods import (
    HOSTILE_CLIENTS,
    begin_of_message,
    hello,
    in_tls,
    repeated,
    started,
)

LARGE_RECORD: Final = 16_384
SMALL_RECORDS: Final = 6000
UPDATES: Final = 500
UPDATE_REQUESTED: Final = 1
CERTIFICATES: Final = 100


@contextlib.contextmanager
def half_open(port: int, clients: int, byte_every_s: float | None = None) -> Iterator[None]:
    """Have so many clients stop in the handshake: silent, or a byte at a time."""
    ends, data = threading.Event(), hello()

    def run() -> None:
        with contextlib.ExitStack() as stack:
            socks = [stack.enter_context(contextlib.closing(started(port))) for _ in range(clients)]
            for at in range(len(data) if byte_every_s else 1):
                for sock in socks:
                    with contextlib.suppress(OSError):
                        sock.sendall(data[at : at + 1] if byte_every_s else data)
                if ends.wait(byte_every_s or 0):
                    return
            ends.wait()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield
    ends.set()
    thread.join()


def clear_text(port: int) -> contextlib.AbstractContextManager[None]:
    """Have clients begin TLS and then send other bytes."""

    def act() -> None:
        with contextlib.closing(started(port)) as sock:
            sock.sendall(b"\x16\x03\x01\x02\0" + bytes(65536))
            sock.recv(4096)

    return repeated(act, HOSTILE_CLIENTS)


def mixed_records(port: int, *, https: bool = False) -> contextlib.AbstractContextManager[None]:
    """Have clients send a large record, which has the bookie read much, and then tiny ones."""

    def act() -> None:
        with in_tls(port, https=https) as sock:
            sock.send(begin_of_message(https=https))
            for _ in range(20):
                for _ in range(12):
                    sock.send(bytes(LARGE_RECORD))
                for _ in range(SMALL_RECORDS):
                    sock.send(b"\0")

    return repeated(act, HOSTILE_CLIENTS)


def renegotiations(port: int) -> contextlib.AbstractContextManager[None]:
    """Have clients of TLS 1.2 negotiate again and again."""
    context = SSL.Context(SSL.TLS_CLIENT_METHOD)
    context.set_max_proto_version(SSL.TLS1_2_VERSION)

    def act() -> None:
        with contextlib.closing(started(port)) as sock:
            sock.setblocking(True)
            tls = SSL.Connection(context, sock)
            tls.set_connect_state()
            tls.do_handshake()
            with contextlib.suppress(SSL.Error):
                for _ in range(100):
                    tls.renegotiate()
                    tls.do_handshake()

    return repeated(act, HOSTILE_CLIENTS)


def _name(number: int) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"c{number}")])


def _chain(filling_bytes: int) -> tuple[list[x509.Certificate], ec.EllipticCurvePrivateKey]:
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
            .subject_name(_name(number))
            .issuer_name(_name(number + 1))
            .public_key(keys[number].public_key())
            .serial_number(number + 1)
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=number > 0, path_length=None), critical=True)
            .add_extension(filling, critical=False)
        )
        certificates.append(builder.sign(keys[number + 1], hashes.SHA256()))
    return certificates, keys[0]


def long_chains(
    port: int, filling_bytes: int, *, https: bool = False
) -> contextlib.AbstractContextManager[None]:
    """Have clients show a chain of certificates, each longer by so many bytes than it must be."""
    certificates, key = _chain(filling_bytes)
    context = SSL.Context(SSL.TLS_CLIENT_METHOD)
    context.use_certificate(certificates[0])
    context.use_privatekey(key)
    for one in certificates[1:]:
        context.add_extra_chain_cert(one)

    def act() -> None:
        with contextlib.closing(started(port, https=https)) as sock:
            sock.setblocking(True)
            tls = SSL.Connection(context, sock)
            tls.set_connect_state()
            with contextlib.suppress(SSL.Error):
                tls.do_handshake()
                tls.recv(1)

    return repeated(act, HOSTILE_CLIENTS)


class _OpenSsl:
    """The functions of OpenSSL that Python has no names for."""

    def __init__(self) -> None:
        library: Any = ctypes.CDLL(_ssl.__file__)
        for name in ("TLS_client_method", "SSL_CTX_new", "SSL_new"):
            getattr(library, name).restype = ctypes.c_void_p
        self.library = library
        self.context = ctypes.c_void_p(
            library.SSL_CTX_new(ctypes.c_void_p(library.TLS_client_method()))
        )


def key_updates(port: int, *, https: bool = False) -> contextlib.AbstractContextManager[None]:
    """Have clients of TLS 1.3 change keys, and ask for new ones, again and again."""
    openssl = _OpenSsl()
    library = openssl.library

    def act() -> None:
        with contextlib.closing(started(port, https=https)) as sock:
            sock.setblocking(True)
            tls = ctypes.c_void_p(library.SSL_new(openssl.context))
            try:
                library.SSL_set_fd(tls, sock.fileno())
                if library.SSL_connect(tls) != 1:
                    return
                head, large = begin_of_message(https=https), bytes(LARGE_RECORD)
                library.SSL_write(tls, head, len(head))
                for _ in range(20):
                    for _ in range(0 if https else 12):  # HTTP takes no header as long as that.
                        library.SSL_write(tls, large, len(large))
                    for _ in range(UPDATES):
                        library.SSL_key_update(tls, UPDATE_REQUESTED)
                        if library.SSL_do_handshake(tls) != 1:
                            return
            finally:
                library.SSL_free(tls)

    return repeated(act, HOSTILE_CLIENTS)
