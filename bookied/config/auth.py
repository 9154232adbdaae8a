"""The settings of authentication and authorization.

Agrees with BookKeeper 4.18.0: SASLBookieAuthProviderFactory and BookieAuthZFactory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import attrs

from bkclient.config.auth import JaasConfig, not_offered, simple_name
from bkclient.config.declaration import setting
from bkclient.config.findings import SettingFinding, invalid

SASL_BOOKIE: Final = "SASLBookieAuthProviderFactory"
CERTIFICATES: Final = "BookieAuthZFactory"
"""The simple names of Java's factories."""


def _no_pattern(text: str) -> str | None:
    try:
        re.compile(text)
    except re.error as error:
        return f"is not a regular expression: {error}"
    return None


@attrs.frozen(kw_only=True, slots=False)  # One of several base classes.
class BookieAuthConfig(JaasConfig):
    """The settings by which clients authenticate to a bookie, and the clients that are allowed."""

    auth_factory: str = setting(
        "",
        key="bookieAuthProviderFactoryClass",
        doc=f"How clients authenticate: {SASL_BOOKIE} (DIGEST-MD5), or {CERTIFICATES} (the "
        "role in their certificate). If empty, clients need no login.",
        refuse=not_offered(SASL_BOOKIE, CERTIFICATES),
    )
    authorized_roles: tuple[str, ...] = setting(
        (),
        key="authorizedRoles",
        reloads=True,
        doc=f"With {CERTIFICATES}: the allowed roles.",
    )
    jaas_bookie_section: str = setting(
        "Bookie",
        key="saslJaasBookieSectionName",
        doc="Section of the JAAS file that lists the allowed users and their passwords.",
    )
    sasl_allowed_ids: str = setting(
        ".*bookkeeper.*",
        key="saslJaasClientAllowedIds",
        reloads=True,
        doc="Regular expression that a user's complete name must match.",
        refuse=_no_pattern,
    )

    @property
    def has_sasl(self) -> bool:
        """True if clients authenticate with a name and a password."""
        return simple_name(self.auth_factory) == SASL_BOOKIE

    @property
    def has_roles(self) -> bool:
        """True if clients authenticate with their certificate."""
        return simple_name(self.auth_factory) == CERTIFICATES

    def auth_problems(self, *, wants_certificates: bool) -> Iterator[SettingFinding]:
        """Yield missing settings without which no authentication can succeed."""
        if self.has_roles and not self.authorized_roles:
            yield invalid(
                "authorizedRoles", f"is empty, and {CERTIFICATES} allows clients by their role"
            )
        if self.has_roles and not wants_certificates:
            yield invalid(
                "bookieAuthProviderFactoryClass",
                f"{CERTIFICATES} needs TLS with tlsClientAuthentication=true: otherwise clients"
                " send no certificate",
            )
