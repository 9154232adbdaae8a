"""Service URIs, and what importing the package costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bkclient.errors import IncorrectParameterError
from bkclient.metadata import open_metadata
from bkclient.metadata.zookeeper import parse_uri


@pytest.mark.parametrize(
    ("uri", "hosts", "root", "layout"),
    [
        ("zk+hierarchical://h1:2181/ledgers", "h1:2181", "/ledgers", "hierarchical"),
        ("zk+hierarchical://h1:1;h2:2/a/b", "h1:1,h2:2", "/a/b", "hierarchical"),
        ("ZK+LongHierarchical://h1/x/", "h1:2181", "/x", "longhierarchical"),
        ("zk+flat://10.0.0.1:2181,10.0.0.2/l", "10.0.0.1:2181,10.0.0.2:2181", "/l", "flat"),
        ("zk+null://[::1]:2182/ledgers", "[::1]:2182", "/ledgers", None),
        ("zk://localhost/ledgers", "localhost:2181", "/ledgers", None),
    ],
)
def test_a_zookeeper_uri_is_taken_apart(
    uri: str, hosts: str, root: str, layout: str | None
) -> None:
    parsed = parse_uri(uri)
    assert (parsed.hosts, parsed.root, parsed.layout, parsed.text) == (hosts, root, layout, uri)


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "ledgers",
        "http://localhost/ledgers",
        "etcd://localhost/ledgers",
        "zk+hierarchical://localhost:2181",
        "zk+hierarchical://localhost:2181/",
        "zk+hierarchical:///ledgers",
        "zk+hierarchical://h1;;h2/ledgers",
        "zk+hierarchical://h1:port/ledgers",
        "zk+hierarchical://h1:99999/ledgers",
        "zk+hierarchical://user@h1/ledgers",
        "zk+hierarchical://h1//ledgers",
        "zk+hierarchical:h1/ledgers",
        "zk+ms://h1/ledgers",
        "zk+legacyhierarchical://h1/ledgers",
        "zk+hierarchial://h1/ledgers",
        "sqlite:",
    ],
)
def test_what_cannot_be_understood_is_a_bad_argument(uri: str) -> None:
    with pytest.raises(IncorrectParameterError) as caught:
        open_metadata(uri, reactor=object())
    assert caught.value.exit_status == 2
    assert uri in str(caught.value)


def test_importing_the_package_imports_no_driver() -> None:
    code = (
        "import sys, bkclient.metadata\n"
        "print([m for m in ('kazoo', 'sqlite3', 'twisted', 'google.protobuf') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_kazoo_and_the_reactor_are_not_imported_before_they_are_needed() -> None:
    code = (
        "import sys, bkclient.metadata.zookeeper, bkclient.metadata.sqlite.store\n"
        "print([m for m in ('kazoo', 'twisted.internet.reactor') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
