"""What is said of a connection that failed or ended."""

from __future__ import annotations

import errno

import pytest
from twisted.internet.error import (
    ConnectionDone,
    ConnectionLost,
    DNSLookupError,
    getConnectError,
)
from twisted.internet.error import (
    TimeoutError as ConnectTimeoutError,
)

from bkclient.connection.tcp import reason_of


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (getConnectError((errno.ECONNREFUSED, "Connection refused")), "connection refused"),
        (OSError(errno.EHOSTUNREACH, "x"), "no route to host"),
        (ConnectTimeoutError(), "no answer in time"),
        (ConnectionDone(), "the bookie closed it"),
        (ConnectionLost(), "it broke off"),
        (DNSLookupError("no such host: bk1"), "DNS lookup failed: no such host: bk1"),
        (ValueError("odd"), "odd"),
    ],
)
def test_the_reason_is_short_and_in_the_systems_words(error: Exception, said: str) -> None:
    assert reason_of(error) == said
