"""Names of topics: what users write, and where Pulsar keeps things."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkclient.topic.names import (
    NO_PARTITION,
    TopicName,
    TopicNameError,
    decode,
    encode,
    parse_topic,
    topic_of_managed_ledger,
)


@pytest.mark.parametrize(
    ("text", "namespace", "local"),
    [
        ("orders", "public/default", "orders"),
        ("shop/eu/orders", "shop/eu", "orders"),
        ("persistent://shop/eu/orders", "shop/eu", "orders"),
        ("persistent://shop/eu/orders-partition-3", "shop/eu", "orders-partition-3"),
        ("persistent://shop/west/eu/orders", "shop/west/eu", "orders"),
        ("persistent://shop/west/eu/a/b", "shop/west/eu", "a/b"),
    ],
)
def test_names_are_understood_as_pulsar_does(text: str, namespace: str, local: str) -> None:
    assert parse_topic(text) == TopicName(namespace, local)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a/b",
        "persistent://orders",
        "persistent://a/b",
        "non-persistent://a/b/c",
        "a//c",
        "/a/b/",
    ],
)
def test_what_is_no_persistent_topic_is_refused(text: str) -> None:
    with pytest.raises(TopicNameError):
        parse_topic(text)


def test_a_topic_knows_its_nodes() -> None:
    topic = parse_topic("shop/eu/or ders~*é-partition-2")
    name = "or+ders%7E*%C3%A9-partition-2"
    assert topic.managed_ledger_path == f"/managed-ledgers/shop/eu/persistent/{name}"
    assert topic.schema_path == "/schemas/shop/eu/or+ders%7E*%C3%A9"
    whole = topic.partitioned
    assert whole.partitions_path == "/admin/partitioned-topics/shop/eu/persistent/or+ders%7E*%C3%A9"
    assert (topic.partition, whole.partition) == (2, NO_PARTITION)
    assert whole.partition_of(2) == topic


@pytest.mark.parametrize(
    "local", ["t-partition-", "t-partition-01", "-partition-1", "t-partition-x"]
)
def test_a_name_that_only_looks_like_a_partition_is_none(local: str) -> None:
    assert TopicName("a/b", local).partition == NO_PARTITION


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_a_managed_ledger_names_its_topic(local: str) -> None:
    assert decode(encode(local)) == local
    topic = TopicName("a/b", local)
    assert topic_of_managed_ledger(topic.managed_ledger) == topic


@pytest.mark.parametrize(
    "name", ["", "a/b/c", "a/b/non-persistent/c", "a/persistent/c", "a/b/persistent/c/d"]
)
def test_the_managed_ledger_of_something_else_names_none(name: str) -> None:
    assert topic_of_managed_ledger(name) is None
