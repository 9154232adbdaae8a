"""What hostile clients that send without pause cost a client that behaves.

    python -m tests.bench.floods
    python -m tests.bench.floods --rounds 1 --seconds 1 "TLS handshakes"

A ``bookied`` with its defaults and a certificate. A client adds entries of 1 KiB, one at a time:
alone, while the hostile clients are set on another bookie of the same host ("beside"), and while
they are set on its own. "beside" shows what they take from the machine and not from the bookie.
Each flood runs in a process of its own. CPU is what the bookie's reactor runs on a processor from
the add to its answer, whoever it works for: unlike time it needs no quiet machine. Figures are
medians of the rounds; memory, descriptors and lines of the log are the most that a flood added.
Ends with the table of docs/operations.md. Asserts nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import count
from pathlib import Path
from typing import Any, Final

import attrs

from tests.bookied.worlds.raw_client import RawClient
from tests.bookied.worlds.secured_link import jaas_of_both
from tests.live.bookied import floods, tls_floods
from tests.live.bookied.attacked_bookie import Live
from tests.support.certificates import Authority, bookie_keys, https_keys, write_pem
from wire.codes import ReturnCode
from wire.frames import v3
from wire.messages import SASL, AuthRequest

PAYLOAD: Final = b"x" * 1024
PASSWORD: Final = "the-password"
PAUSE_S: Final = 0.001
"""Between two adds, so that the bookie is idle when nobody else asks."""

CHAIN_FILLING_BYTES: Final = 300

LEDGERS = count(1000)

Attack = Callable[[int, int], AbstractContextManager[Any]]
"""Takes the bookie's port and that of its HTTP server."""


def _sending(data: Callable[[], bytes], receive_bytes: int = 4096) -> Attack:
    return lambda port, _http_port: floods.flooded(port, data(), receive_bytes)


def _http(data: bytes) -> Attack:
    return lambda _port, http_port: floods.flooded(http_port, data, 65536)


HTTP: Final = b"PUT /api/v1/config/server_config HTTP/1.1\r\nHost: 127.0.0.1\r\n"
GET: Final = b"GET /heartbeat HTTP/1.1\r\nHost: 127.0.0.1\r\n"
CHUNKED: Final = b"Transfer-Encoding: chunked\r\n"
HIDDEN: Final = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


