"""SASL's DIGEST-MD5 (RFC 2831), authentication only: tokens to tokens, for either end.

Agrees with Java's own mechanism as BookKeeper 4.18.0 uses it (SaslClientState, SaslServerState):
service, host and realm are ``bookkeeper``; the quality of protection is ``auth``; a connection has
one exchange, so the nonce count is 1.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from typing import Final

from wire.errors import RemoteProtocolError

SERVICE: Final = "bookkeeper"
REALM: Final = "bookkeeper"
DIGEST_URI: Final = f"{SERVICE}/{REALM}"
TOKEN_BYTES_MAX: Final = 4096
"""The longest response of RFC 2831; a challenge may have half of that."""

NAME_SHOWN_MAX: Final = 64
"""Characters of a name in a message."""

_GSSAPI_KINDS: Final = (
    bytes.fromhex("06092a864886f712010202"),  # Kerberos, 1.2.840.113554.1.2.2
    bytes.fromhex("06062b0601050502"),  # Negotiation (SPNEGO), 1.3.6.1.5.5.2
)
_GSSAPI_HEAD_BYTES: Final = 20

_NONCE_COUNT: Final = "00000001"
_QOP: Final = "auth"
_DIRECTIVE: Final = re.compile(
    r'\s*([A-Za-z-]+)\s*=\s*(?:"((?:\\.|[^"\\])*)"|([^\s",]*))\s*(?:,|$)'
)


class AuthenticationError(RemoteProtocolError):
    """The other side failed to authenticate; the text has the reason, without a password."""


class _Step(enum.Enum):
    BEGIN = enum.auto()
    CHALLENGED = enum.auto()
    DONE = enum.auto()
    FAILED = enum.auto()


class DigestMd5Server:
    """The bookie's end of one exchange: an empty token, then a response, and nothing after that.

    A token out of order, or of another exchange, ends the exchange.
    """

    def __init__(self, passwords: Mapping[str, str], nonce: str) -> None:
        """``nonce`` must be new and unpredictable, so that a recorded exchange is worthless."""
        self._passwords, self._nonce = passwords, nonce
        self._step = _Step.BEGIN
        self.user: str | None = None
        """The user name, after its proof."""

    def answer(self, token: bytes) -> bytes:
        """Return the token to send back.

        Raises:
            AuthenticationError: the token is refused, and every later one.
        """
        step, self._step = self._step, _Step.FAILED
        _require_no_gssapi(token)
        if step is _Step.BEGIN:
            if token:
                raise AuthenticationError("the first token is not empty")
            self._step = _Step.CHALLENGED
            return self._challenge()
        if step is not _Step.CHALLENGED:
            raise AuthenticationError("a token out of turn")
        proof = self._verify(_parse(token))
        self._step = _Step.DONE
        return f"rspauth={proof}".encode("ascii")

    def _challenge(self) -> bytes:
        text = f'realm="{REALM}",nonce="{self._nonce}",charset=utf-8,algorithm=md5-sess'
        return text.encode("ascii")

    def _verify(self, said: Mapping[str, str]) -> str:
        """Verify the client's proof and return the bookie's own."""
        user = said.get("username", "")
        named = f"user {_shown(user)}"
        if said.get("nonce") != self._nonce:
            raise AuthenticationError(f"{named} answers another challenge than ours")
        expected = {"nc": _NONCE_COUNT, "realm": REALM, "digest-uri": DIGEST_URI, "qop": _QOP}
        for name, value in expected.items():
            if said.get(name, value if name == "qop" else "") != value:
                raise AuthenticationError(f"{named} gives a {name} that is not {value}")
        authorized_as = said.get("authzid")
        if authorized_as not in {None, user}:
            raise AuthenticationError(f"{named} asks to be taken for {_shown(authorized_as)}")
        # An unknown user takes the same time as a known user with a wrong password.
        secret = _secret(user, self._passwords.get(user, ""), self._nonce, said)
        proven = hmac.compare_digest(
            _proof(secret, self._nonce, said.get("cnonce", ""), "AUTHENTICATE").encode(),
            said.get("response", "").encode(),
        )
        if user not in self._passwords or not proven:
            raise AuthenticationError(f"{named} is unknown, or the password is wrong")
        self.user = user
        return _proof(secret, self._nonce, said.get("cnonce", ""), "")


class DigestMd5Client:
    """The client's end of one exchange; begin with an empty token."""

    def __init__(self, user: str, password: str, new_nonce: Callable[[], str]) -> None:
        self._user, self._password, self._new_nonce = user, password, new_nonce
        self._step = _Step.BEGIN
        self._expected = ""

    @property
    def is_done(self) -> bool:
        """True if both ends have verified each other's proof."""
        return self._step is _Step.DONE

    def answer(self, token: bytes) -> bytes:
        """Return the token to send back; empty after the last one.

        Raises:
            AuthenticationError: the bookie does not know the password, or the token is invalid.
        """
        step, self._step = self._step, _Step.FAILED
        _require_no_gssapi(token)
        said = _parse(token)
        if step is _Step.BEGIN:
            response = self._respond(said)
            self._step = _Step.CHALLENGED
            return response
        if step is not _Step.CHALLENGED:
            raise AuthenticationError("a token out of turn")
        if not hmac.compare_digest(said.get("rspauth", "").encode(), self._expected.encode()):
            raise AuthenticationError("the bookie does not know the password")
        self._step = _Step.DONE
        return b""

    def _respond(self, said: Mapping[str, str]) -> bytes:
        nonce, realm = said.get("nonce", ""), said.get("realm", REALM)
        if not nonce or said.get("algorithm") != "md5-sess":
            raise AuthenticationError("the bookie's challenge is not a DIGEST-MD5 challenge")
        if _QOP not in said.get("qop", _QOP).split(","):
            raise AuthenticationError(f"the bookie offers {said['qop']}, where only auth is spoken")
        mine = {"cnonce": self._new_nonce(), "realm": realm, "authzid": self._user}
        secret = _secret(self._user, self._password, nonce, mine)
        self._expected = _proof(secret, nonce, mine["cnonce"], "")
        quoted = {
            "username": self._user,
            "realm": realm,
            "nonce": nonce,
            "cnonce": mine["cnonce"],
            "digest-uri": DIGEST_URI,
            "authzid": self._user,
        }
        parts = [f"{name}={_quoted(value)}" for name, value in quoted.items()]
        response = _proof(secret, nonce, mine["cnonce"], "AUTHENTICATE")
        plain = f"charset=utf-8,nc={_NONCE_COUNT},qop={_QOP},response={response}"
        return f"{plain},{','.join(parts)}".encode()


