"""Why TLS did not come about, in words an operator can act on."""

from __future__ import annotations

from typing import Final

from OpenSSL import SSL

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
    24: "comes from something that is no authority",
    26: "is not meant for this end of a connection (extended key usage)",
    28: "is not trusted for this",
}
"""OpenSSL's numbers, X509_V_ERR_…; others are named by their number."""

_REASONS: Final = (
    ("alert certificate required", "it wants a certificate of us, and we have none to send"),
    ("alert certificate expired", "it says that our certificate has expired"),
    ("alert certificate revoked", "it says that our certificate has been revoked"),
    ("alert certificate unknown", "it does not take our certificate, and does not say why"),
    ("alert bad certificate", "it does not take our certificate"),
    ("alert unsupported certificate", "our certificate is not meant for this end"),
    ("alert unknown ca", "it does not trust the authority that our certificate comes from"),
    ("alert handshake failure", "it finds nothing in common: versions, ciphers or certificates"),
    ("alert protocol version", "there is no version of TLS that both ends may speak"),
    ("alert insufficient security", "it finds our cipher suites too weak"),
    ("alert internal error", "it does not take our certificate: perhaps that is for another host"),
    ("alert access denied", "it does not let our certificate in"),
    ("did not return a certificate", "it sent no certificate, and none is let in without"),
    ("no shared cipher", "there is no cipher suite that both ends may use"),
    ("no suitable signature", "its certificate's kind does not fit the cipher suites"),
    ("unsupported protocol", "there is no version of TLS that both ends may speak"),
    ("wrong version number", "it does not speak TLS here, or speaks in clear"),
    ("packet length too long", "it does not speak TLS here, or speaks in clear"),
    ("record layer failure", "it does not speak TLS here, or speaks in clear"),
    ("http request", "it speaks HTTP"),
    ("certificate verify failed", "its certificate cannot be trusted"),
)
"""What OpenSSL says, in lower case, and what that means; the first that is found counts."""


def certificate_fault(number: int) -> str:
    """Return what is wrong with a certificate, by OpenSSL's number."""
    return CERTIFICATE_FAULTS.get(number, f"cannot be trusted (OpenSSL's error {number})")


def reason(error: BaseException | None, *, shows: bool = True) -> str | None:
    """Return why a handshake or a connection in TLS failed; ``None``: it was not for TLS.

    ``shows``: whether we have a certificate; Java calls one that is missing a bad one.
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
