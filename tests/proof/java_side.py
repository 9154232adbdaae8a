"""What Java's client does in its process: a JVM of its own, with a thread for each command."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.interop.peers.java_client import JavaClient, JavaLedger
from tests.interop.peers.jvm import JavaError, JavaVM
from tests.proof.client import WINDOW, Command
from tests.proof.history import Kind, checksum, payload
from tests.proof.settings import JAVA_CLIENT, PASSWORD

OUTCOME_S: Final = 120.0
"""How long an add or a close may be without any outcome; then it is reported as such."""

CHUNK: Final = 200
PAUSE_S: Final = 0.3


class JavaSide:
    """One client of Java's."""

    def __init__(
        self, uri: str, protocol: str, report: Callable[..., None], directory: Path
    ) -> None:
        self._report = report
        self._vm = JavaVM(directory).start()
        self.pids = (self._vm.pid,)
        self._client = JavaClient(self._vm, uri, v2=protocol == "v2", **JAVA_CLIENT)
        self._finishing: set[int] = set()

    def begin(self, command: Command) -> None:
        """Begin what a command asks for."""
        if command.do == "finish":
            self._finishing.add(command.handle)
            return
        threading.Thread(target=self._reported, args=(command,), daemon=True).start()

    def close(self) -> None:
        """End the JVM at once."""
        self._vm.kill()

    def _reported(self, command: Command) -> None:
        verbs = {"write": self._write, "tail": self._tail, "recover": self._read,
                 "read": self._read}  # fmt: skip
        try:
            verbs[command.do](command)
        except Exception as error:  # noqa: BLE001  whatever it is, the history has it
            note = f"{command.do}: {type(error).__name__}: {error}"
            self._report(Kind.FAILED, handle=command.handle, ledger=command.ledger, note=note)

    def _write(self, command: Command) -> None:
        ledger = self._client.create_ledger(
            *command.sizes, digest=command.digest, password=PASSWORD
        )
        at: dict[str, Any] = {"handle": command.handle, "ledger": ledger.ledger_id}
        self._report(Kind.CREATED, note=command.digest, **at)
        refused, sent = False, 0
        while sent < command.entries and command.handle not in self._finishing and not refused:
            adds = [
                (entry, ledger.add_async(payload(ledger.ledger_id, entry)))
                for entry in range(sent, sent + WINDOW)
            ]
            sent += WINDOW
            for entry, add in adds:
                try:
                    entry_id = add.result(OUTCOME_S)
                except JavaError as error:
                    refused = True
                    self._report(Kind.REFUSED, first=entry, note=str(error), **at)
                else:
                    self._report(Kind.ACKED, first=entry_id, last=entry_id, **at)
            time.sleep(command.pause_s)
        if not refused:
            ledger.close()
            self._report(Kind.CLOSED, last=ledger.last_add_confirmed, **at)

    def _tail(self, command: Command) -> None:
        reader = self._open(command)
        at: dict[str, Any] = {"handle": command.handle, "ledger": command.ledger}
        following = 0
        while not (reader.is_closed and following > reader.last_add_confirmed):
            try:
                last = reader.last_add_confirmed
                if following > last:
                    time.sleep(PAUSE_S)
                    reader.read_last_confirmed()
                    continue
                last = min(last, following + CHUNK - 1)
                sums = [checksum(found) for found in reader.read(following, last)]
            except JavaError:
                # Bookies are away; whether they stay away is not for a tail to say.
                time.sleep(PAUSE_S)
                continue
            self._report(Kind.READ, first=following, sums=sums, **at)
            following = last + 1
        self._report(Kind.END, last=reader.last_add_confirmed, **at)

    def _read(self, command: Command) -> None:
        """Read a ledger to its end; ``recover`` closes it first."""
        reader = self._open(command)
        if not reader.is_closed:
            raise AssertionError(f"ledger {command.ledger} is open")
        at: dict[str, Any] = {"handle": command.handle, "ledger": command.ledger}
        end = reader.last_add_confirmed
        for first in range(0, end + 1, CHUNK):
            found = reader.read(first, min(end, first + CHUNK - 1))
            self._report(Kind.READ, first=first, sums=[checksum(one) for one in found], **at)
        self._report(Kind.END, last=end, **at)
        reader.close()

    def _open(self, command: Command) -> JavaLedger:
        return self._client.open_ledger(
            command.ledger,
            digest=command.digest,
            password=PASSWORD,
            recover=command.do == "recover",
        )
