"""Our client and our bookie over a link in memory, with keys, certificates and passwords."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from bkclient.config.client import ClientConfig
from bkclient.config.properties import parse_properties
from bkclient.config.settings import load
from bkclient.connection.channel import BookieChannel
from bkclient.connection.security.tls_and_sasl_handshake import Greeting, greeting_of
from bkclient.connection.security.tls_contexts import TlsContexts
from bookied.config.bookie import BookieConfig, load_bookie_config
from bookied.server.access.authenticators import open_authenticator
from bookied.server.limits.handshake_turns import HANDSHAKE_GAP_S
from bookied.server.shared_by_connections import AccessRules
from tests.bookied.worlds.served_bookie import Serving
from tests.support.certificates import Authority, bookie_keys, client_keys, write_pem
from tests.support.tls_link import Link
from wire.codes import ProtocolVersion
from wire.ids import BookieId

AUTHORITY = Authority()
BOOKIE = AUTHORITY.issue("bookie", hosts=["bookie.example", "192.0.2.1"])
CLIENT = AUTHORITY.issue("client", hosts=[])


def jaas_of_both(password: str) -> str:
    """Return a JAAS file for a bookie that knows one user, and for that user's clients."""
    return f"""
Bookie {{
    org.apache.zookeeper.server.auth.DigestLoginModule required user_bookkeeper="{password}";
}};
BookKeeper {{
    org.apache.zookeeper.server.auth.DigestLoginModule required
    username="bookkeeper" password="{password}";
}};
"""


def conf(keys: dict[str, object]) -> Any:
    return parse_properties("".join(f"{key}={value}\n" for key, value in keys.items()))


class Stage:
    """A bookie and a client with files and settings of their own; connections come of ``connect``.

    What is set before the first connection is what the bookie is told.
    """

    def __init__(self, directory: Path, *, tls: bool = True) -> None:
        self.directory = directory
        self.serving = Serving(directory / "bookie")
        self.clock: Clock = self.serving.clock
        self.bookie_pem = write_pem(directory / "bookie-keys", BOOKIE, AUTHORITY)
        self.client_pem = write_pem(directory / "client-keys", CLIENT, AUTHORITY)
        self.bookie_settings = bookie_keys(self.bookie_pem) if tls else {}
        self.client_settings = client_keys(self.client_pem) if tls else {}
        self._is_set_up = False

    @property
    def stats(self) -> Any:
        return self.serving.server.stats

    def set_up(self) -> None:
        """Tell the bookie its settings, anew."""
        config = self._config()
        server = self.serving.server
        server.access = AccessRules(
            tls=self.contexts() if config.has_tls else None,
            tls_required=config.tls_required,
            auth=open_authenticator(config),
        )
        self._is_set_up = True

    def _config(self) -> BookieConfig:
        given = {"metadataServiceUri": "sqlite:///m.db", **self.bookie_settings}
        return load_bookie_config(conf(given))[0]

    def contexts(self) -> TlsContexts:
        settings = self._config().tls
        assert settings is not None
        return TlsContexts(settings, self.clock, is_client=False)

    def greeting(self) -> Greeting:
        config, _ = load(ClientConfig, conf(self.client_settings))
        found = greeting_of(config, self.clock)
        assert found is not None
        return found

    def connect(self, protocol: ProtocolVersion = ProtocolVersion.V3) -> Connection:
        if not self._is_set_up:
            self.set_up()
        self.clock.advance(HANDSHAKE_GAP_S)
        return Connection(self, self.greeting(), protocol)

    def refused(self, **settings: object) -> str:
        """Return what the client says of a connection that must not come about."""
        self.client_settings |= settings
        return str(self.connect().failure)


class Connection:
    """One connection of a client, greeted as far as it goes; without a greeting, not yet."""

    def __init__(
        self,
        stage: Stage,
        greeting: Greeting | None,
        protocol: ProtocolVersion = ProtocolVersion.V3,
    ) -> None:
        self._serving = stage.serving
        self.channel = BookieChannel(stage.clock, BookieId("b1"), protocol=protocol)
        server = stage.serving.server.buildProtocol(None)
        self.link = Link(self.channel, server, stage.clock)
        self._found: list[Any] = []
        if greeting is not None:
            self.greet(greeting)

    def greet(self, greeting: Greeting) -> None:
        said = Deferred.fromCoroutine(greeting.say(self.channel, "bookie.example"))
        said.addBoth(self._found.append)
        self.link.settle()

    @property
    def is_greeted(self) -> bool:
        return self._found == [None]

    @property
    def failure(self) -> Exception:
        """Why it did not come about: of the greeting, or of the connection right behind it."""
        if self.is_greeted:
            assert self.channel.lost is not None
            return self.channel.lost
        (failure,) = self._found
        error: Exception = failure.value
        return error

    def ask(self, request: Any) -> Any:
        found: list[Any] = []
        self.channel.request(request).addBoth(found.append)
        self.link.settle()
        self._serving.sync()
        self.link.settle()
        (answer,) = found
        return answer
