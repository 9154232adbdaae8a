"""When a command has printed its answer, it asks the metadata service for nothing more."""

from __future__ import annotations

import pytest

from bkctl.cli.root import cli
from tests.bkclient.worlds import World
from tests.bkctl.support.world import WorldHost, run_in
from tests.support.memory_zookeeper import Fault, TreeOperation

COMMANDS = (
    "ledger create",
    "ledger add 0 hello",
    "ledger write /dev/null",
    "ledger read 1",
    "ledger show 0",
    "ledger close 0",
    "ledger fence 0 --yes",
    "ledger recover 0 --yes",
    "ledger list",
    "ledger list --count",
    "ledger verify 1",
    "ledger map 1",
    "bookie list",
    "bookie show b1",
    "cluster id",
    "cluster status",
    "cluster ping",
    "cluster map",
    "cluster test",
    "cluster health-check",
    "autorecovery status",
    "autorecovery list -o json",
    "autorecovery active -o json",
    "log create events",
    "log list -o json",
    "cookie list -o json",
    "doctor",
)


@pytest.mark.parametrize("line", COMMANDS)
def test_no_metadata_is_read_after_the_answer(line: str) -> None:
    world = World(3)
    run_in(world, "ledger", "create", "-E", "3", "-W", "2", "-A", "2")
    run_in(
        world,
        "ledger",
        "write",
        "-",
        "--lines",
        "-E",
        "3",
        "-W",
        "2",
        "-A",
        "2",
        typed="an entry\n",
    )
    host = WorldHost(world, "", tty=False)
    operations: list[tuple[int, TreeOperation]] = []

    def seen(operation: TreeOperation) -> Fault:
        operations.append((len(host.out.data), operation))
        return Fault.NONE

    world.metadata.faults = seen
    status = cli.run(["-u", "sqlite:///not/opened.db", *line.split()], host)
    answer = host.out.data
    assert answer, (status, host.err.text)
    assert operations, "the cluster was not asked"
    assert [operation for at, operation in operations if at == len(answer)] == []
