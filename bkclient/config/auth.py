"""The settings of a client's authentication, by Java's keys.

Agrees with BookKeeper 4.18.0, SASLClientProviderFactory. Only bkclient has ``saslJaasConfigFile``:
Java has a system property.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from bkclient.config.declaration import setting

SASL_CLIENT: Final = "SASLClientProviderFactory"


def simple_name(name: str) -> str:
    """Return the last part of a Java class name."""
    return name.rpartition(".")[2]


def not_offered(*names: str) -> Callable[[str], str | None]:
    """Return the check that a setting is empty, or one of these Java classes."""

    def refuse(name: str) -> str | None:
        if simple_name(name) in {"", *names}:
            return None
        return f"is not offered; {' and '.join(names)} {'is' if len(names) == 1 else 'are'}"

    return refuse


@attrs.frozen(kw_only=True, slots=False)  # One of several base classes.
class JaasConfig:
    """The files with names and passwords, for bookies and for ZooKeeper."""

    jaas_path: str = setting(
        "",
        key="saslJaasConfigFile",
        group="Authentication",
        doc="Path of the JAAS file. Java takes the path from -Djava.security.auth.login.config.",
    )


@attrs.frozen(kw_only=True, slots=False)  # One of several base classes.
class ClientAuthConfig(JaasConfig):
    """The settings of a client's authentication."""

    client_auth_factory: str = setting(
        "",
        key="clientAuthProviderFactoryClass",
        doc=f"{SASL_CLIENT} logs in to bookies with a name and a password.",
        refuse=not_offered(SASL_CLIENT),
    )
    jaas_client_section: str = setting(
        "BookKeeper",
        key="saslJaasClientSectionName",
        doc="Section of the JAAS file with the client's name and password.",
    )
    jaas_auditor_section: str = setting(
        "Auditor",
        key="saslJaasAuditorSectionName",
        doc="Section of the JAAS file that autorecovery and other repairs use (clientRole=system).",
    )
    client_role: str = setting(
        "standard",
        key="clientRole",
        doc="Which section of the JAAS file to use: standard uses saslJaasClientSectionName, "
        "system uses saslJaasAuditorSectionName.",
        choices=("standard", "system"),
    )

    auth_required: bool = setting(
        False,
        key="clientAuthRequired",
        doc=f"With {SASL_CLIENT}: refuse a bookie that needs no login: another program "
        "may pose as the bookie. Not a key of Java.",
    )

    @property
    def has_sasl(self) -> bool:
        """True if the client authenticates to bookies."""
        return simple_name(self.client_auth_factory) == SASL_CLIENT

    @property
    def jaas_section(self) -> str:
        """The section in effect."""
        is_system = self.client_role == "system"
        return self.jaas_auditor_section if is_system else self.jaas_client_section
