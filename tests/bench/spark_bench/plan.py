"""What planning very many ledgers takes: time, CPU and memory, of the source and of the export.

    python -m tests.bench.spark_bench.plan [--ledgers 100000] [--stores zookeeper,sqlite,memory]

Metadata of closed ledgers is made as for ``audit_bench``; no bookie runs. A process of its own
then plans a query of all closed ledgers, as Spark's driver does, pickles what the tasks get, and
compares the plan with a directory that is empty, as an export does. "before" is the memory of that
process once it is connected: Python and its modules. In the store ``memory`` the metadata is a part
of that, and nothing takes a round trip. Prints, asserts nothing.
"""

from __future__ import annotations

import argparse
import pickle
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any, Final

from bkclient.admin import cluster_operations
from bkclient.blocking import BlockingClient, with_store
from bkclient.metadata import zk_paths
from bkclient.metadata.tree.nodes import NodeExistsError
from bkctl.commands.export.spark.chosen_ledgers import chosen_ledgers
from bkctl.commands.export.spark.source_options import parse_options
from bkctl.commands.export.target.manifest import TargetTree
from bkctl.commands.export.target.new_since_last import find_changes, in_order
from bkctl.commands.export.task.partitions import LedgerExtent, cut
from tests.bench.audit_bench import STORES, closed_metadata, make_ledgers
from tests.bench.loads.load import peak_rss_bytes, rss_bytes
from tests.bkclient.worlds import World
from tests.bkctl.support.world import WorldClient
from wire.ids import LedgerId
from wire.ledger_metadata import encode_metadata

PARTITION_BYTES: Final = 128 << 20
MEMORY: Final = "memory"
COMMAND: Final = [sys.executable, "-m", "tests.bench.spark_bench.plan", "--plan"]


def main() -> int:
    """Measure and print; with ``--plan``, be the process that is measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ledgers", type=int, default=100_000)
    parser.add_argument("--stores", default="zookeeper,sqlite")
    parser.add_argument("--plan", metavar="URI", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.plan == MEMORY:
        _plan(_in_memory(args.ledgers))
        return 0
    if args.plan:
        with BlockingClient(args.plan) as client:
            _plan(client)
        return 0
    for name in args.stores.split(","):
        if name == MEMORY:
            print(f"{name}: {args.ledgers:,} ledgers", flush=True)
            subprocess.run([*COMMAND, MEMORY, "--ledgers", str(args.ledgers)], check=True)
            continue
        with STORES[name]() as uri:
            with_store(uri, cluster_operations.init_cluster)
            with BlockingClient(uri) as client:
                began_s = time.perf_counter()
                client.call(make_ledgers, args.ledgers)
                took_s = time.perf_counter() - began_s
                print(f"{name}: {args.ledgers:,} ledgers made in {took_s:.0f} s", flush=True)
            subprocess.run([*COMMAND, uri], check=True)
    return 0


def _in_memory(ledgers: int) -> WorldClient:
    """Return a client of a cluster in this process that has so many ledgers."""
    world = World(0)
    for number in range(1, ledgers + 1):
        path = zk_paths.LAYOUTS["hierarchical"].path_of(LedgerId(number))
        parents = [path[:at] for at, sign in enumerate(path) if sign == "/" and at]
        for parent in parents:
            with suppress(NodeExistsError):
                world.metadata.create(parent, b"")
        world.metadata.create(path, encode_metadata(closed_metadata(number)))
    return WorldClient(world)


def _plan(client: BlockingClient | WorldClient) -> None:
    options = parse_options({"uri": "zk://not/asked", "state": "closed"})
    before, step = rss_bytes("self"), _Step()
    extents: list[LedgerExtent] = client.call(chosen_ledgers, options)
    step.say(f"{len(extents):,} ledgers read")
    tasks = cut(extents, 1, target_bytes=PARTITION_BYTES)
    step.say(f"{len(tasks):,} tasks cut")
    size = sum(len(pickle.dumps(task)) for task in tasks)
    step.say(f"{size / 2**20:.1f} MB pickled")
    change = find_changes(TargetTree(), extents, {}, again=False)
    in_order("none", change.todo)
    step.say(f"{len(change.todo):,} ledgers to copy")
    print(
        f"memory: {before / 2**20:.0f} MB before, at most {peak_rss_bytes('self') / 2**20:.0f} MB"
    )


class _Step:
    """Time and CPU since the last step."""

    def __init__(self) -> None:
        self._at = self._now()

    def _now(self) -> tuple[float, float]:
        return time.perf_counter(), time.process_time()

    def say(self, what: Any) -> None:
        now = self._now()
        wall_s, cpu_s = (end - begin for begin, end in zip(self._at, now, strict=True))
        print(f"{what}: {wall_s:.1f} s, CPU {cpu_s:.1f} s", flush=True)
        self._at = now


if __name__ == "__main__":
    sys.exit(main())
