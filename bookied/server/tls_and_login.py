"""What one client may do: nothing before it has authenticated, and in TLS where that is asked."""

from __future__ import annotations

from typing import Any, Final

from bookied.server.access.access_check import AccessCheck, AuthRequired, TlsRequired, host_of
from bookied.server.access.start_tls import TlsUpgrade, refuse_tls
from bookied.server.context import ServerContext
from bookied.server.limits.address_groups import group_of
from wire.errors import TlsOrderError
from wire.framing import ServerConnection
from wire.messages import Request

UNAUTHENTICATED_FRAME_BYTES_MAX: Final = 10 * 1024
"""The longest frame of a client that has yet to show who it is, as before TLS where that is asked.

A login takes less, and what is longer would be refused when it is all there.
"""


class Admission:
    """The access check of one client, if any, and its change to TLS.

    Until a client has passed its check, its frames are short. START_TLS puts a new check before the
    client: an attacker on the way could have shown what was shown in clear.
    """

    def __init__(self, shared: ServerContext, framing: ServerConnection) -> None:
        self._shared, self._framing = shared, framing
        self._transport: Any = None
        self.host = ""
        """The client's address, for the log."""
        self.address = ""
        """The same, as it counts for what all clients share."""
        self.check: AccessCheck | None = None
        """What answers the client's requests; None if the bookie does."""
        self._upgrade: TlsUpgrade | None = None

    def begin(self, transport: Any) -> None:
        """Put the first check before the client of a transport."""
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
        """Set the client's check, or none; frames are short while there is one."""
        self.check = check
        largest = self._shared.frame_bytes_max
        self._framing.frame_bytes_max = (
            largest if check is None else min(largest, UNAUTHENTICATED_FRAME_BYTES_MAX)
        )

    def pass_if_open(self) -> None:
        """Let the client through if it has authenticated."""
        if self.check is not None and self.check.is_open:
            self._set_check(None)

    def insist_allowed(self, request: Request) -> None:
        """Refuse what may not come between START_TLS and the handshake.

        Raises:
            TlsOrderError: it may not.
        """
        if self._upgrade is not None and not self._upgrade.is_over:
            self._upgrade.insist_allowed(request)

    # TLS ---------------------------------------------------------------------------------------

    @property
    def is_in_tls(self) -> bool:
        """Whether the handshake is over."""
        return self._upgrade is not None and self._upgrade.is_over

    def insist_first(self) -> None:
        """Refuse a second START_TLS.

        Raises:
            TlsOrderError: it is.
        """
        if self._upgrade is not None:
            raise TlsOrderError("START_TLS twice")

    def upgrade(self) -> None:
        """Wait for the first record of TLS: the agreement to it was sent."""
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
        """Have the handshake begin with ``data`` once ``go_on`` is called."""
        assert self._upgrade is not None
        self._upgrade.begin(data)

    def go_on(self) -> None:
        """Begin the handshake if its first bytes are there. May call the connection back."""
        if self._upgrade is not None:
            self._upgrade.go_on()

    def handshake_completed(self) -> None:
        """Go on in TLS."""
        assert self._upgrade is not None
        self._upgrade.completed()
        if self.check is not None:
            self.check.tls_began(self._upgrade.end.peer_certificate())
            self.pass_if_open()

    def lost(self, error: BaseException | None) -> None:
        """Note that the connection has gone."""
        if self._upgrade is not None:
            self._upgrade.lost(error)
        self._transport = self._upgrade = None

    # Refusals ----------------------------------------------------------------------------------

    def refuse_tls(self, error: TlsOrderError) -> None:
        """Count and log a client that breaks the order of TLS."""
        refuse_tls(self._shared.stats, self._shared.refusals.report, self.host, error)

    def refuse_key(self, ledger_id: int) -> None:
        """Log a client that has another password than a ledger."""
        why = f"it does not give the password that ledger {ledger_id} was made with"
        self._shared.refusals.report(self.host, "key", why)
