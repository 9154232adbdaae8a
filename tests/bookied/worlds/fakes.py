"""Stand-ins that several tests of the bookie's service side use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
from twisted.internet.defer import Deferred, fail
from twisted.internet.protocol import Protocol

from bookied.config.bookie import BookieConfig


@attrs.frozen
class FakeHost:
    """A host with one interface beside the default one."""

    name: str = "bookie7.example.org"
    own_address: str = "192.0.2.1"

    def address(self, interface):
        if interface not in {None, "eth1"}:
            raise OSError(19, "No such device")
        return self.own_address if interface is None else "192.0.2.2"

    def canonical_name(self, address):
        return self.name or address

    def resolve(self, name):
        own = self.own_address
        known = {self.name: own, "bookie7": own, "loop": "127.0.0.1", own: own}
        known |= {"192.0.2.2": "192.0.2.2", "127.0.0.1": "127.0.0.1"}
        if name not in known:
            raise OSError(-2, "Name or service not known")
        return known[name]


def nobody_there(
    host: str,
    port: int,
    make_protocol: Callable[[], Protocol],
    timeout_s: float,
) -> Deferred[Any]:
    """Connect to no other bookie."""
    return fail(ConnectionRefusedError(f"{host}:{port}"))


def done(coroutine: Any) -> Any:
    """Run a coroutine that needs no real time; return its value or raise its error."""
    outcome: list[Any] = []
    Deferred.fromCoroutine(coroutine).addBoth(outcome.append)
    assert outcome, "it is still waiting"
    if hasattr(outcome[0], "raiseException"):
        outcome[0].raiseException()
    return outcome[0]


def config_for(tmp_path: Path, **changes: Any) -> BookieConfig:
    """Return the settings of a bookie below ``tmp_path``."""
    settings: dict[str, Any] = {
        "metadata_service_uri": "memory:",
        "journal_directories": (str(tmp_path / "journal"),),
        "ledger_directories": (str(tmp_path / "ledgers"),),
        "bookie_id": "b1",
        "allow_loopback": True,
        "allow_ephemeral_ports": True,
        "port": 0,
    }
    return BookieConfig(**(settings | changes))
