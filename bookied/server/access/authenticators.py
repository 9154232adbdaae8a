"""The authentication methods: name and password (SASL), or a role in the client's certificate.

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
"""The plugin name for certificates. Its clients send no AUTH messages."""

_ROLES: Final = "0"
"""The code of the roles in an organisational unit: ``0:role,role;1:cluster``."""

log = Logger()


def open_authenticator(config: BookieConfig) -> Authenticator | None:
    """Return the authenticator of the settings; None if clients need not authenticate.

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
    """Return an authenticator of the current settings and files, or ``now`` if they are unusable.

    Exchanges in progress keep their old names and passwords.
    """
    try:
        return open_authenticator(config) or now
    except SecurityError as error:
        log.warn("keeping the old users and passwords: {error}", error=error)
        return now


class PasswordAuthenticator:
    """DIGEST-MD5: clients that know the password of an allowed user."""

    def __init__(
        self,
        users: Mapping[str, str],
        allowed: re.Pattern[str],
        new_nonce: Callable[[], str] = lambda: secrets.token_urlsafe(32),
    ) -> None:
        """Accept the names and passwords of ``users`` whose names match ``allowed``."""
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
        """Do nothing: a certificate does not replace the password."""


class RoleAuthenticator:
    """Certificates: clients whose first role is one of the allowed roles."""

    def __init__(self, roles: Collection[str]) -> None:
        self._roles = frozenset(roles)

    def begin(self) -> AuthExchange:
        """Return an exchange that waits for a certificate."""
        return _RoleProof(self._roles)


class _RoleProof:
    plugin = CERTIFICATE_PLUGIN

    def __init__(self, roles: frozenset[str]) -> None:
        self._roles = roles
        self.user: str | None = None

    def answer(self, token: bytes) -> bytes:  # noqa: ARG002
        raise AuthenticationError("it sent an AUTH token, but this bookie checks only certificates")

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
    # If a code appears twice, Java uses the last one.
    return [role.strip() for role in found[-1].split(",")] if found else []
