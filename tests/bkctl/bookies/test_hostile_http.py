"""bkctl asks HTTP servers that answer without end, by the byte, or what no bookie answers."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator

import pytest

from bkclient.errors import BookieUnavailableError
from bkctl.bookies import load_rates
from bkctl.bookies.http import bookie_state, garbage
from bkctl.bookies.http.admin_client import REASON_CHARS_MAX, AdminAnswer, AdminClient
from bkctl.bookies.http.bookie_metrics import parse_sample
from bkctl.errors import CommandError
from wire.ids import BookieId

LONG_S = 60.0
B1 = BookieId("b1:3181")
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


@contextlib.contextmanager
def server(begin: bytes, again: bytes = b"") -> Iterator[int]:
    """Answer one request with ``begin``, and then with ``again`` until the client has gone."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with contextlib.suppress(OSError), listening.accept()[0] as sock:
                sock.recv(65536)
                sock.sendall(begin)
                while again:
                    sock.sendall(again)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            thread.join()


ENDLESS = {
    "body": (OK + b"Connection: close\r\n\r\n", b"x" * 65536, "more than 67108864 bytes"),
    "headers": (OK, b"X: y\r\n" * 1000, "more than 100 headers"),
    "header": (OK + b"X: ", b"y" * 65536, "more than 65536 bytes"),
    "negative chunk": (CHUNKED + b"-1\r\n", b"x" * 65536, "no HTTP"),
    "interim answers": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100, "timed out"),
    "trailers": (CHUNKED + b"2\r\n{}\r\n0\r\n", b"X: y\r\n" * 1000, "timed out"),
    "small chunks": (CHUNKED, b"1\r\nx\r\n", "timed out"),
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_an_answer_without_end_ends_the_request(kind: str) -> None:
    begin, again, why = ENDLESS[kind]
    with server(begin, again) as port:
        client = AdminClient("127.0.0.1", port, timeout_s=0.3 if why == "timed out" else LONG_S)
        with pytest.raises(BookieUnavailableError, match=why):
            client.request("GET", "/metrics")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "closed the connection without a response; is it the bookie's own port, or HTTPS"),
        (b"\x15\x03\x03\0\x02\x02\x46", "the server speaks TLS; try --http https://HOST:PORT"),
        (b"220 mail.example\r\n", "the server does not speak HTTP: '220 mail.example"),
    ],
)
def test_a_port_that_does_not_speak_http_is_named(answer: bytes, why: str) -> None:
    with server(answer) as port, pytest.raises(BookieUnavailableError, match=why):
        AdminClient("127.0.0.1", port, timeout_s=LONG_S).request("GET", "/metrics")


@pytest.mark.parametrize("length", [b"100", b"1000000000000", b"1" + b"0" * 20])
def test_a_body_shorter_than_its_length_is_no_answer(length: bytes) -> None:
    answer = OK + b"Content-Length: " + length + b"\r\n\r\n{}"
    with server(answer) as port, pytest.raises(BookieUnavailableError, match="too early"):
        AdminClient("127.0.0.1", port, timeout_s=LONG_S).request("GET", "/metrics")


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"Content-Length: 2\r\n\r\n{}",
        OK + b"Connection: close\r\n\r\n{}",
        CHUNKED + b"1\r\n{\r\n1\r\n}\r\n0\r\n\r\n",
    ],
)
def test_a_good_answer_is_read_to_its_end(answer: bytes) -> None:
    with server(answer) as port:
        found = AdminClient("127.0.0.1", port, timeout_s=LONG_S).request("GET", "/metrics")
    assert found == AdminAnswer(200, "{}")


def test_a_redirection_is_not_followed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        where = b"http://127.0.0.1:%d/" % other.getsockname()[1]
        moved = b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: " + where + b"\r\n\r\n"
        with server(moved) as port:
            client = AdminClient("127.0.0.1", port, token="secret", timeout_s=LONG_S)
            with pytest.raises(CommandError, match="status 302"):
                client.ask("GET", "/metrics")
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.accept()


class Answering(AdminClient):
    """A bookie of ours that answers all with one body."""

    def __init__(self, body: str, status: int = 200) -> None:
        super().__init__("127.0.0.1", 1)
        self._answer = AdminAnswer(status, body)

    def request(self, method: str, path: str, body: object = None) -> AdminAnswer:
        return self._answer


STATE = {
    "state": "writable",
    "read_only": False,
    "read_only_by_hand": False,
    "takes_high_priority_writes": True,
    "registered": True,
    "uptime_s": 5,
}


@pytest.mark.parametrize(
    "body",
    ["null", "[]", "[null]", "{}", "[" * 100_000, "7", '"x"']
    + [json.dumps({**STATE, name: value}) for name in STATE for value in ([], float("nan"))],
)
def test_an_answer_of_another_form_is_no_bug(body: str) -> None:
    with pytest.raises(CommandError):
        bookie_state.state(Answering(body), B1)


@pytest.mark.parametrize("body", ["null", "[null]", '[{"rounds": 1}]', '{"rounds": NaN}'])
def test_so_is_that_of_a_collector(body: str) -> None:
    with pytest.raises(CommandError):
        garbage.collections(Answering(body))


def test_a_good_state_is_understood() -> None:
    assert bookie_state.state(Answering(json.dumps(STATE)), B1).uptime_s == 5


def test_of_a_long_reason_the_beginning_is_said() -> None:
    with pytest.raises(CommandError) as raised:
        Answering("x" * 10**6, status=500).ask("GET", "/metrics")
    assert len(str(raised.value)) < REASON_CHARS_MAX + 100


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "1e308"])
def test_metrics_that_no_bookie_measures_count_as_missing(value: str) -> None:
    names = (load_rates.WRITTEN, load_rates.STARTED)
    found = load_rates.figures([parse_sample(f"{name} {value}") for name in names])
    assert (found.added_bytes, found.started_s) == (0, None)


def test_a_metric_without_a_number_is_no_bug() -> None:
    with pytest.raises(CommandError, match="not a metric"):
        parse_sample("bookie_WRITE_BYTES abc")
