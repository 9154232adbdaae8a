"""A bookie's settings of TLS.

Bookies and clients have the same keys for versions and cipher suites: ``bkclient.config.tls``
declares them, and ``bkclient.connection.security.tls_contexts`` applies them.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from bkclient.config.declaration import setting
from bkclient.config.findings import SettingFinding, invalid
from bkclient.config.tls import StoreFile, StoreType, TlsConfig, TlsSettings, store_type


@attrs.frozen(kw_only=True, slots=False)  # One of several base classes.
class BookieTlsConfig(TlsConfig):
    """A bookie's settings of TLS."""

    tls_key_store_type: StoreType = store_type("tlsKeyStoreType", "key")
    tls_key_store: str = setting("", key="tlsKeyStore", doc="File with the bookie's key.")
    tls_key_store_password_path: str = setting(
        "", key="tlsKeyStorePasswordPath", doc="File with the password of the key store."
    )
    tls_trust_store_type: StoreType = store_type("tlsTrustStoreType", "trust")
    tls_trust_store: str = setting(
        "", key="tlsTrustStore", doc="File with the certificate authorities of clients."
    )
    tls_trust_store_password_path: str = setting(
        "", key="tlsTrustStorePasswordPath", doc="File with the password of the trust store."
    )

    tls_required: bool = setting(
        False,
        key="tlsRequired",
        doc="Refuse requests without TLS, except START_TLS. Not a key of Java.",
    )

    @property
    def tls(self) -> TlsSettings | None:
        """The TLS settings of the bookie's port; ``None`` without TLS."""
        if not self.has_tls:
            return None
        return self._tls_settings(
            key_store=StoreFile(
                key="tlsKeyStore",
                type=self.tls_key_store_type,
                path=self.tls_key_store,
                password_path=self.tls_key_store_password_path,
            ),
            trust_store=StoreFile(
                key="tlsTrustStore",
                type=self.tls_trust_store_type,
                path=self.tls_trust_store,
                password_path=self.tls_trust_store_password_path,
            ),
            client_authentication=self.tls_client_authentication,
        )

    def tls_problems(self) -> Iterator[SettingFinding]:
        """Yield missing settings, and settings that may allow more than intended."""
        if not self.has_tls:
            if self.tls_required:
                yield invalid(
                    "tlsRequired", "is set, and tlsProviderFactoryClass does not offer it"
                )
            return
        if not self.tls_key_store:
            yield invalid("tlsKeyStore", "is not set, and TLS needs the bookie's key")
        if self.tls_key_store_type is StoreType.PEM and not self.tls_certificate_path:
            yield invalid("tlsCertificatePath", "is not set, and a key in PEM needs it")
        if self.tls_client_authentication and not self.tls_trust_store:
            yield invalid("tlsTrustStore", "is not set, and tlsClientAuthentication needs it")
