"""Which addresses are one client's."""

from __future__ import annotations

import pytest

from bookied.server.limits.address_groups import group_of, plain


@pytest.mark.parametrize(
    ("host", "group"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("::ffff:c000:0201", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("", ""),
        ("/run/bookie.sock", "/run/bookie.sock"),
    ],
)
def test_an_ipv4_address_counts_alone_and_an_ipv6_address_with_its_network(
    host: str, group: str
) -> None:
    assert group_of(host) == group


@pytest.mark.parametrize(
    ("host", "written"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("", ""),
        ("somebody", "somebody"),
    ],
)
def test_an_ipv4_address_is_written_as_one(host: str, written: str) -> None:
    assert plain(host) == written
