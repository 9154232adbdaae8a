"""What commands show that only look at the metadata, and what they do not need for that."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from bkclient.metadata.versions_and_watches import NEW
from bkctl.cli.root import cli
from bkctl.errors import Interrupted
from bkctl.exit_status import ExitStatus
from bkctl.global_options import OUTPUTS
from tests.bkclient.metadata.values import B1, B2, B3, closed, info, metadata
from tests.bkclient.metadata.zookeeper_reader.memory_server import GET_DATA, NO_AUTH, SYNC, Server
from tests.bkclient.metadata.zookeeper_reader.store_and_server import ROOT, Both
from tests.bkctl.support.imports import run_without
from tests.bkctl.support.metadata_reader_host import NAMES, URI, MetadataReaderHost, cluster
from tests.bkctl.support.terminal import FakeHost
from wire.ids import LedgerId

HEAVY = ("twisted", "zope", "kazoo", "OpenSSL", "cryptography",
         "pyarrow", "pyspark", "rich", "prompt_toolkit", "asyncio", "sqlite3", "bookied",
         "bkclient.client", "bkclient.blocking", "bkclient.admin")  # fmt: skip
LOOKS = (
    ["ledger", "list"],
    ["ledger", "list", "-o", "id"],
    ["ledger", "list", "-o", "jsonl", "--state", "open"],
    ["ledger", "list", "--count"],
    ["bookie", "list", "--no-ask"],
    ["bookie", "list", "-o", "id"],
)


def run(server: Server, *words: str, status: int = 0, tty: bool = False) -> MetadataReaderHost:
    host = MetadataReaderHost(server, tty=tty)
    assert cli.run(["-u", URI, *words], host) == status, host.err.text
    assert all(connection.closed for connection in server.connections)
    return host


def ids(host: MetadataReaderHost) -> list[int]:
    return list(map(int, host.out.text.split()))


@pytest.mark.parametrize("words", LOOKS, ids=" ".join)
def test_a_look_at_zookeeper_imports_no_reactor_and_no_driver(words: list[str]) -> None:
    run_without(
        HEAVY,
        "from tests.bkctl.support.metadata_reader_host import MetadataReaderHost, URI, cluster\n"
        "from bkctl.cli.root import cli; host = MetadataReaderHost(cluster())\n"
        f"status = cli.run(['-u', URI, *{words!r}], host) or not host.out.text",
    )


class StoreClient:
    """What ``BlockingClient`` is, on a store in memory."""

    def __init__(self, both: Both) -> None:
        self._both, self._client = both, SimpleNamespace(store=both.store)

    def call(self, function: Any, *args: Any) -> Any:
        return self._both.do(function(self._client, *args))

    def iterate(self, make: Any) -> Any:
        async def all_of_it() -> list[Any]:
            return [value async for value in make(self._client)]

        yield from self._both.do(all_of_it())

    def close(self) -> None:
        """Leave the store as it is."""


class ClientHost(FakeHost):
    """A host that has only a client to look through."""

    def __init__(self, both: Both) -> None:
        super().__init__(environ={"PAGER": ""})
        self._client: Any = StoreClient(both)

    def metadata_reader(self, _uri: str, _config: object) -> None:
        return None

    def client(self, _uri: str, _config: object) -> Any:
        return self._client


@pytest.fixture(scope="module")
def both() -> Both:
    found = Both.of()

    async def fill() -> None:
        for number in range(1, 600):
            await found.store.create_ledger(LedgerId(number), metadata())
        for number in (2**31 + 5, 2**40, 2**62):
            await found.store.create_ledger(LedgerId(number), closed(last=number % 100))
        await found.store.register(B1, info(B1), read_only=False)
        await found.store.register(B2, info(B2), read_only=True)
        await found.store.write_cookie(B3, b"", NEW)

    found.do(fill())
    return found


@pytest.mark.parametrize("form", OUTPUTS)
@pytest.mark.parametrize(
    "words",
    [
        ["ledger", "list"],
        ["ledger", "list", "--state", "closed", "--limit", "2"],
        ["ledger", "list", "--after", "597", "--limit", "3", "--sort-by", "ledger_id:desc"],
        ["ledger", "list", "--filter", "state=closed", "--no-headers"],
        ["bookie", "list", "--no-ask"],
    ],
    ids=" ".join,
)
def test_a_look_shows_what_the_client_shows(words: list[str], form: str, both: Both) -> None:
    looked, asked = MetadataReaderHost(both.server()), ClientHost(both)
    for host in (looked, asked):
        uri = f"zk+hierarchical://host:1{ROOT}"
        assert cli.run(["-u", uri, *words, "-o", form], host) == 0, host.err.text
    assert looked.out.text == asked.out.text
    assert looked.err.text == asked.err.text
    assert looked.out.text.count("\n") >= 2


def test_a_limit_reads_no_more_than_it_shows() -> None:
    server = cluster(300)
    host = run(server, "ledger", "list", "--limit", "3")
    assert [line.split()[0] for line in host.out.text.splitlines()] == ["LEDGER", "1", "2", "3"]
    assert sum("/L0" in path for operation, path in server.asked if operation == GET_DATA) == 3


def test_ids_and_counts_read_no_metadata() -> None:
    server = cluster(30)
    assert ids(run(server, "ledger", "list", "-o", "id")) == list(range(1, 31))
    assert run(server, "ledger", "list", "--count", "-o", "id").out.text == "30\n"
    assert not [path for operation, path in server.asked if operation == GET_DATA and "/L0" in path]


def test_rows_appear_while_the_rest_is_still_to_be_read() -> None:
    server, seen = cluster(3000), []

    def look(operation: int, path: str) -> None:
        if operation == GET_DATA and path.endswith("L2999"):
            seen.append(host.out.text.count("\n"))

    server.before = look
    host = MetadataReaderHost(server)
    assert cli.run(["-u", URI, "ledger", "list"], host) == 0
    assert host.out.text.count("\n") == 3001
    assert seen[0] > 1000


def test_a_list_goes_on_where_a_connection_broke_and_has_each_ledger_once() -> None:
    server = cluster(1000)
    server.cuts = [2, 3, 150, 400]
    host = run(server, "ledger", "list", "-o", "jsonl")
    listed = [json.loads(line)["ledger_id"] for line in host.out.text.splitlines()]
    assert listed == list(map(str, range(1, 1001)))
    assert len(server.connections) == 5


def test_metadata_that_cannot_be_read_is_warned_of_and_its_ledger_is_listed() -> None:
    server = cluster(3)
    server.nodes["/ledgers/00/0000/L0002"] = b"damaged"
    server.nodes["/ledgers/00/0000/notes"] = b""
    host = run(server, "ledger", "list", "--columns", "ledger_id,state")
    assert [line.split() for line in host.out.text.splitlines()[1:]] == [
        ["1", "closed"], ["2", "-"], ["3", "open"],
    ]  # fmt: skip
    assert "bkctl: warning: ledger 2: its metadata cannot be read" in host.err.text
    assert "bkctl: warning: ignored /00/0000/notes: the node is not a ledger" in host.err.text
    assert "notes" not in run(server, "ledger", "list", "--quiet").err.text
    assert ids(run(server, "ledger", "list", "--state", "closed", "-o", "id")) == [1]


def test_a_ledger_that_may_not_be_read_is_listed() -> None:
    server = cluster(3)
    server.wrong = {"/ledgers/00/0000/L0002": NO_AUTH}
    assert ids(run(server, "ledger", "list", "-o", "id")) == [1, 2, 3]


def test_what_may_not_be_seen_is_an_error_and_no_shorter_list() -> None:
    server = cluster(3)
    server.wrong = {"/ledgers/00/0000": NO_AUTH}
    host = run(server, "ledger", "list", status=ExitStatus.REFUSED)
    assert "/ledgers/00/0000: access denied by the ACL of the node" in host.err.text


def test_nobody_at_home_is_unreachable() -> None:
    server = cluster()
    server.cuts = [0] * 100
    host = run(server, "bookie", "list", "--no-ask", status=ExitStatus.UNREACHABLE)
    assert "host:1/ledgers" in host.err.text


def test_a_look_reminds_of_autorecovery_that_is_off() -> None:
    server = cluster()
    server.nodes["/ledgers/underreplication/disable"] = b'{"reason": "moving house"}'
    host = run(server, "ledger", "list")
    assert "autorecovery is disabled (moving house)" in host.err.text
    assert run(server, "ledger", "list", "--quiet").err.text == ""


def test_a_shell_reminds_of_a_pause_once() -> None:
    server = cluster()
    host = MetadataReaderHost(server)

    def said(reason: bytes) -> bool:
        server.nodes["/ledgers/underreplication/disable"] = b'{"reason": "' + reason + b'"}'
        before = len(host.err.text)
        assert cli.run(["-u", URI, "ledger", "list"], host) == ExitStatus.DONE
        return "disabled" in host.err.text[before:]

    assert [said(reason) for reason in (b"a", b"a", b"b")] == [True, False, True]


def test_bookies_are_listed_by_state() -> None:
    host = run(cluster(), "bookie", "list", "--no-ask", "-o", "jsonl")
    rows = [json.loads(line) for line in host.out.text.splitlines()]
    assert [(row["bookie_id"], row["state"], row["address"]) for row in rows] == [
        (NAMES[0], "writable", NAMES[0]), (NAMES[1], "read-only", NAMES[1]),
        (NAMES[2], "down", None), (NAMES[3], "down", None),
    ]  # fmt: skip
    host = run(cluster(), "bookie", "list", "--state", "ro", "-o", "id")
    assert host.out.text == f"{NAMES[1]}\n"


class Ending(MetadataReaderHost):
    """A host on which something happens between the first round and the second, the last."""

    def __init__(self, server: Server, happens: Callable[[], object]) -> None:
        super().__init__(server)
        self._happens: list[Callable[[], object]] = [happens]

    def sleep(self, _seconds: float) -> None:
        if not self._happens:
            raise Interrupted("time limit reached", ExitStatus.TIME_LIMIT)
        self._happens.pop()()


def test_each_round_is_brought_up_to_date_before_it_is_read() -> None:
    server = cluster(1)
    host = Ending(server, server.asked.clear)
    words = ["-u", URI, "bookie", "list", "--no-ask", "--watch"]
    assert cli.run(words, host) == ExitStatus.TIME_LIMIT
    operations = [operation for operation, _ in server.asked]
    assert operations.count(SYNC) == 1
    assert operations[0] == SYNC
