"""Which addresses count as one client's, where one client may have so many connections."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

PREFIX_BITS: Final = 64
"""What one machine, or one customer, has of IPv6 at least: it can take any address below."""


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
