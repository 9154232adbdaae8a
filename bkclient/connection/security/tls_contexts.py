"""TLS contexts for Twisted from keys, certificates and settings, renewed when files change."""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from OpenSSL import SSL, crypto
from service_identity import CertificateError, VerificationError
from service_identity.cryptography import verify_certificate_hostname, verify_certificate_ip_address
from twisted.internet.interfaces import (
    IOpenSSLClientConnectionCreator,
    IOpenSSLServerConnectionCreator,
    IReactorTime,
)
from twisted.logger import Logger
from zope.interface import implementer

from bkclient.config.tls import TlsSettings, is_tls13, openssl_suite, split, versions
from bkclient.connection.security.key_stores import read_own_key, read_revoked, read_trusted
from bkclient.connection.security.tls_reads import TlsReads
from bkclient.errors import SecurityError

CERTIFICATE_FAULTS: Final = {
    3: "cannot be looked up: there is no revocation list of its authority in tlsRevocationListPath",
    8: "cannot be looked up: the revocation list is not signed by its authority",
    9: "is not valid yet",
    10: "has expired",
    12: "cannot be looked up: the revocation list of its authority is out of date",
    18: "is self-signed, and not among the trusted ones",
    19: "comes from an authority that is not trusted",
    20: "comes from an authority that is not trusted",
    21: "comes from an authority that is not trusted",
    23: "has been revoked",
    24: "is signed by a certificate that is not an authority's",
    26: "is not meant for this end of a connection (extended key usage)",
    28: "is not trusted for this",
}
"""Messages for OpenSSL's numbers, X509_V_ERR_…; messages of others contain the number."""

_FAULTS_OF_TIME: Final = frozenset({9, 10})

_REASONS: Final = (
    ("alert certificate required", "it requires a client certificate, and tlsKeyStore names none"),
    ("alert certificate expired", "it reports that our certificate has expired"),
    ("alert certificate revoked", "it reports that our certificate has been revoked"),
    ("alert certificate unknown", "it rejects our certificate without a reason"),
    ("alert bad certificate", "it rejects our certificate"),
    ("alert unsupported certificate", "our certificate is not meant for this end"),
    ("alert unknown ca", "it does not trust the authority that signed our certificate"),
    (
        "alert handshake failure",
        "both ends share no TLS version, cipher suite or kind of certificate",
    ),
    ("alert protocol version", "both ends share no TLS version"),
    ("alert insufficient security", "it finds our cipher suites too weak"),
    ("alert internal error", "it rejects our certificate, which may be for another host"),
    ("alert access denied", "it does not authorize our certificate"),
    ("did not return a certificate", "it sent no certificate, and this bookie requires one"),
    ("no shared cipher", "both ends share no cipher suite"),
    ("no suitable signature", "its certificate's kind does not fit the cipher suites"),
    ("unsupported protocol", "both ends share no TLS version"),
    ("wrong version number", "it does not speak TLS here"),
    ("packet length too long", "it does not speak TLS here"),
    ("record layer failure", "it does not speak TLS here"),
    ("http request", "it speaks HTTP"),
    ("certificate verify failed", "its certificate cannot be trusted"),
)
"""OpenSSL's texts, in lower case, and their meanings; the first match counts."""


def certificate_fault(number: int) -> str:
    """Return the fault of a certificate, by OpenSSL's number."""
    return CERTIFICATE_FAULTS.get(number, f"cannot be trusted (OpenSSL's error {number})")


def _now() -> dt.datetime:
    return dt.datetime.now(dt.timezone.utc)


def _outside(certificate: x509.Certificate) -> str:
    """Return the date because of which a certificate is not valid now; empty if it is valid."""
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    now = _now()
    if now < begin:
        return f": it is valid from {begin.isoformat()} on"
    return f": it was valid until {end.isoformat()}" if now > end else ""


def reason(error: BaseException | None, *, shows: bool = True) -> str | None:
    """Return why a handshake or a connection failed; ``None`` if TLS is not the reason.

    ``shows`` is True if this end has a certificate; Java calls a missing one a bad one.
    """
    if not isinstance(error, SSL.Error):
        return None
    entries = error.args[0] if error.args and isinstance(error.args[0], list) else []
    said = "; ".join(str(entry[-1]) for entry in entries)
    lowered = said.lower()
    if not shows:
        lowered = lowered.replace("alert bad certificate", "alert certificate required")
    meant = next((meaning for words, meaning in _REASONS if words in lowered), None)
    return meant or said or "the peer closed the connection"


EXPIRY_WARNING_DAYS: Final = 30
"""Days before its own certificate expires on which a process begins to warn."""

DEFAULT_SUITES: Final = "ECDHE+AESGCM:ECDHE+CHACHA20:DHE+AESGCM:DHE+CHACHA20:!aNULL"
"""The suites of TLS 1.2 by default: with forward secrecy, and without CBC."""