ATTACKS: Final[dict[str, Attack]] = {
    "protobuf, a million fields": _sending(lambda: floods.bomb(floods.UNKNOWN_FIELD)),
    "protobuf, a million groups": _sending(lambda: floods.bomb(floods.UNKNOWN_GROUP)),
    "protobuf, a million messages": _sending(lambda: floods.bomb(floods.EMPTY_ADD)),
    "protobuf, a login of V2": _sending(floods.login_bomb),
    "adds with a wrong key, V2": _sending(lambda: floods.wrong_keys(is_v3=False)),
    "adds with a wrong key, V3": _sending(lambda: floods.wrong_keys(is_v3=True)),
    "adds with a wrong key by 200 clients, one by one": lambda port, _http_port: floods.one_by_one(
        port, floods.wrong_key(), 200
    ),
    "reads of missing ledgers, V2": _sending(lambda: floods.missing_ledgers(is_v3=False)),
    "reads of missing ledgers, V3": _sending(lambda: floods.missing_ledgers(is_v3=True)),
    "connections that come and go": lambda port, _http_port: floods.churn(port),
    "HTTP requests, answers not read in turn": lambda _port, http_port: floods.flooded(
        http_port, floods.pipelined("/metrics"), 65536
    ),
    "TLS handshakes": lambda port, _http_port: floods.handshakes(port),
    "TLS, half handshakes": lambda port, _http_port: floods.half_handshakes(port),
    "TLS, records of one byte": lambda port, _http_port: floods.tiny_records(port),
    "TLS, 500 half handshakes": lambda port, _http_port: tls_floods.half_open(port, 500),
    "TLS, other bytes": lambda port, _http_port: tls_floods.clear_text(port),
    "TLS, tiny records behind large ones": lambda port, _http_port: tls_floods.mixed_records(port),
    "TLS 1.2, renegotiations": lambda port, _http_port: tls_floods.renegotiations(port),
    "TLS 1.3, key updates": lambda port, _http_port: tls_floods.key_updates(port),
    "HTTPS, handshakes": lambda _port, http_port: floods.handshakes(http_port, https=True),
    "HTTPS, half handshakes": lambda _port, http_port: floods.half_handshakes(
        http_port, https=True
    ),
    "HTTPS, records of one byte": lambda _port, http_port: floods.tiny_records(
        http_port, https=True
    ),
    "HTTPS, tiny records behind large ones": lambda _port, http_port: tls_floods.mixed_records(
        http_port, https=True
    ),
    "HTTPS, key updates": lambda _port, http_port: tls_floods.key_updates(http_port, https=True),
    "HTTPS, chains of 80 KB": lambda _port, http_port: tls_floods.long_chains(
        http_port, CHAIN_FILLING_BYTES, https=True
    ),
    "SASL, wrong passwords": lambda port, _http_port: floods.guesses(port),
    "SASL, half logins": lambda port, _http_port: floods.held(
        port, v3.encode_request(AuthRequest(SASL, b""), 1), 200
    ),
    "SASL, long names of plugins": _sending(lambda: floods.strange_logins(9000, b"")),
    "SASL, long tokens": _sending(lambda: floods.strange_logins(0, b"a" * 4096)),
    "SASL, tokens of quotes": _sending(lambda: floods.strange_logins(0, b'a="' + b"\\" * 4000)),
    "SASL, nothing but the begin": _sending(lambda: floods.strange_logins(0, b"")),
    "reads not taken, V2": _sending(lambda: floods.many_reads("V2")),
    "reads not taken, V3": _sending(lambda: floods.many_reads("V3")),
    "batch reads not taken": _sending(lambda: floods.many_reads("batch")),
    "reads whose answers no client reads": lambda port, _http_port: floods.held(
        port, floods.many_reads("V3"), 100
    ),
    "forces": _sending(floods.forces, 65536),
    "adds of 50 connections": lambda port, _http_port: floods.flooded(
        port, floods.adds(), 65536, clients=50
    ),
    "adds of 200 addresses": lambda port, _http_port: floods.flooded(
        port, floods.adds(), 65536, clients=200, hosts=floods.MANY_HOSTS
    ),
    "adds of 5 MiB": _sending(floods.large_adds, 65536),
    "requests for the sizes of the disks": _sending(floods.infos, 65536),
    "adds, each to another page of the index": _sending(floods.scattered_adds, 65536),
    "adds, each to another ledger": _sending(floods.adds_of_many_ledgers, 65536),
    "long polls that come and go": lambda port, _http_port: floods.polled(port),
    "lists of a scattered ledger": _sending(lambda: floods.lists(floods.SCATTERED)),
    "frames longer than allowed": _sending(lambda: b"\x7f\xff\xff\xff" * 1000),
    "frames in bytes": lambda port, _http_port: floods.dripped(port, floods.adds()[:2000], 300),
    "frames that are cut": lambda port, _http_port: floods.held(
        port, b"\0\x4c\0\0" + b"x" * 999, 200
    ),
    "HTTP, requests in bytes": lambda _port, http_port: floods.dripped(http_port, GET, 40),
    "HTTP, bodies in bytes": lambda _port, http_port: floods.dripped(
        http_port, HTTP + b"Content-Length: 60000\r\n\r\n" + b"x" * 2000, 30
    ),
    "HTTP, many connections": lambda _port, http_port: floods.held(http_port, GET, 200),
    "HTTP, chunks of one byte": _http(
        HTTP + CHUNKED + b"\r\n" + b"1\r\nx\r\n" * 999 + b"0\r\n\r\n"
    ),
    "HTTP, long extensions of chunks": _http(
        HTTP + CHUNKED + b"\r\n" + (b"1;" + b"e" * 1000 + b"\r\nx\r\n") * 100 + b"0\r\n\r\n"
    ),
    "HTTP, chunk sizes without end": _http(HTTP + CHUNKED + b"\r\n" + b"0" * 60_000),
    "HTTP, headers of 16 KiB": _http(GET + b"X: " + b"x" * 16_000 + b"\r\n\r\n"),
    "HTTP, forms": _http(floods.posted(b"application/x-www-form-urlencoded", b"a=1&" * 16_000)),
    "HTTP, forms of many parts": _http(
        floods.posted(b"multipart/form-data; boundary=b", b"--b\r\n\r\n\r\n" * 7000)
    ),
    "HTTP, cookies": _http(GET + b"Cookie: " + b"a=1;" * 4000 + b"\r\n\r\n"),
    "HTTP, long queries": _http(
        b"GET /heartbeat?" + b"a=1&" * 4000 + b" HTTP/1.1\r\nHost: b\r\n\r\n"
    ),
    "HTTP, folded headers": _http(GET + b"X: y\r\n" + b" \r\n" * 5000 + b"\r\n"),
    "HTTP, nested JSON": _http(
        b"PUT /api/v1/bookie/gc HTTP/1.1\r\nHost: b\r\nContent-Length: 60000\r\n\r\n"
        + b"[" * 60_000
    ),
    "HTTP, metrics": _http(b"GET /metrics HTTP/1.1\r\nHost: b\r\n\r\n"),
    "HTTP, 499 headers": _http(GET + b"X: y\r\n" * 499 + b"\r\n"),
    "HTTP, two lengths": _http(GET + CHUNKED + b"Content-Length: 44\r\n\r\n0\r\n\r\n" + HIDDEN),
    "HTTP, foreign hosts": _http(b"GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n"),
}


