"""The admission of one client: authentication and TLS, if the settings require them."""

from __future__ import annotations

from typing import Any, Final

from bookied.server.access.access_check import AccessCheck, AuthRequired, TlsRequired, host_of
from bookied.server.access.start_tls import TlsUpgrade, refuse_tls
from bookied.server.limits.address_groups import group_of
from bookied.server.shared_by_connections import ServerContext
from wire.errors import TlsOrderError
from wire.framing import ServerConnection
from wire.messages import Request

UNAUTHENTICATED_FRAME_BYTES_MAX: Final = 10 * 1024
"""The longest frame of a client that has not passed its check.

A login is shorter, and a longer frame would be refused after it is complete.
"""


class Admission:
    """The access check of one client, if any, and its change to TLS.

    Until a client has passed its check, its frames are short. After START_TLS the client has a new
    check: an attacker on the network could have authenticated in clear.
    """

    def __init__(self, shared: ServerContext, framing: ServerConnection) -> None:
        self._shared, self._framing = shared, framing
        self._transport: Any = None
        self.host = ""
        """The client's address, for the log."""
        self.address = ""
        """The address group of the client, for limits that all clients share."""
        self.check: AccessCheck | None = None
        """The check that answers the client's requests; None if the bookie answers them."""
        self._upgrade: TlsUpgrade | None = None

    def begin(self, transport: Any) -> None:
        """Set the first check of the client on ``transport``."""
        self._transport, self.host = transport, host_of(transport)
        self.address = group_of(self.host)
        self._set_check(
            self._tls_check() if self._shared.access.tls_required else self._auth_check()
        )

    def _auth_check(self) -> AccessCheck | None:
        shared = self._shared
        if shared.access.auth is None:
            return None
        proof, report = shared.access.auth.begin(), shared.refusals.report
        return AuthRequired(proof, shared.stats, self.host, report, shared.login_delays)

    def _tls_check(self) -> AccessCheck:
        return TlsRequired(self._shared.stats, self.host, self._shared.refusals.report)

    def _set_check(self, check: AccessCheck | None) -> None:
        """Set or remove the client's check, and the frame limit that belongs to it."""
        self.check = check
        largest = self._shared.frame_bytes_max
        self._framing.frame_bytes_max = (
            largest if check is None else min(largest, UNAUTHENTICATED_FRAME_BYTES_MAX)
        )

    def pass_if_open(self) -> None:
        """Remove the check if the client has authenticated."""
        if self.check is not None and self.check.is_open:
            self._set_check(None)

    def require_allowed(self, request: Request) -> None:
        """Refuse a request that may not arrive between START_TLS and the handshake.

        Raises:
            TlsOrderError: the request may not arrive there.
        """
        if self._upgrade is not None and not self._upgrade.is_over:
            self._upgrade.require_allowed(request)

    # TLS ---------------------------------------------------------------------------------------

    @property
    def is_in_tls(self) -> bool:
        """True if the handshake has ended."""
        return self._upgrade is not None and self._upgrade.is_over

    def require_first(self) -> None:
        """Refuse a second START_TLS.

        Raises:
            TlsOrderError: this is the second START_TLS.
        """
        if self._upgrade is not None:
            raise TlsOrderError("START_TLS twice")

    def upgrade(self) -> None:
        """Wait for the first record of TLS: START_TLS was accepted."""
        shared = self._shared
        assert shared.access.tls is not None
        self._set_check(self._auth_check())
        self._upgrade = TlsUpgrade(
            shared.access.tls.end(),
            self._transport,
            shared.clock,
            shared.stats,
            shared.refusals.report,
        )

    def begin_handshake(self, data: bytes) -> None:
        """Keep ``data``, the first bytes of the handshake, for ``go_on``."""
        assert self._upgrade is not None
        self._upgrade.begin(data)

    def go_on(self) -> None:
        """Begin the handshake if its first bytes are received. May call the connection back."""
        if self._upgrade is not None:
            self._upgrade.go_on()

    def handshake_completed(self) -> None:
        """Continue in TLS."""
        assert self._upgrade is not None
        self._upgrade.completed()
        if self.check is not None:
            self.check.tls_began(self._upgrade.end.peer_certificate())
            self.pass_if_open()

    def lost(self, error: BaseException | None) -> None:
        """Note that the connection is lost."""
        if self._upgrade is not None:
            self._upgrade.lost(error)
        self._transport = self._upgrade = None

    # Refusals ----------------------------------------------------------------------------------

    def refuse_tls(self, error: TlsOrderError) -> None:
        """Count and log a client that breaks the order of TLS."""
        refuse_tls(self._shared.stats, self._shared.refusals.report, self.host, error)

    def refuse_key(self, ledger_id: int) -> None:
        """Log a client that does not have the password of the ledger."""
        why = f"it does not give the password that ledger {ledger_id} was made with"
        self._shared.refusals.report(self.host, "key", why)
