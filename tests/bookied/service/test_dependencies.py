"""What a bookie's own clients are told of the machine."""

from __future__ import annotations

from typing import Any

import pytest

from bkclient.config.client import ClientConfig
from bookied.service.dependencies import (
    host_to_read_near,
)
from tests.bookied.worlds.fakes import FakeHost

NEAR: dict[str, Any] = {
    "placement_policy": "org.apache.bookkeeper.client.RegionAwareEnsemblePlacementPolicy",
    "topology_script": "/opt/racks.sh",
}


@pytest.mark.parametrize(
    ("settings", "by_name", "told"),
    [
        ({}, False, True),
        ({}, True, True),
        ({"ignore_local_node": True}, False, False),
        ({"topology_script": None}, False, False),
        ({"placement_policy": "RackawareEnsemblePlacementPolicy"}, False, False),
    ],
)
def test_repairs_read_from_near_bookies_where_regions_are_known(
    settings: dict[str, Any], *, by_name: bool, told: bool
) -> None:
    host = FakeHost()
    config = ClientConfig(**NEAR | settings, use_hostname_for_local_node=by_name)
    address = host.address(None)
    expected = host.canonical_name(address) if by_name else address
    assert host_to_read_near(config, host) == (expected if told else None)


def test_a_host_without_an_address_reads_as_any_other() -> None:
    class Nowhere(FakeHost):
        def address(self, interface: str | None) -> str:
            raise OSError("no address")

    assert host_to_read_near(ClientConfig(**NEAR), Nowhere()) is None
