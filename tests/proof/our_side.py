"""What our client does in its process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from bkclient.client import Client
from bkclient.config.client import ClientConfig
from bkclient.config.properties import parse_properties
from bkclient.config.settings import load
from bkclient.ledger.reader import LedgerReader
from tests.proof.client import WINDOW, Command
from tests.proof.history import Kind, checksum, payload
from tests.proof.settings import CLIENT, PASSWORD
from tests.support.reactor import begin, run, sleep, the_reactor
from wire.codes import DigestType, ProtocolVersion
from wire.errors import BookKeeperError
from wire.ids import LedgerId

LONGEST_S: Final = 86_400.0
CHUNK: Final = 200
"""Entries in one event of a reader."""


class OurSide:
    """One client of ours; each command is a coroutine of its reactor."""

    def __init__(self, uri: str, protocol: str, report: Callable[..., None]) -> None:
        text = "".join(f"{key}={value}\n" for key, value in CLIENT.items())
        config, _ = load(ClientConfig, parse_properties(text))
        self._report, self.pids = report, ()
        connecting = Client.connect(
            uri,
            reactor=the_reactor(),
            protocol=ProtocolVersion[protocol.upper()],
            config=config,
        )
        self._client = run(connecting, 120)
        self._finishing: set[int] = set()

    def begin(self, command: Command) -> None:
        """Begin what a command asks for."""
        if command.do == "finish":
            self._finishing.add(command.handle)
            return
        begin(self._reported(command), LONGEST_S)

    def close(self) -> None:
        """Close nothing: the process ends, as one that is killed would."""

    async def _reported(self, command: Command) -> None:
        verbs = {"write": self._write, "tail": self._tail, "recover": self._read,
                 "read": self._read}  # fmt: skip
        try:
            await verbs[command.do](command)
        except Exception as error:  # noqa: BLE001  whatever it is, the history has it
            note = f"{command.do}: {type(error).__name__}: {error}"
            self._report(Kind.FAILED, handle=command.handle, ledger=command.ledger, note=note)

    async def _write(self, command: Command) -> None:
        ensemble_size, write_quorum, ack_quorum = command.sizes
        writer = await self._client.create_ledger(
            ensemble_size=ensemble_size,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            digest_type=DigestType[command.digest],
            password=PASSWORD,
        )
        at: dict[str, Any] = {"handle": command.handle, "ledger": writer.ledger_id}
        self._report(Kind.CREATED, note=command.digest, **at)
        refused: list[int] = []
        sent = 0
        while sent < command.entries and command.handle not in self._finishing and not refused:
            adds = []
            for entry in range(sent, sent + WINDOW):
                add = writer.add(payload(writer.ledger_id, entry))
                add.addCallbacks(
                    lambda entry_id: self._report(Kind.ACKED, first=entry_id, last=entry_id, **at),
                    lambda failure, entry=entry: refuse(entry, failure),
                )
                adds.append(add)
            sent += WINDOW

            def refuse(entry: int, failure: Any) -> None:
                note = f"{failure.type.__name__}: {failure.value}"
                self._report(Kind.REFUSED, first=entry, note=note, **at)
                refused.append(entry)

            for add in adds:
                await add
            await sleep(command.pause_s)
        if not refused:
            metadata = await writer.close()
            self._report(Kind.CLOSED, last=metadata.last_entry_id, **at)

    async def _tail(self, command: Command) -> None:
        reader = await self._open(command)
        at: dict[str, Any] = {"handle": command.handle, "ledger": command.ledger}
        async for entry in reader.tail():
            sums = (checksum(entry.payload),)
            self._report(Kind.READ, first=entry.entry_id, sums=sums, **at)
        self._report(Kind.END, last=reader.last_add_confirmed, **at)

    async def _read(self, command: Command) -> None:
        """Read a ledger to its end; ``recover`` closes it first."""
        reader = await self._open(command)
        if not reader.is_closed:
            raise BookKeeperError(f"ledger {command.ledger} is open")
        at: dict[str, Any] = {"handle": command.handle, "ledger": command.ledger}
        first, sums = 0, []
        async for entry in reader.read() if reader.last_add_confirmed >= 0 else _nothing():
            sums.append(checksum(entry.payload))
            if len(sums) == CHUNK:
                self._report(Kind.READ, first=first, sums=sums, **at)
                first, sums = first + CHUNK, []
        if sums:
            self._report(Kind.READ, first=first, sums=sums, **at)
        self._report(Kind.END, last=reader.last_add_confirmed, **at)
        reader.close()

    async def _open(self, command: Command) -> LedgerReader:
        return await self._client.open_ledger(
            LedgerId(command.ledger), password=PASSWORD, recover=command.do == "recover"
        )


async def _nothing() -> Any:
    for entry in ():
        yield entry
