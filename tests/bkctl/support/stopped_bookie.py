"""A stopped bookie that has never run, in a cluster of its own: its settings are the test's."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import attrs

from bkclient.blocking import with_store
from bkctl.cli.root import cli
from bkctl.commands.local.ports import free_port
from tests.bkctl.support.runner import Result
from tests.bkctl.support.terminal import FakeHost
from wire.ids import BookieId
from wire.records.cookie import decode_cookie


@attrs.define
class Bookie:
    """A new bookie that has never run, in a cluster of its own."""

    base: Path
    port: int
    settings: dict[str, str]

    @property
    def uri(self) -> str:
        return f"sqlite://{self.base}/metadata.db"

    @property
    def old(self) -> BookieId:
        return BookieId(f"127.0.0.1:{self.port}")

    def run(
        self, *words: object, typed: str = "", tty: bool = False, ok: bool = True, **more: Any
    ) -> Result:
        conf = self.base / "bk.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in self.settings.items()))
        fake = FakeHost(typed, tty=tty, environ={"PAGER": ""}, sees_processes=False, **more)
        with closing(fake) as host:
            status = cli.run([*map(str, words), "-c", str(conf)], host)
        result = Result(status, host.out.data.decode(), host.err.text)
        assert not ok or status == 0, (words, result)
        return result

    def store(self, function: Any) -> Any:
        return with_store(self.uri, function)

    def versions(self) -> set[str]:
        """Return the ids in the VERSION files."""
        return {decode_cookie(path.read_bytes()).bookie_id for path in self.base.rglob("VERSION")}

    def cookies(self) -> set[str]:
        async def known(store: Any) -> Any:
            return await store.known_bookies()

        return set(self.store(known))


def new_bookie(tmp_path: Path) -> Bookie:
    """Make a cluster, and the directories and cookie of a bookie in it."""
    port = free_port()
    made = Bookie(tmp_path, port, {})
    made.settings = {
        "metadataServiceUri": made.uri,
        "bookiePort": str(port),
        "advertisedAddress": "127.0.0.1",
        "allowLoopback": "true",
        "journalDirectories": f"{tmp_path}/journal",
        "ledgerDirectories": f"{tmp_path}/ledgers",
    }
    made.run("cluster", "init")
    made.run("disk", "init", "--write")
    return made
