"""The ways for clients to show who they are: by name and password (SASL), or by their certificate.

Agree with BookKeeper 4.18.0: SASLBookieAuthProviderFactory, BookieAuthZFactory and CertUtils.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Collection, Mapping
from typing import Final

from cryptography import x509
from cryptography.x509.oid import NameOID
from twisted.logger import Logger

from bkclient.config.jaas import read_jaas
from bkclient.errors import SecurityError
from bookied.config.bookie import BookieConfig
from bookied.server.access.access_check import Authenticator, AuthExchange
from wire.messages import SASL
from wire.sasl_digest_md5 import AuthenticationError, DigestMd5Server

CERTIFICATE_PLUGIN: Final = "BookieAuthZFactory"
"""Its clients send no messages; the name is there for those that do."""

_ROLES: Final = "0"
"""The part of an organisational unit that has the roles: ``0:role,role;1:cluster``."""

log = Logger()


def open_authenticator(config: BookieConfig) -> Authenticator | None:
    """Return what the settings ask for; ``None``: no client is asked.

    Raises:
        SecurityError: the names and passwords cannot be read.
    """
    if config.has_roles:
        return RoleAuthenticator(config.authorized_roles)
    if not config.has_sasl:
        return None
    users = read_jaas(config.jaas_path).users(config.jaas_bookie_section)
    return PasswordAuthenticator(users, re.compile(config.sasl_allowed_ids))


def open_again(now: Authenticator, config: BookieConfig) -> Authenticator:
    """Return what the settings and the files say now, or ``now`` where they cannot be used.

    Exchanges in progress go on with what they began with.
    """
    try:
        return open_authenticator(config) or now
    except SecurityError as error:
        log.warn("users and passwords stay as they were: {error}", error=error)
        return now


class PasswordAuthenticator:
    """DIGEST-MD5: those who know the password of a name that is allowed."""

    def __init__(
        self,
        users: Mapping[str, str],
        allowed: re.Pattern[str],
        new_nonce: Callable[[], str] = lambda: secrets.token_urlsafe(32),
    ) -> None:
        """Let in those of ``users``, whose passwords these are, whose names are allowed."""
        self._users, self._allowed, self._new_nonce = users, allowed, new_nonce
        if not any(map(allowed.fullmatch, self._users)):
            log.warn(
                "none of the users in the JAAS file is allowed: saslJaasClientAllowedIds is"
                " {pattern}",
                pattern=allowed.pattern,
            )

    def begin(self) -> AuthExchange:
        """Return a new exchange."""
        return _PasswordProof(DigestMd5Server(self._users, self._new_nonce()), self._allowed)


class _PasswordProof:
    plugin = SASL

    def __init__(self, exchange: DigestMd5Server, allowed: re.Pattern[str]) -> None:
        self._exchange, self._allowed = exchange, allowed
        self.user: str | None = None

    def answer(self, token: bytes) -> bytes:
        answer = self._exchange.answer(token)
        user = self._exchange.user
        if user is not None and not self._allowed.fullmatch(user):
            raise AuthenticationError(f"user {user!r} is not among saslJaasClientAllowedIds")
        self.user = user
        return answer

    def tls_began(self, certificate: x509.Certificate | None) -> None:
        """A certificate is not a password."""


class RoleAuthenticator:
    """By certificate: those whose first role is one of these."""

    def __init__(self, roles: Collection[str]) -> None:
        self._roles = frozenset(roles)

    def begin(self) -> AuthExchange:
        """Return what waits for a certificate."""
        return _RoleProof(self._roles)


class _RoleProof:
    plugin = CERTIFICATE_PLUGIN

    def __init__(self, roles: frozenset[str]) -> None:
        self._roles = roles
        self.user: str | None = None

    def answer(self, token: bytes) -> bytes:  # noqa: ARG002
        raise AuthenticationError("it sends tokens, where its certificate decides")

    def tls_began(self, certificate: x509.Certificate | None) -> None:
        roles = [] if certificate is None else roles_of(certificate)
        if not roles:
            raise AuthenticationError("its certificate has no role (OU=0:ROLE)")
        if roles[0] not in self._roles:
            raise AuthenticationError(f"role {roles[0]!r} is not among authorizedRoles")
        self.user = roles[0]


def roles_of(certificate: x509.Certificate) -> list[str]:
    """Return the roles in a certificate's first organisational unit, in order."""
    units = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATIONAL_UNIT_NAME)
    parts = str(units[0].value).split(";") if units else []
    found = [role for code, _, role in (part.partition(":") for part in parts) if code == _ROLES]
    # Where a code is there twice, Java takes the last one.
    return [role.strip() for role in found[-1].split(",")] if found else []
