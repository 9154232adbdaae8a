"""A cluster of bookies of both kinds, with a proxy before each, and clients of both kinds.

A bookie's id is the address of its proxy, its registration says where it really listens. So a
client that looks addresses up goes straight to the bookies, and one that does not
(``bookieAddressResolverEnabled``) goes through the proxies: tests choose whose network is spoiled.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from functools import partial

import attrs

from bkclient.client import Client
from bkclient.config.client import ClientConfig
from bkclient.config.properties import parse_properties
from bkclient.config.settings import load
from bkclient.quorum.distribution import write_set
from tests.interop.peers.java_client import PATIENT
from tests.interop.peers.our_bookie import our_bookie
from tests.interop.peers.peers import JavaBookie, JavaClient, JavaLedgerMetadata, Peers
from tests.support.reactor import call, run, the_reactor
from tests.support.tcp_proxy import TcpProxy
from wire.codes import ProtocolVersion, ReturnCode
from wire.ids import BookieId, EntryId, LedgerId
from wire.ledger_metadata import LedgerMetadata
from wire.messages import ReadRequest

V2, V3 = ProtocolVersion.V2, ProtocolVersion.V3
PASSWORD = b"pw"
PATIENCE_S = 2
"""How long both clients wait for a bookie's answer over a network that tests spoil."""

LONGEST_S = 300.0
"""How long anything may take that only slowness could make so long."""

SPOILED = {"addEntryTimeoutSec": PATIENCE_S, "readEntryTimeoutSec": PATIENCE_S}
CONF = {**PATIENT, "speculativeReadTimeout": 200, "firstSpeculativeReadLACTimeout": 300}


def entry(ledger_id: int, entry_id: int) -> bytes:
    """Return the payload that every writer here gives an entry: it tells where it belongs."""
    size = entry_id * 7919 % 700
    return b"%d/%d;" % (ledger_id, entry_id) + random.Random(entry_id).randbytes(size)


@attrs.frozen
class Member:
    """A bookie and the proxy before it."""

    bookie: JavaBookie
    proxy: TcpProxy


