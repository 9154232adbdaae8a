"""The normal form of client addresses, and the groups that count as one client."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

PREFIX_BITS: Final = 64
"""Smallest IPv6 network of one machine or customer, which can use any address in it."""

ADDRESSES_KEPT: Final = 1024
"""Cached addresses: many connections come from few addresses, and parsing one takes 20 µs."""


def plain(host: str) -> str:
    """Return an address as people write it, also an IPv4 address of a dual-stack port."""
    try:
        mapped = IPv6Address(host).ipv4_mapped
    except ValueError:
        return host
    return host if mapped is None else str(mapped)


@lru_cache(maxsize=ADDRESSES_KEPT)
def group_of(host: str) -> str:
    """Return the group of an address: an IPv4 address itself, the network of an IPv6 address.

    Any other text is returned unchanged. A dual-stack port has IPv4 clients as
    ``::ffff:192.0.2.1``; each of these addresses is a group of its own.
    """
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, IPv4Address):
        return str(address)
    return _group_of_v6(address)


def _group_of_v6(address: IPv6Address) -> str:
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ip_network((address, PREFIX_BITS), strict=False))
