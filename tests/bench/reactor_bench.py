"""What the reactor's thread spends on an add or a read, without sockets, disks or other threads.

    python -m tests.bench.reactor_bench
    python -m tests.bench.reactor_bench --sizes 100,1024 --rounds 9

Frames made beforehand are handed to one connection as reads from a socket bring them; what it gives
to the journal and the entry log is thrown away, and every journal group is answered at once. So
the figure is the CPU time of parsing, the rules, the index, the write cache and the answers: it
needs no quiet machine, and the least of the rounds is what the code costs. Asserts nothing.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

from twisted.internet.testing import StringTransport

from bookied.server.limits.backpressure import READ_BYTES
from bookied.storage.ledger_storage.storage_limits import StorageLimits
from tests.bench.loads.load import Load, Ring
from tests.bookied.worlds.served_bookie import Client, Serving
from wire.codes import ProtocolVersion

LEDGER = 7


class NullTransport(StringTransport):
    """Takes answers and keeps none of them."""

    def write(self, data: bytes) -> None:
        pass

    def writeSequence(self, data: Any) -> None:  # noqa: N802
        b"".join(data)


class NullFile:
    """A journal that costs nothing."""

    readable_bytes = 0

    def __init__(self) -> None:
        self._size = 0

    def write(self, buffers: Any) -> None:
        self._size += sum(map(len, buffers))

    def tell(self) -> int:
        return 512

    def flush(self) -> None:
        pass

    def sync(self) -> None:
        pass

    def close(self) -> None:
        pass


class Bench:
    """One connection to a bookie that has nobody else to talk to."""

    def __init__(self, directory: Path, protocol: str, size: int, **bookie_settings: Any) -> None:
        limits = StorageLimits(dirty_pages_max=1 << 30, unwritten_bytes_max=1 << 60)
        self.serving = Serving(directory, storage_limits=limits, syncs=False, **bookie_settings)
        for journal in self.serving.journals:
            journal._file._file = NullFile()
        version = ProtocolVersion.V2 if protocol == "v2" else ProtocolVersion.V3
        self.client = Client(self.serving, version, NullTransport())
        self.ring = Ring(Load(protocol=protocol, size_bytes=size), LEDGER)
        # The first add takes the plain path, which creates the ledger.
        self.client.connection.dataReceived(bytes(self.ring.view[: self.ring.stride]))
        self.serving.sync()

    def adds(self, read_bytes: int, reads: int) -> float:
        """Return microseconds of CPU for an add. To be called once."""
        taken, spent_s = 0, 0.0
        for piece in islice(self._reads(read_bytes), reads):
            began_s = time.thread_time()
            self.client.connection.dataReceived(piece)
            self.serving.take_turns()
            spent_s += time.thread_time() - began_s
            groups = self.serving.journals[0]._queue.take_now()
            began_s = time.thread_time()
            self.serving.server.on_synced([group.done for group in groups])
            spent_s += time.thread_time() - began_s
            taken += sum(group.entries for group in groups)
            self._throw_away()
        return spent_s * 1e6 / taken

    def _reads(self, read_bytes: int) -> Iterator[bytes]:
        for round_no in count(0):
            self.ring.go_to(round_no)
            data = bytes(self.ring.view)
            yield from (data[at : at + read_bytes] for at in range(0, len(data), read_bytes))

    def _throw_away(self) -> None:
        log = self.serving.storage._log
        while log._commands:
            log._written_bytes += log._commands.popleft().size_bytes
        log.file.readable_until = self.serving.storage.adds._base


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", default="100,1024")
    parser.add_argument("--protocols", default="v2,v3")
    parser.add_argument("--read-bytes", type=int, default=READ_BYTES)
    parser.add_argument("--reads", type=int, default=800)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    for size in map(int, options.sizes.split(",")):
        for protocol in options.protocols.split(","):
            figures = []
            for _ in range(options.rounds):
                with tempfile.TemporaryDirectory(prefix="reactor-bench-") as directory:
                    bench = Bench(Path(directory), protocol, size)
                    figures.append(bench.adds(options.read_bytes, options.reads))
            print(
                f"add, {protocol}, {size} B: {min(figures):.2f} us "
                f"(of {options.rounds} rounds the least; the most {max(figures):.2f})",
                flush=True,
            )


if __name__ == "__main__":
    main()
