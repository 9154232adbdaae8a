"""Messages to the service manager: systemd's ``sd_notify(3)``.

``READY=1`` and ``STATUS=`` are sent by ``bookied.__main__``, ``WATCHDOG=1`` by ``watchdog``.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping


class Notifier:
    """A sender to ``NOTIFY_SOCKET``.

    It never fails or waits, and does nothing if that is not set.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        self._environ = environ

    @property
    def watchdog_s(self) -> float | None:
        """The time within which the manager expects ``WATCHDOG=1``; None if it expects none."""
        usec, pid = self._environ.get("WATCHDOG_USEC", ""), self._environ.get("WATCHDOG_PID", "")
        if not usec.isdigit() or not int(usec) or pid not in {"", str(os.getpid())}:
            return None
        return int(usec) / 1e6

    def notify(self, *assignments: str) -> None:
        """Send assignments such as ``"READY=1"`` and ``"STATUS=replaying"``."""
        if self._address[:1] not in {"/", "@"}:
            return
        address = self._address.replace("@", "\0", 1)
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            sock.sendto("\n".join(assignments).encode(), address)
