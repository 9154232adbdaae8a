"""What a stream of ``spark_kills`` writes: a log, Parquet files, or a Delta table."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import pyarrow.parquet as pq

from bkclient.blocking import BlockingClient
from bkclient.client import Client
from bkclient.log import EARLIEST, LogManager, LogOptions
from tests.live.bkctl.spark_kills_sources import create_log


class LogSink:
    """A log as the sink."""

    format: Final = "bookkeeper"

    def __init__(self, client: BlockingClient, uri: str, options: LogOptions) -> None:
        self._client = client
        self.options: Mapping[str, str] = {"uri": uri, "log": "to"}
        client.call(create_log, self.options["log"], options)

    def rows(self) -> list[bytes]:
        return self._client.call(read_log, self.options["log"])


class ParquetSink:
    """A directory of Parquet files, of which those count that Spark's record of batches names."""

    format: str = "parquet"

    def __init__(self, directory: Path) -> None:
        self.options: Mapping[str, str] = {"path": str(directory)}
        self._records = directory / "_spark_metadata"
        self._read: dict[str, list[bytes]] = {}

    def rows(self) -> list[bytes]:
        """Return the rows in the order of batches and tasks, each as a log would have it."""
        return [row for path in self._paths() for row in self._rows_in(path)]

    def _paths(self) -> list[str]:
        """Return the files of all batches; a compact record has those of all before it, too."""
        records = {int(path.name.partition(".")[0]): path for path in self._records.glob("[0-9]*")}
        first = max((n for n, path in records.items() if path.suffix == ".compact"), default=0)
        lines = [
            line
            for number in sorted(records)
            if number >= first
            for line in records[number].read_text().splitlines()[1:]
        ]
        return [unquote(urlsplit(json.loads(line)["path"]).path) for line in lines]

    def _rows_in(self, path: str) -> list[bytes]:
        if path not in self._read:
            self._read[path] = [_entry_of(row) for row in pq.read_table(path).to_pylist()]
        return self._read[path]


class DeltaSink(ParquetSink):
    """A Delta table that nobody else changes, with one version for each batch."""

    format = "delta"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._directory = directory

    def _paths(self) -> list[str]:
        lines = [
            line
            for version in sorted(self._directory.glob("_delta_log/*.json"))
            for line in version.read_text().splitlines()
        ]
        added = [action["add"]["path"] for action in map(json.loads, lines) if "add" in action]
        return [str(self._directory / unquote(path)) for path in added]


def _entry_of(row: dict[str, Any]) -> bytes:
    if len(row) == 1:
        (payload,) = row.values()
        return bytes(payload)
    return json.dumps(row, default=lambda value: base64.b64encode(value).decode()).encode()


async def read_log(client: Client, name: str) -> list[bytes]:
    reader = await LogManager(client).open_reader(name, EARLIEST, follow=False)
    return [payload async for _position, payload in reader]
