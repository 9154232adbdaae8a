"""Bookies with their HTTP server on, Java's and ours, and what asks them."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from typing import Any, Final

import attrs

from bkctl.commands.local.ports import free_port
from tests.interop.peers.jars import admin_jars
from tests.interop.peers.jvm import LOG_LEVEL_PROPERTY, java_command
from tests.interop.peers.our_bookie import OurBookie
from tests.interop.peers.peers import JavaBookie, Peers

TOKEN: Final = "0pen-5esame"

_JAVA: Final = {
    "httpServerClass": "org.apache.bookkeeper.http.vertx.VertxHttpServer",
    "statsProviderClass": "org.apache.bookkeeper.stats.prometheus.PrometheusMetricsProvider",
}


class JavaAdminBookie(JavaBookie):
    """A Java bookie with the jars that the admin server and metrics need."""

    def _command(self) -> list[str]:
        main = ["org.apache.bookkeeper.server.Main", "--conf", str(self.conf_path)]
        options = [*self._jvm_options, f"-D{LOG_LEVEL_PROPERTY}=INFO"]
        return java_command(self.directory, options, main, java=self._java, behind=admin_jars())


@attrs.frozen
class Answer:
    """What an endpoint answered."""

    status: int
    body: str
    content_type: str | None

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@attrs.frozen
class Admin:
    """A bookie and the way to its HTTP server."""

    bookie: JavaBookie
    port: int
    headers: Mapping[str, str] = attrs.field(factory=dict)

    def ask(self, method: str, path: str, body: object = None, *, text: str = "") -> Answer:
        """Send one request; ``text`` is a body as it is."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            sent = text or (None if body is None else json.dumps(body))
            connection.request(method, path, body=sent, headers=dict(self.headers))
            response = connection.getresponse()
            return Answer(
                response.status, response.read().decode(), response.getheader("Content-Type")
            )
        finally:
            connection.close()

    def get(self, path: str) -> Answer:
        return self.ask("GET", path)

    def put(self, path: str, body: object = None) -> Answer:
        return self.ask("PUT", path, body)


def java_admin(peers: Peers, uri: str, **conf: Any) -> Admin:
    """Start a Java bookie with its HTTP server."""
    return _started(peers, JavaAdminBookie, uri, {**_JAVA, **conf}, {})


def our_admin(peers: Peers, uri: str, **conf: Any) -> Admin:
    """Start a bookie of ours with its HTTP server, which a token opens."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    return _started(peers, OurBookie, uri, {"httpAdminToken": TOKEN, **conf}, headers)


def _started(
    peers: Peers,
    kind: type[JavaBookie],
    uri: str,
    conf: Mapping[str, Any],
    headers: Mapping[str, str],
) -> Admin:
    port = free_port()
    address = {"httpServerEnabled": "true", "httpServerPort": port, "httpServerHost": "127.0.0.1"}
    bookie = kind(uri, peers.new_directory("admin"), **{**address, **conf})
    peers.on_close(bookie.kill)
    bookie.start()
    return Admin(bookie, port, headers)