class MixedCluster:
    """``count`` bookies of ours and as many of Java's."""

    def __init__(self, peers: Peers, count: int) -> None:
        self.peers, self.uri = peers, peers.metadata_uri()
        self.members: dict[str, Member] = {}
        for make in (peers.java_bookie, partial(our_bookie, peers)):
            for _ in range(count):
                self._add(make)
        for member in self.members.values():
            member.bookie.spawn()
            member.proxy.server_port = member.bookie.port
        for member in self.members.values():
            member.bookie.wait_ready()
        self._ours: dict[tuple[object, ...], Client] = {}
        self._javas: dict[tuple[object, ...], JavaClient] = {}

    def _add(self, make) -> None:
        proxy = TcpProxy(the_reactor())
        call(proxy.start)
        self.peers.on_close(lambda: run(proxy.stop()))
        bookie_id = f"127.0.0.1:{proxy.port}"
        bookie = make(self.uri, start=False, bookieId=bookie_id)
        self.members[bookie_id] = Member(bookie, proxy)

    # Clients; each kind is made once

    def ours(
        self, protocol: ProtocolVersion = V3, *, proxied: bool = False, **conf: object
    ) -> Client:
        """Return a client of ours with Java's settings."""
        wanted = (protocol, proxied, *sorted(conf.items()))
        if wanted not in self._ours:
            text = "\n".join(f"{k}={v}" for k, v in _settings(conf, proxied=proxied).items())
            config, _ = load(ClientConfig, parse_properties(text))
            connecting = Client.connect(
                self.uri, reactor=the_reactor(), protocol=protocol, config=config
            )
            client = self._ours[wanted] = run(connecting)
            self.peers.on_close(lambda: run(client.close()))
        return self._ours[wanted]

    def java(self, *, v2: bool = False, proxied: bool = False, **conf: object) -> JavaClient:
        """Return a client of Java's."""
        wanted = (v2, proxied, *sorted(conf.items()))
        if wanted not in self._javas:
            settings = _settings(conf, proxied=proxied)
            self._javas[wanted] = self.peers.java_client(self.uri, v2=v2, **settings)
        return self._javas[wanted]

    # Faults

    def kinds(self) -> tuple[list[str], list[str]]:
        """Return the ids of the bookies of ours, and of Java's."""
        kinds: tuple[list[str], list[str]] = ([], [])
        for bookie_id, member in self.members.items():
            kinds[type(member.bookie) is JavaBookie].append(bookie_id)
        return kinds

    def busiest(self, ledger_ids: Iterable[int]) -> set[str]:
        """Return a bookie of ours and one of Java's that most of these writers are busy with."""
        busy = Counter(bookie for ledger_id in ledger_ids for bookie in self.ensemble(ledger_id))
        return {max(kind, key=lambda bookie: busy[bookie]) for kind in self.kinds()}

    def proxy(self, bookie_id: str) -> TcpProxy:
        return self.members[bookie_id].proxy

    def kill(self, bookie_id: str) -> None:
        """Kill a bookie; ``heal`` brings it back."""
        assert self.members[bookie_id].bookie.kill() == -9

    def heal(self) -> None:
        """Make everything work again."""
        dead = [m.bookie for m in self.members.values() if not m.bookie.running]
        for bookie in dead:
            bookie.spawn()
        for member in self.members.values():
            call(member.proxy.heal)
        for bookie in dead:
            bookie.wait_ready()

    # What both must find

    def agreed_end(self, ledger_id: int, acked: int, *, exact_length: bool = True) -> int:
        """Return how many entries a closed ledger has, after both clients read all of it.

        None of ``acked`` entries may be missing, and no byte of any may differ. Each is on as many
        bookies as acknowledged it, by the metadata; so all bookies must be up.

        Java's recovery may store a length that counts entries behind the end, or none at all
        (client.md section 10, step 8): ``exact_length`` is for where it has no part.
        """
        found, ours = self.java().metadata(ledger_id), self.metadata(ledger_id)
        assert found.state == "CLOSED"
        assert (ours.last_entry_id, ours.length) == (found.last_entry_id, found.length)
        assert {f.first_entry_id: f.ensemble for f in ours.fragments} == dict(found.ensembles)
        count = found.last_entry_id + 1
        assert count >= acked, f"{acked} entries were acknowledged, the ledger ends with {count}"
        expected = [entry(ledger_id, i) for i in range(count)]
        assert not exact_length or found.length == sum(map(len, expected))
        for v2 in (False, True):
            reader = self.java(v2=v2).open_ledger(ledger_id, password=PASSWORD)
            assert reader.last_add_confirmed == count - 1
            assert (reader.read(0, count - 1) if count else []) == expected
            reader.close()
        for protocol in (V2, V3):
            assert run(_read_all(self.ours(protocol), ledger_id), LONGEST_S) == expected
        self._check_replicas(found)
        return count

    def metadata(self, ledger_id: int) -> LedgerMetadata:
        """Read a ledger's metadata from the store."""
        return run(self.ours().read_metadata(LedgerId(ledger_id))).value

    def ensemble(self, ledger_id: int) -> tuple[BookieId, ...]:
        """Return the bookies of a ledger's last fragment."""
        return self.metadata(ledger_id).last_fragment.ensemble

    def _check_replicas(self, found: JavaLedgerMetadata) -> None:
        missing = run(_missing_replicas(self.ours(), found), LONGEST_S)
        few = {e: n for e, n in missing.items() if found.write_quorum - n < found.ack_quorum}
        assert not few, f"entries and how many of their replicas are missing: {few}"


def _settings(conf: dict[str, object], *, proxied: bool) -> dict[str, object]:
    waits = {**CONF, **(SPOILED if proxied else {})}
    return {**waits, "bookieAddressResolverEnabled": str(not proxied).lower(), **conf}


async def _read_all(client: Client, ledger_id: int) -> list[bytes]:
    reader = await client.open_ledger(LedgerId(ledger_id), password=PASSWORD, recover=False)
    try:
        return [e.payload async for e in reader.read()]
    finally:
        reader.close()


async def _missing_replicas(client: Client, found: JavaLedgerMetadata) -> dict[int, int]:
    """Ask each bookie for what it should have; return how many do not have each entry."""
    ledger_id, starts = LedgerId(found.ledger_id), sorted(found.ensembles)
    missing: Counter[int] = Counter()
    asked = []
    for entry_id in map(EntryId, range(found.last_entry_id + 1)):
        ensemble = found.ensembles[max(start for start in starts if start <= entry_id)]
        for index in write_set(entry_id, found.ensemble_size, found.write_quorum):
            request = ReadRequest(ledger_id, entry_id)
            asked.append((entry_id, client.cluster.pool.send(BookieId(ensemble[index]), request)))
    for entry_id, answer in asked:
        missing[entry_id] += (await answer).rc is not ReturnCode.EOK
    return missing
