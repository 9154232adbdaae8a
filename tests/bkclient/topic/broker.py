"""A cluster in memory with topics in it, as a broker would have written them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bkclient.client import Client
from bkclient.topic.managed_ledger import MessageId
from bkclient.topic.messages import TopicMessage
from bkclient.topic.names import TopicName, parse_topic
from bkclient.topic.reader import TopicReader
from tests.bkclient.topic.entries import managed_ledger
from tests.bkclient.worlds import World
from wire.messages import BatchReadRequest, ReadRequest

TOPIC = parse_topic("shop/eu/orders")


class Broker:
    """A world with topics in it."""

    def __init__(self) -> None:
        self.world = World()
        self.client: Client = self.world.client()
        self.ledgers: list[int] = []

    def ledger(self, *entries: bytes, is_open: bool = False) -> int:
        """Write a ledger; one that is open has its last entry unconfirmed."""

        async def write() -> int:
            writer = await self.client.create_ledger(ack_quorum=2)
            for one in entries:
                await writer.add(one)
            if not is_open:
                await writer.close()
            return writer.ledger_id

        return self.world.run(write())

    def topic(
        self, *ledgers: Sequence[bytes], topic: TopicName = TOPIC, is_open: bool = False
    ) -> None:
        """Make a topic of ledgers with these entries; the last one may be open."""
        self.ledgers = [
            self.ledger(*entries, is_open=is_open and number == len(ledgers) - 1)
            for number, entries in enumerate(ledgers)
        ]
        self.list_ledgers(*self.ledgers, topic=topic)

    def list_ledgers(self, *ledgers: int, topic: TopicName = TOPIC) -> None:
        self.put(topic.managed_ledger_path, managed_ledger(*({"ledgerId": one} for one in ledgers)))

    def put(self, path: str, value: bytes) -> None:
        tree, at = self.world.metadata, ".."
        for name in path.split("/")[1:]:
            at += f"/{name}"
            if tree.stat(at) is None:
                tree.create(at, b"")
        tree.set(at, value)

    def read(self, topic: TopicName = TOPIC, **how: Any) -> list[TopicMessage]:
        return self.read_with(TopicReader(self.client, topic, **how))

    def read_with(self, reader: TopicReader) -> list[TopicMessage]:
        async def read() -> list[TopicMessage]:
            return [one async for messages in reader.read() for one in messages]

        return self.world.run(read())

    def read_ledgers(self) -> set[int]:
        """Return the ledgers whose entries bookies were asked for."""
        return {
            request.ledger_id
            for bookie in self.world.bookies.values()
            for request in bookie.log
            if isinstance(request, ReadRequest | BatchReadRequest) and request.entry_id >= 0
        }

    def at(self, ledger: int, entry_id: int, batch_index: int = -1) -> MessageId:
        return MessageId(self.ledgers[ledger], entry_id, batch_index)
