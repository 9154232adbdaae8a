"""DIGEST-MD5: both ends together, what RFC 2831 gives, and what must be refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.sasl_digest_md5 import AuthenticationError, DigestMd5Client, DigestMd5Server

KERBEROS = bytes.fromhex("6082025506092a864886f71201020201006e82")
SPNEGO = bytes.fromhex("6081a806062b0601050502a0819d30819aa0")
"""What the tokens of GSSAPI begin with, by Kerberos itself and by negotiation."""

USERS = {"bookkeeper": "secret", 'odd "one\\': 'pass"word', "zoë": "schlüssel", "雪": "雪"}


def server(nonce: str = "server nonce") -> DigestMd5Server:
    return DigestMd5Server(USERS, nonce)


def client(user: str = "bookkeeper", password: str = "secret") -> DigestMd5Client:
    return DigestMd5Client(user, password, lambda: "client nonce")


@pytest.mark.parametrize("user", USERS)
def test_whoever_knows_the_password_is_let_in_and_knows_the_bookie(user: str) -> None:
    ours, theirs = server(), client(user, USERS[user])
    response = theirs.answer(ours.answer(b""))
    assert ours.user is None
    proof = ours.answer(response)
    assert ours.user == user
    assert not theirs.is_done
    assert theirs.answer(proof) == b""
    assert theirs.is_done


JAVA = [
    (
        "hd",
        "testpwd",
        "1DW9dBxEC5gCtv60MQbKAghUdjb3fOk/0031BJSy",
        "4ec5dbe548661e68f568b43df5454592",
    ),
    (
        "zoë",
        "schlüssel",
        "SY45cTxc6PzEpHYsdyu4V9V7HbMCQsMRHN+IQqg9",
        "8c5bcb5158c9d96a8a3c46dbfdb1a28a",
    ),
    (
        'odd "one\\',
        'pass"word',
        "e7GZpFVcLK2h8M/aiGIY8l/GxyJSQPsdJk370acz",
        "ddc29eec4c811472ff9057f3f67cd683",
    ),
    ("雪", "雪", "Svc1QncJ6KrHWyb1cg/eCwRPUDlIhrX+vSUENw2E", "18a251bd2d3d6d6cf54fe65318ba7e5f"),
]
"""What the client of Java 17 answers to the challenge of this nonce: its nonce, and its proof."""


@pytest.mark.parametrize(("user", "password", "client_nonce", "proof"), JAVA)
def test_what_javas_client_sends_is_let_in_and_ours_proves_the_same(
    user: str, password: str, client_nonce: str, proof: str
) -> None:
    ours = DigestMd5Server({user: password}, "OA6MG9tEQGm2hh")
    challenge = ours.answer(b"")
    assert challenge == (
        b'realm="bookkeeper",nonce="OA6MG9tEQGm2hh",charset=utf-8,algorithm=md5-sess'
    )
    escaped = user.replace("\\", "\\\\").replace('"', '\\"')
    java = (
        f'charset=utf-8,username="{escaped}",realm="bookkeeper",nonce="OA6MG9tEQGm2hh",nc=00000001,'
        f'cnonce="{client_nonce}",digest-uri="bookkeeper/bookkeeper",maxbuf=65536,response={proof},'
        f'qop=auth,authzid="{escaped}"'
    )
    theirs = DigestMd5Client(user, password, lambda: client_nonce)
    assert f"response={proof},".encode() in theirs.answer(challenge)
    assert theirs.answer(ours.answer(java.encode())) == b""


def test_a_wrong_password_and_an_unknown_user_are_told_in_the_same_words() -> None:
    told = []
    for user, password in (("bookkeeper", "wrong"), ("bookkeepeer", "secret"), ("", "")):
        ours = server()
        with pytest.raises(AuthenticationError) as caught:
            ours.answer(client(user, password).answer(ours.answer(b"")))
        assert ours.user is None
        told.append(str(caught.value).replace(repr(user), "X"))
    assert set(told) == {"user X is unknown, or the password is wrong"}


def test_a_recorded_response_is_worth_nothing() -> None:
    first, second = server("one"), server("two")
    recorded = client().answer(first.answer(b""))
    assert first.answer(recorded)
    second.answer(b"")
    with pytest.raises(AuthenticationError, match="answers another challenge than ours"):
        second.answer(recorded)


def test_tokens_out_of_turn_end_it_for_good() -> None:
    ours = server()
    response = client().answer(server().answer(b""))
    with pytest.raises(AuthenticationError, match="the first token is not empty"):
        ours.answer(response)
    for token in (b"", response):
        with pytest.raises(AuthenticationError, match="out of turn"):
            ours.answer(token)
    assert ours.user is None


def test_a_response_counts_once() -> None:
    ours = server()
    response = client().answer(ours.answer(b""))
    ours.answer(response)
    with pytest.raises(AuthenticationError, match="out of turn"):
        ours.answer(response)


def test_a_refused_response_cannot_be_mended() -> None:
    ours = server()
    challenge = ours.answer(b"")
    with pytest.raises(AuthenticationError):
        ours.answer(client(password="wrong").answer(challenge))
    with pytest.raises(AuthenticationError, match="out of turn"):
        ours.answer(client().answer(challenge))
    assert ours.user is None


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ((b"nc=00000001", b"nc=00000002"), "a nc that is not 00000001"),
        ((b'realm="bookkeeper"', b'realm="other"'), "a realm that is not bookkeeper"),
        ((b"bookkeeper/bookkeeper", b"imap/bookkeeper"), "a digest-uri that is not"),
        ((b"qop=auth", b"qop=auth-conf"), "a qop that is not auth"),
        ((b'authzid="bookkeeper"', b'authzid="admin"'), "asks to be taken for 'admin'"),
        ((b'authzid="bookkeeper"', b'authzid=""'), "asks to be taken for ''"),
        ((b"charset=utf-8", b"nonce=x"), "not a list of directives"),
        ((b"charset=utf-8", b"\xff"), "not text"),
        ((b"charset=utf-8", b"charset=" + b"x" * 4096), "a token of "),
    ],
)
def test_a_response_to_something_else_is_refused(wrong, told: str) -> None:
    ours = server()
    with pytest.raises(AuthenticationError, match=told):
        ours.answer(client().answer(ours.answer(b"")).replace(*wrong))


@pytest.mark.parametrize("token", [KERBEROS, SPNEGO])
def test_gssapi_is_named_and_refused_by_either_end(token: bytes) -> None:
    told = r"it speaks GSSAPI \(Kerberos\), which is not offered; DIGEST-MD5 is"
    for end in (server(), client()):
        with pytest.raises(AuthenticationError, match=told):
            end.answer(token)
        with pytest.raises(AuthenticationError):
            end.answer(b"")


def test_a_bookie_that_does_not_know_the_password_is_not_believed() -> None:
    ours = client()
    ours.answer(server().answer(b""))
    with pytest.raises(AuthenticationError, match="does not know the password"):
        ours.answer(b"rspauth=0123456789abcdef0123456789abcdef")
    assert not ours.is_done


@pytest.mark.parametrize(
    "challenge", [b"", b"realm=x", b'nonce="n"', b'nonce="n",algorithm=md5-sess,qop="auth-int"']
)
def test_a_challenge_of_another_kind_is_refused(challenge: bytes) -> None:
    with pytest.raises(AuthenticationError, match="the bookie"):
        client().answer(challenge)


@given(st.lists(st.binary(max_size=60), max_size=3))
def test_no_bytes_do_worse_than_an_authentication_error(tokens: list[bytes]) -> None:
    ours, theirs = server(), client()
    for token in tokens:
        for end in (ours, theirs):
            try:
                end.answer(token)
            except AuthenticationError:
                continue
    assert ours.user is None
    assert not theirs.is_done
