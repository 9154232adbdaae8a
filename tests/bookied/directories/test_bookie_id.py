"""Under which id a bookie is known, by configuration and by what its host is called."""

from __future__ import annotations

import pytest

from bkclient.config.properties import parse_properties
from bkclient.config.settings import load
from bookied.config.bookie import BookieConfig
from bookied.directories.bookie_id import RealHost, identify, listen_host
from bookied.errors import AddressError, BookieExitStatus
from tests.bookied.worlds.fakes import FakeHost


def identity(text: str, host=None):
    config, _ = load(BookieConfig, parse_properties(f"metadataServiceUri=sqlite:///x\n{text}"))
    return identify(config, 3181, host or FakeHost())


@pytest.mark.parametrize(
    ("text", "bookie_id", "host"),
    [
        ("", "192.0.2.1:3181", "192.0.2.1"),
        ("listeningInterface=eth1", "192.0.2.2:3181", "192.0.2.2"),
        ("useHostNameAsBookieID=true", "bookie7.example.org:3181", "bookie7.example.org"),
        ("useHostNameAsBookieID=true\nuseShortHostName=true", "bookie7:3181", "bookie7"),
        ("advertisedAddress= bookie7 ", "bookie7:3181", "bookie7"),
        ("bookieId=b-7", "b-7", "192.0.2.1"),
        ("bookieId=b-7\nadvertisedAddress=bookie7", "b-7", "bookie7"),
        ("advertisedAddress=loop\nallowLoopback=true", "loop:3181", "loop"),
    ],
)
def test_the_id_is_the_one_java_would_take(text: str, bookie_id: str, host: str) -> None:
    found = identity(text)
    assert (found.bookie_id, found.host) == (bookie_id, host)


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("", {"192.0.2.1:3181", "bookie7.example.org:3181"}),
        (
            "advertisedAddress=bookie7",
            {"bookie7:3181", "192.0.2.1:3181", "bookie7.example.org:3181"},
        ),
        ("bookieId=b-7", {"b-7"}),
    ],
)
def test_every_id_it_could_have_had_is_looked_up(text: str, ids: set[str]) -> None:
    assert set(identity(text).possible_ids) == ids


def test_a_host_without_a_name_has_one_possible_id_less() -> None:
    assert identity("", FakeHost(name="")).possible_ids == ("192.0.2.1:3181",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("advertisedAddress=loop", "loop is a loopback address, which no other machine can reach"),
        ("advertisedAddress=nowhere", "nowhere has no address"),
        ("listeningInterface=eth9", "interface eth9 has no address"),
        ("bookieId=a b", "'a b' is not a bookie id"),
        ("bookieId=ReadOnly", "'ReadOnly' is not a bookie id"),
    ],
)
def test_an_address_that_cannot_serve_is_a_configuration_error(text: str, message: str) -> None:
    with pytest.raises(AddressError, match=message) as caught:
        identity(text)
    assert caught.value.exit_status == BookieExitStatus.INVALID_CONFIGURATION


def test_a_host_name_that_does_not_exist_cannot_be_the_id() -> None:
    with pytest.raises(AddressError, match=r"192\.0\.2\.1 has no host name"):
        identity("useHostNameAsBookieID=true", FakeHost(name=""))


def test_all_addresses_are_listened_on_unless_an_interface_is_named() -> None:
    assert listen_host(BookieConfig(), FakeHost()) == ""
    assert listen_host(BookieConfig(listening_interface="eth1"), FakeHost()) == "192.0.2.2"


def test_the_loopback_interface_of_this_machine_has_its_address() -> None:
    config = BookieConfig(listening_interface="lo")
    assert listen_host(config, RealHost()) == "127.0.0.1"
    config = BookieConfig(listening_interface="127.0.0.2")
    assert listen_host(config, RealHost()) == "127.0.0.2"
