"""How addresses of clients are written, and which of them count as one client's."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

PREFIX_BITS: Final = 64
"""What one machine, or one customer, has of IPv6 at least: it can take any address below."""

ADDRESSES_KEPT: Final = 1024
"""Connections come and go in numbers from few addresses; to parse one takes 20 µs."""


def plain(host: str) -> str:
    """Return an address as people write it: an IPv4 address is one on a port for both kinds too."""
    try:
        mapped = IPv6Address(host).ipv4_mapped
    except ValueError:
        return host
    return host if mapped is None else str(mapped)


@lru_cache(maxsize=ADDRESSES_KEPT)
def group_of(host: str) -> str:
    """Return an IPv4 address as it is, of an IPv6 address the network; anything else unchanged.

    A port that serves both has IPv4 clients as ``::ffff:192.0.2.1``; each of them counts alone.
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