KINDS: Final = ("", "SASL", "HTTPS")
"""Bookies that let everybody in, ask for a login, or serve HTTP in TLS."""


@attrs.frozen
class Adds:
    """What some adds took, in milliseconds."""

    p50_ms: float
    p99_ms: float
    cpu_p50_ms: float
    cpu_p99_ms: float

    def __str__(self) -> str:
        return (
            f"{self.p50_ms:.2f} {self.p99_ms:.2f} (CPU {self.cpu_p50_ms:.2f} {self.cpu_p99_ms:.2f})"
        )


@attrs.frozen
class Round:
    """One flood: before, beside another bookie and during; and what the bookie took for it."""

    before: Adds
    beside: Adds
    during: Adds
    memory_mib: float
    descriptors: int
    log_lines: int


class Target:
    """A bookie, and what it takes."""

    def __init__(self, directory: Path, kind: str) -> None:
        """``kind``: one of ``KINDS``."""
        directory.mkdir()
        self._has_sasl, authority = kind == "SASL", Authority()
        pem = write_pem(directory / "keys", authority.issue("bookie"), authority)
        keys = bookie_keys(pem)
        if kind == "HTTPS":
            keys |= https_keys(pem)
        if self._has_sasl:
            (directory / "jaas.conf").write_text(jaas_of_both(PASSWORD))
            keys["bookieAuthProviderFactoryClass"] = "SASLBookieAuthProviderFactory"
            keys["saslJaasConfigFile"] = directory / "jaas.conf"
        self.live = Live(directory, **keys)
        with self.client() as client:
            client.add(floods.LEDGER, 0)
            for entry_id in range(floods.LARGE_ENTRIES):
                client.add(floods.LARGE, entry_id, bytes(floods.LARGE_BYTES))
            for number in range(floods.SCATTERED_PAGES):
                client.add(floods.SCATTERED, number * floods.SCATTERED_STEP, b"x")

    def client(self) -> RawClient:
        """Return a client that behaves."""
        client = RawClient(self.live.port)
        if self._has_sasl:
            client.log_in("bookkeeper", PASSWORD)
        return client

    def close(self) -> None:
        self.live.process.kill()

    @contextlib.contextmanager
    def attacked(self, name: str) -> Iterator[None]:
        """Have a process set hostile clients on the bookie; it ends with its input."""
        ports = [str(self.live.port), str(self.live.http_port)]
        command = [sys.executable, "-m", "tests.bench.floods", "--attack", name, *ports]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdout.readline()
            try:
                yield
            finally:
                process.stdin.close()
                process.wait()

    def adds(self, client: RawClient, seconds: float) -> Adds:
        """Add entries for so long."""
        ledger_id, took_s, cpu_s = next(LEDGERS), [], []
        end_s = time.monotonic() + seconds
        for entry_id in count():
            ran_s, began_s = self._ran_s(), time.perf_counter()
            rc = client.add(ledger_id, entry_id, PAYLOAD)
            took_s.append(time.perf_counter() - began_s)
            cpu_s.append(self._ran_s() - ran_s)
            if rc is not ReturnCode.EOK:
                raise SystemExit(f"an add was answered {rc}")
            if time.monotonic() > end_s:
                break
            time.sleep(PAUSE_S)
        return Adds(*_percentiles(took_s), *_percentiles(cpu_s))

    def _ran_s(self) -> float:
        """Return how long the reactor's thread has run on a processor."""
        pid = self.live.process.pid
        return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9

    def takes(self) -> tuple[float, int, int]:
        """Return MiB of memory, descriptors, and lines of the log."""
        process = self.live.process
        descriptors = len(list(Path(f"/proc/{process.pid}/fd").iterdir()))
        lines = process.output.read_text().count("\n")
        return process.rss_kib() / 1024, descriptors, lines