def _require_no_gssapi(token: bytes) -> None:
    """Refuse a GSSAPI token, which Java's peers may be set up for (RFC 2743, 3.1), by name."""
    if token[:1] == b"\x60" and any(kind in token[:_GSSAPI_HEAD_BYTES] for kind in _GSSAPI_KINDS):
        raise AuthenticationError(
            "it speaks GSSAPI (Kerberos), which is not offered; DIGEST-MD5 is"
        )


def _parse(token: bytes) -> dict[str, str]:
    if len(token) > TOKEN_BYTES_MAX:
        raise AuthenticationError(f"a token of {len(token)} bytes")
    try:
        text = token.decode()
    except UnicodeDecodeError:
        raise AuthenticationError("the token is not text") from None
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        match = _DIRECTIVE.match(text, at)
        if match is None or match[1] in found:
            raise AuthenticationError("the token is not a list of directives")
        quoted, bare = match[2], match[3]
        found[match[1]] = bare if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        at = match.end()
    return found


def _shown(name: str) -> str:
    """Return a name for messages, shortened: a stranger could choose one that fills a log."""
    return repr(name if len(name) <= NAME_SHOWN_MAX else f"{name[:NAME_SHOWN_MAX]}…")


def _quoted(text: str) -> str:
    escaped = re.sub(r'(["\\])', r"\\\1", text)
    return f'"{escaped}"'


def _secret(user: str, password: str, nonce: str, said: Mapping[str, str]) -> str:
    realm, client_nonce = said.get("realm", REALM), said.get("cnonce", "")
    own = b":".join(map(_bytes, (user, realm, password)))
    parts = [_md5(own), nonce.encode(), client_nonce.encode()]
    if said.get("authzid"):
        parts.append(said["authzid"].encode())
    return _md5(b":".join(parts)).hex()


def _proof(secret: str, nonce: str, client_nonce: str, method: str) -> str:
    what = _md5(f"{method}:{DIGEST_URI}".encode()).hex()
    parts = (secret, nonce, _NONCE_COUNT, client_nonce, _QOP, what)
    return _md5(":".join(parts).encode()).hex()


def _bytes(text: str) -> bytes:
    """Return the bytes to hash: ISO 8859-1 if it has all characters, else UTF-8."""
    try:
        return text.encode("iso-8859-1")
    except UnicodeEncodeError:
        return text.encode()


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()
