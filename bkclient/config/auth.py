"""What clients and bookies can be told about authentication, by Java's keys.

Agrees with BookKeeper 4.18.0: SASLBookieAuthProviderFactory, SASLClientProviderFactory,
BookieAuthZFactory. ``saslJaasConfigFile`` is ours: Java is told as a system property.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import attrs

from bkclient.config.findings import Finding, FindingKind, Severity
from bkclient.config.settings import setting

SASL_BOOKIE: Final = "SASLBookieAuthProviderFactory"
SASL_CLIENT: Final = "SASLClientProviderFactory"
CERTIFICATES: Final = "BookieAuthZFactory"
"""The simple names of Java's factories."""


def _simple(name: str) -> str:
    return name.rpartition(".")[2]


def _no_bookie_factory(name: str) -> str | None:
    if _simple(name) in {"", SASL_BOOKIE, CERTIFICATES}:
        return None
    return f"is not offered; {SASL_BOOKIE} and {CERTIFICATES} are"


def _no_client_factory(name: str) -> str | None:
    return None if _simple(name) in {"", SASL_CLIENT} else f"is not offered; {SASL_CLIENT} is"


def _no_pattern(text: str) -> str | None:
    try:
        re.compile(text)
    except re.error as error:
        return f"is no regular expression: {error}"
    return None


@attrs.frozen(kw_only=True, slots=False)  # One of several bases.
class JaasConfig:
    """Where names and passwords are: for bookies, and for ZooKeeper."""

    jaas_path: str = setting(
        "",
        key="saslJaasConfigFile",
        group="Authentication",
        doc="The JAAS file, which Java is given as -Djava.security.auth.login.config.",
    )


@attrs.frozen(kw_only=True, slots=False)  # One of several bases.
class BookieAuthConfig(JaasConfig):
    """Whom a bookie lets in."""

    auth_factory: str = setting(
        "",
        key="bookieAuthProviderFactoryClass",
        doc=f"How clients show who they are: {SASL_BOOKIE} (DIGEST-MD5), or {CERTIFICATES} (the "
        "role in their certificate). If empty, nobody is asked.",
        refuse=_no_bookie_factory,
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
        doc="The section of the JAAS file that names the allowed users.",
    )
    sasl_allowed_ids: str = setting(
        ".*bookkeeper.*",
        key="saslJaasClientAllowedIds",
        reloads=True,
        doc="Of those, only users whose complete name this regular expression matches are allowed.",
        refuse=_no_pattern,
    )

    @property
    def has_sasl(self) -> bool:
        """Whether clients show who they are by name and password."""
        return _simple(self.auth_factory) == SASL_BOOKIE

    @property
    def has_roles(self) -> bool:
        """Whether clients show who they are by their certificate."""
        return _simple(self.auth_factory) == CERTIFICATES

    def auth_problems(self, *, wants_certificates: bool) -> Iterator[Finding]:
        """Return what is missing; without it no login can succeed."""
        if self.has_roles and not self.authorized_roles:
            yield _error("authorizedRoles", f"names no role, and {CERTIFICATES} lets in by roles")
        if self.has_roles and not wants_certificates:
            yield _error(
                "bookieAuthProviderFactoryClass",
                f"{CERTIFICATES} needs TLS with tlsClientAuthentication=true: without, no client"
                " shows a certificate",
            )


@attrs.frozen(kw_only=True, slots=False)  # One of several bases.
class ClientAuthConfig(JaasConfig):
    """How a client shows who it is."""

    client_auth_factory: str = setting(
        "",
        key="clientAuthProviderFactoryClass",
        doc=f"{SASL_CLIENT} has bookies told a name and shown that we know its password.",
        refuse=_no_client_factory,
    )
    jaas_client_section: str = setting(
        "BookKeeper",
        key="saslJaasClientSectionName",
        doc="The section of the JAAS file that says who we are.",
    )
    jaas_auditor_section: str = setting(
        "Auditor",
        key="saslJaasAuditorSectionName",
        doc="The same, for clientRole=system: autorecovery and whatever repairs.",
    )
    client_role: str = setting(
        "standard",
        key="clientRole",
        doc="standard, or system for recovery tools, which log in by another section.",
        choices=("standard", "system"),
    )

    auth_required: bool = setting(
        False,
        key="clientAuthRequired",
        doc=f"With {SASL_CLIENT}: leave a bookie that asks nobody who it is. It may not be the "
        "one that it seems to be. Not a key of Java.",
    )

    @property
    def has_sasl(self) -> bool:
        """Whether bookies are told who we are."""
        return _simple(self.client_auth_factory) == SASL_CLIENT

    @property
    def jaas_section(self) -> str:
        """The section that counts."""
        is_system = self.client_role == "system"
        return self.jaas_auditor_section if is_system else self.jaas_client_section


def _error(key: str, message: str) -> Finding:
    return Finding(Severity.ERROR, FindingKind.INVALID, key, message)