def _percentiles(seconds: list[float]) -> tuple[float, float]:
    """Return p50 and p99 in ms."""
    ordered = sorted(seconds)
    return ordered[len(ordered) // 2] * 1000, ordered[len(ordered) * 99 // 100] * 1000


def _kind_of(name: str) -> str:
    """Return which kind of bookie a flood is for."""
    begin = name.partition(",")[0]
    return begin if begin in KINDS else ""


def _round(name: str, own: Target, other: Target, client: RawClient, seconds: float) -> Round:
    before = own.adds(client, seconds)
    with other.attacked(name):
        beside = own.adds(client, seconds)
    memory_mib, descriptors, log_lines = own.takes()
    with own.attacked(name):
        own.adds(client, seconds)  # Hundreds of connections are not open at once.
        during = own.adds(client, seconds)
        taken = own.takes()
    return Round(
        before,
        beside,
        during,
        taken[0] - memory_mib,
        taken[1] - descriptors,
        taken[2] - log_lines,
    )


def _row(name: str, rounds: list[Round]) -> str:
    def median(which: str, what: str) -> float:
        return float(statistics.median(getattr(getattr(one, which), what) for one in rounds))

    def pair(what: str) -> str:
        before, during = median("before", what), median("during", what)
        return f"{before:.1f} → {during:.1f} ({during / before:.1f})"

    cells = [
        name,
        *map(pair, ("p50_ms", "p99_ms", "cpu_p50_ms", "cpu_p99_ms")),
        f"{max(one.memory_mib for one in rounds):.0f}",
        str(max(one.descriptors for one in rounds)),
        str(max(one.log_lines for one in rounds)),
    ]
    return f"| {' | '.join(cells)} |"


def _measure(names: list[str], rounds: int, seconds: float, kind: str) -> dict[str, list[Round]]:
    found: dict[str, list[Round]] = {name: [] for name in names}
    with (
        tempfile.TemporaryDirectory(prefix="floods-") as directory,
        contextlib.ExitStack() as stack,
    ):
        own, other = (Target(Path(directory) / name, kind) for name in ("own", "other"))
        stack.callback(own.close)
        stack.callback(other.close)
        client = stack.enter_context(own.client())
        own.adds(client, seconds)
        for number in range(rounds):
            for name in names:
                one = _round(name, own, other, client, seconds)
                found[name].append(one)
                print(
                    f"{number} {name}: before {one.before}, beside {one.beside}, "
                    f"during {one.during}",
                    flush=True,
                )
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", help=f"of {', '.join(ATTACKS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--attack", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.attack:
        with ATTACKS[options.attack](*map(int, options.names)):
            print("begun", flush=True)
            sys.stdin.read()
        return
    names = options.names or list(ATTACKS)
    found: dict[str, list[Round]] = {}
    for kind in KINDS:
        some = [name for name in names if _kind_of(name) == kind]
        if some:
            found |= _measure(some, options.rounds, options.seconds, kind)
    print(
        "| hostile clients | p50, ms | p99, ms | CPU p50, ms | CPU p99, ms "
        "| memory, MiB | descriptors | log lines |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- |"
    )
    for name, rounds in found.items():
        print(_row(name, rounds))


if __name__ == "__main__":
    main()
