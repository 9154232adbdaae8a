"""What feeds bytes to the ways of showing who one is, and where their hunts begin."""

from __future__ import annotations

import contextlib
from typing import Final

from OpenSSL import SSL

from bkclient.config.jaas import JaasFile
from wire.frames import v2
from wire.frames.v3 import encode_request
from wire.messages import SASL, AuthRequest, StartTlsRequest
from wire.sasl_digest_md5 import AuthenticationError, DigestMd5Client, DigestMd5Server

NONCE: Final = "OA6MG9tEQGm2hh"
_USERS: Final = {"bookkeeper": "secret", "zo\u00eb": "schl\u00fcssel"}


# DIGEST-MD5 ---------------------------------------------------------------------------------------


def challenged() -> DigestMd5Server:
    """Return a bookie's end that has sent its challenge."""
    server = DigestMd5Server(_USERS, NONCE)
    server.answer(b"")
    return server


def client() -> DigestMd5Client:
    return DigestMd5Client("bookkeeper", "secret", lambda: "client nonce")


def response(data: bytes) -> None:
    """Take a client's response, and one behind it that is out of turn whatever it is."""
    server = challenged()
    with contextlib.suppress(AuthenticationError):
        server.answer(data)
        assert server.user in _USERS
    server.answer(data)
    raise AssertionError("a second response was taken")


def challenge(data: bytes) -> None:
    """Take a bookie's challenge, then the same bytes for its proof."""
    ours = client()
    ours.answer(data)
    ours.answer(data)
    raise AssertionError("a challenge was taken for a proof")


def proof(data: bytes) -> None:
    """Take a bookie's proof behind a challenge that is right."""
    ours = client()
    ours.answer(DigestMd5Server(_USERS, NONCE).answer(b""))
    ours.answer(data)
    assert ours.is_done


CHALLENGES: Final = (
    DigestMd5Server(_USERS, NONCE).answer(b""),
    b'realm="r",nonce="n",qop="auth,auth-int",charset=utf-8,algorithm=md5-sess',
)
RESPONSES: Final = (
    client().answer(CHALLENGES[0]),
    b'username="a\\"b",nonce="OA6MG9tEQGm2hh",nc=00000001,realm="bookkeeper",authzid="c"',
)
PROOFS: Final = (challenged().answer(RESPONSES[0]),)


def _logins() -> tuple[bytes, ...]:
    begin, reply = (AuthRequest(SASL, one) for one in (b"", RESPONSES[0]))
    found = []
    for encode in (v2.encode_request, lambda one: encode_request(one, 1)):
        found += [encode(begin) + encode(reply), encode(reply), encode(begin) * 2]
    return tuple(b"\1" + one for one in found)


LOGINS: Final = _logins()
"""Tokens in and out of turn; the first byte says in how many pieces they come."""


# JAAS ---------------------------------------------------------------------------------------------


def jaas(text: str) -> None:
    """Read a file and all that may be asked of it."""
    file = JaasFile("jaas.conf", text)
    file.users("Bookie")
    file.login("BookKeeper")


JAAS: Final = (
    b"""BookKeeper {
  org.apache.zookeeper.server.auth.DigestLoginModule required
  username="bookkeeper" password="se\\"cret";
};
/* who may come */ Bookie { a.DigestLoginModule required user_bookkeeper="secret"; }; // end
""",
    b"Bookie { com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true; };",
)


# TLS ----------------------------------------------------------------------------------------------


def _client_hello() -> bytes:
    connection = SSL.Connection(SSL.Context(SSL.TLS_METHOD), None)
    connection.set_connect_state()
    with contextlib.suppress(SSL.WantReadError):
        connection.do_handshake()
    return connection.bio_read(16 * 1024)


def _upgrades() -> tuple[bytes, ...]:
    start = encode_request(StartTlsRequest(), 1)
    auth = encode_request(AuthRequest(SASL, b""), 2)
    hello = _client_hello()
    behind = (hello, auth + hello, auth, hello[:7], b"\x15\x03\x01\x00\x02\x02\x28")
    return tuple(b"\1" + start + one for one in behind)


UPGRADES: Final = _upgrades()
"""START_TLS, and what may be behind it; the first byte says in how many pieces it comes."""
