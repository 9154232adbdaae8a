"""A cluster that lets in only clients with a certificate and a password."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from bkclient.blocking import BlockingClient
from bkclient.config.client import ClientConfig
from bkclient.config.properties import read_properties
from bkclient.config.settings import load
from tests.bookied.worlds.secured_link import jaas_of_both
from tests.live.bookied.processes import BookieProcess, make_cluster, write_conf
from tests.support.certificates import Authority, bookie_keys, client_keys, write_pem

PAYLOADS = [b"entry %d" % i for i in range(500)]
PASSWORD = "a-password-of-a-user"
LEDGER_PASSWORD = "a-password-of-ledgers"
JAAS = jaas_of_both(PASSWORD)


@attrs.frozen
class Secured:
    """A bookie that wants certificates and passwords, and a client's settings file for it."""

    uri: str
    conf: Path
    jaas: Path

    @property
    def config(self) -> ClientConfig:
        return load(ClientConfig, read_properties(self.conf))[0]

    def write(self) -> int:
        with BlockingClient(self.uri, config=self.config) as client:
            return client.write_ledger(PAYLOADS, ensemble_size=1, write_quorum=1, ack_quorum=1)[0]


@contextmanager
def secured_cluster(directory: Path) -> Iterator[Secured]:
    """Run the bookie; all its files are below a directory."""
    authority = Authority()
    own = write_pem(directory / "bookie-keys", authority.issue("bookie"), authority)
    pem = write_pem(directory / "client-keys", authority.issue("exporter", hosts=()), authority)
    jaas = directory / "jaas.conf"
    jaas.write_text(JAAS)
    uri = make_cluster(directory / "metadata.db")
    conf = directory / "client.conf"
    settings = client_keys(
        pem,
        metadataServiceUri=uri,
        tlsClientAuthentication="true",
        clientAuthProviderFactoryClass="SASLClientProviderFactory",
        saslJaasConfigFile=jaas,
        passwd=LEDGER_PASSWORD,
    )
    conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    keys = bookie_keys(
        own,
        tlsClientAuthentication="true",
        bookieAuthProviderFactoryClass="SASLBookieAuthProviderFactory",
        saslJaasConfigFile=jaas,
    )
    bookie = BookieProcess(write_conf(directory / "b1", uri, **keys))
    try:
        bookie.ready()
        yield Secured(uri, conf, jaas)
        assert bookie.stop() == 0
    finally:
        if bookie.process.poll() is None:
            bookie.kill()