_NUMBERS: Final = {"TLSv1.2": SSL.TLS1_2_VERSION, "TLSv1.3": SSL.TLS1_3_VERSION}
_OPTIONS: Final = SSL.OP_NO_COMPRESSION | SSL.OP_NO_TICKET | SSL.OP_CIPHER_SERVER_PREFERENCE
_RENEGOTIATION_OFF: Final[int] = getattr(SSL, "OP_NO_RENEGOTIATION", 0)

log = Logger()


class TlsContexts:
    """The TLS of one end, which makes a ``TlsEnd`` for each connection.

    All connections share one context until the files change. The files are checked when a
    connection is made, as in Java (``refresh_s``), and by ``reload``. If they cannot be read then,
    an error is logged and the old context stays.
    """

    def __init__(self, settings: TlsSettings, clock: IReactorTime, *, is_client: bool) -> None:
        """Read the files.

        Raises:
            SecurityError: a file cannot be used, with the reason.
        """
        self.settings, self._clock = settings, clock
        self._is_client = is_client
        self._looked_s = clock.seconds()
        self._seen = self._times()
        self._own: x509.Certificate | None = None
        self._context = self._make()

    def end(self, host: str | None = None) -> TlsEnd:
        """Return this end of a new connection; ``host`` is the bookie's, for a client."""
        self._refresh()
        settings, shows = self.settings, self._shows
        return TlsEnd(
            self._context,
            host,
            check_host=settings.check_host,
            shows=shows,
            outside="" if self._own is None else _outside(self._own),
        )

    @property
    def _shows(self) -> bool:
        return not self._is_client or self.settings.client_authentication

    def reload(self) -> bool:
        """Read the files again; return whether they can be used."""
        self._seen = self._times()
        try:
            self._context = self._make()
        except SecurityError as error:
            log.warn("TLS continues with the old certificate: {error}", error=error)
            return False
        log.info("TLS files read again")
        return True

    def _refresh(self) -> None:
        every_s, now_s = self.settings.refresh_s, self._clock.seconds()
        if every_s and now_s - self._looked_s >= every_s:
            self._looked_s = now_s
            if self._times() != self._seen:
                self.reload()

    def _times(self) -> tuple[int, ...]:
        return tuple(_changed_ns(path) for path in self.settings.paths)

    def _make(self) -> SSL.Context:
        settings = self.settings
        context = SSL.Context(SSL.TLS_METHOD)
        context.set_options(_OPTIONS | _RENEGOTIATION_OFF)
        context.set_mode(SSL.MODE_RELEASE_BUFFERS)
        context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
        _limit(context, settings)
        if self._shows:
            self._show(context)
        if self._is_client or settings.client_authentication or settings.asks_certificate:
            self._require_certificate(context)
        return context

    def _show(self, context: SSL.Context) -> None:
        """Use this end's certificate."""
        own = read_own_key(self.settings)
        self._own = own.certificate
        left = (own.certificate.not_valid_after_utc - _now()).days
        if outside := _outside(own.certificate):
            log.warn(
                "every peer refuses the certificate {subject} now{outside}",
                subject=own.certificate.subject.rfc4514_string(),
                outside=outside,
            )
        elif left < EXPIRY_WARNING_DAYS:
            log.warn(
                "the certificate {subject} ends at {end}, in {left} days",
                subject=own.certificate.subject.rfc4514_string(),
                end=own.certificate.not_valid_after_utc.isoformat(),
                left=left,
            )
        context.use_certificate(own.certificate)
        context.use_privatekey(own.key)
        for certificate in own.chain:
            context.add_extra_chain_cert(certificate)

    def _require_certificate(self, context: SSL.Context) -> None:
        """Check the peer's certificate; if allowed, a client may have none."""
        settings, store = self.settings, context.get_cert_store()
        assert store is not None
        # As in Java: every certificate in a trust store is trusted, even if it is not an
        # authority's.
        store.set_flags(crypto.X509StoreFlags.PARTIAL_CHAIN)
        for certificate in read_trusted(settings.trust_store):
            store.add_cert(crypto.X509.from_cryptography(certificate))
            if not self._is_client:
                context.add_client_ca(certificate)
        if settings.revoked_path:
            store.set_flags(crypto.X509StoreFlags.CRL_CHECK)
            for revoked in read_revoked(settings.revoked_path):
                store.add_crl(revoked)
        needs_one = self._is_client or settings.client_authentication
        fails = SSL.VERIFY_FAIL_IF_NO_PEER_CERT if needs_one else 0
        context.set_verify(SSL.VERIFY_PEER | fails)


class _HalfClosable(SSL.Connection):
    """An end that can still send after the peer's close_notify; Twisted's would close at once."""

    def __init__(self, context: SSL.Context, ended: Callable[[], None]) -> None:
        super().__init__(context, None)
        self._ended = ended

    def recv(self, bufsiz: int, flags: int | None = None) -> bytes:
        try:
            return super().recv(bufsiz, flags)
        except SSL.ZeroReturnError:
            self._ended()
            raise SSL.WantReadError from None


