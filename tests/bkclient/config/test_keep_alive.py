"""Times that the system takes, and those it does not."""

from __future__ import annotations

import socket

import pytest

from bkclient.config.shared import KeepAlive


@pytest.mark.skipif(not hasattr(socket, "TCP_KEEPIDLE"), reason="the system has other names")
@pytest.mark.parametrize("idle_s", [2**31 - 1, 2**40])
def test_what_the_system_refuses_is_left_to_it_and_the_rest_is_set(idle_s: int) -> None:
    """Linux takes nine hours at most; a connection that is not used for that would never come."""
    with socket.socket() as sock:
        before = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
        KeepAlive(idle_s=idle_s, interval_s=7).apply(sock)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == before
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) == 7
