"""Messages to the service manager: systemd's ``sd_notify(3)``.

``READY=1`` and ``STATUS=`` are sent by ``bookied.__main__``, ``WATCHDOG=1`` by ``watchdog``.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping


class Notifier:
    """Sends to ``NOTIFY_SOCKET``, or nowhere when it is not set; never fails, never waits."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        self._environ = environ

    @property
    def watchdog_s(self) -> float | None:
        """How long the manager waits between two ``WATCHDOG=1``; None where it waits for none."""
        usec, pid = self._environ.get("WATCHDOG_USEC", ""), self._environ.get("WATCHDOG_PID", "")
        if not usec.isdigit() or not int(usec) or pid not in {"", str(os.getpid())}:
            return None
        return int(usec) / 1e6

    def notify(self, *assignments: str) -> None:
        """Send e.g. ``"READY=1"``, ``"STATUS=replaying"``."""
        if self._address[:1] not in {"/", "@"}:
            return
        address = self._address.replace("@", "\0", 1)
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            sock.sendto("\n".join(assignments).encode(), address)