@implementer(IOpenSSLClientConnectionCreator, IOpenSSLServerConnectionCreator)
class TlsEnd:
    """This end of one connection: the TLS object for Twisted, and the result of the handshake."""

    def __init__(
        self,
        context: SSL.Context,
        host: str | None,
        *,
        check_host: bool,
        shows: bool,
        outside: str = "",
    ) -> None:
        """``outside`` says which date keeps our own certificate from being valid now, if any."""
        self._outside = outside
        self._context, self._host, self._check_host = context, host, check_host
        self._shows = shows
        self._fault: str | None = None
        self._connection: SSL.Connection | None = None

    def clientConnectionForTLS(self, _protocol: object) -> SSL.Connection:  # noqa: N802 - Twisted's
        """Return an object that starts the handshake."""
        connection = self._made()
        if self._host is not None and not _is_address(self._host):
            connection.set_tlsext_host_name(self._host.encode("idna"))
        return connection

    def serverConnectionForTLS(self, protocol: Any) -> SSL.Connection:  # noqa: N802 - Twisted's
        """Return an object that waits for the handshake."""
        behind = protocol.wrappedProtocol
        ended = behind.ended if isinstance(behind, TlsReads) else None
        return self._made(ended)

    def _made(self, ended: Callable[[], None] | None = None) -> SSL.Connection:
        self._connection = connection = (
            SSL.Connection(self._context, None)
            if ended is None
            else _HalfClosable(self._context, ended)
        )
        mode = self._context.get_verify_mode()
        if mode != SSL.VERIFY_NONE:
            connection.set_verify(mode, self._verified)
        return connection

    @property
    def version(self) -> str:
        """The version and suite after the handshake: ``TLSv1.3 TLS_AES_256_GCM_SHA384``."""
        assert self._connection is not None
        name = self._connection.get_protocol_version_name()
        return f"{name} {self._connection.get_cipher_name()}"

    def peer_certificate(self) -> x509.Certificate | None:
        """Return the peer's verified certificate; ``None`` if none was required."""
        assert self._connection is not None
        return self._connection.get_peer_certificate(as_cryptography=True)

    def why_lost(self, error: BaseException | None) -> str | None:
        """Return why the connection failed; ``None`` if TLS is not the reason."""
        if self._fault is not None and isinstance(error, SSL.Error):
            return self._fault
        why = reason(error, shows=self._shows)
        is_ours = why is not None and "our certificate" in why
        return f"{why}{self._outside}" if is_ours else why

    def _verified(
        self, _connection: object, certificate: crypto.X509, number: int, depth: int, fine: int
    ) -> bool:
        """Check one certificate of the peer's chain; the peer's own is last, with depth 0."""
        shown = certificate.to_cryptography()
        if not fine:
            whose = "its certificate" if depth == 0 else "a certificate in its chain"
            name = shown.subject.rfc4514_string() or "without a name"
            fault = f"{whose} ({name}) {certificate_fault(number)}"
            if number in _FAULTS_OF_TIME:
                fault += _outside(shown)
            self._fault = self._fault or fault
            return False
        if depth == 0 and self._check_host and self._host is not None:
            self._fault = _host_fault(shown, self._host)
        return self._fault is None


def _host_fault(certificate: x509.Certificate, host: str) -> str | None:
    """Return why a certificate does not match a host; ``None`` if it does."""
    try:
        if _is_address(host):
            verify_certificate_ip_address(certificate, host)
        else:
            verify_certificate_hostname(certificate, host)
    except VerificationError:
        return f"its certificate is for {', '.join(_hosts(certificate))}, not for {host}"
    except CertificateError:
        return f"its certificate names no host (subjectAltName), and {host} must be there"
    return None


def _hosts(certificate: x509.Certificate) -> list[str]:
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    dns = names.get_values_for_type(x509.DNSName)
    return [*dns, *map(str, names.get_values_for_type(x509.IPAddress))]


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _limit(context: SSL.Context, settings: TlsSettings) -> None:
    """Set versions and cipher suites. In Java a suite allows only its own version."""
    names = versions(settings.versions)
    suites = [openssl_suite(name) for name in split(settings.suites)]
    new = [name for name in suites if name is not None and is_tls13(name)]
    old = [name for name in suites if name is not None and not is_tls13(name)]
    if suites:
        has = {"TLSv1.2": bool(old), "TLSv1.3": bool(new)}
        names = tuple(name for name in names if has[name])
    if not names:
        raise SecurityError("tlsEnabledCipherSuites has no suite of tlsEnabledProtocols")
    context.set_min_proto_version(_NUMBERS[names[0]])
    context.set_max_proto_version(_NUMBERS[names[-1]])
    if not suites:
        old = [DEFAULT_SUITES]
    try:
        if old:
            context.set_cipher_list(":".join(old).encode())
        if new:
            context.set_tls13_ciphersuites(":".join(new).encode())
    except SSL.Error as error:
        raise SecurityError(
            f"tlsEnabledCipherSuites: OpenSSL has none of {', '.join([*old, *new])}"
        ) from error


def _changed_ns(path: str) -> int:
    """Return the time of a file's last change; 0 if it does not exist."""
    try:
        return Path(path).stat().st_mtime_ns
    except OSError:
        return 0
