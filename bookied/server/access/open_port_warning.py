"""The warning at a bookie's start when its port is open to every host: without login or TLS."""

from __future__ import annotations

from ipaddress import ip_address

from bookied.config.bookie import BookieConfig


def open_port_warning(config: BookieConfig, listen_host: str, port: int) -> str | None:
    """Return what to say of a port that every host can use, with the settings; else ``None``.

    Java's bookie is as open by default. ``listen_host`` is empty for all addresses of the machine.
    """
    asks_names = config.has_sasl or config.has_roles
    if asks_names or (config.tls_required and config.tls_client_authentication):
        return None
    if listen_host and ip_address(listen_host.partition("%")[0]).is_loopback:
        return None
    where = f"address {listen_host}" if listen_host else "every address (listeningInterface)"
    if config.tls_required:
        tls = ""
    elif config.has_tls:
        tls = ", also without TLS (tlsRequired)"
    else:
        tls = ", without TLS (tlsProviderFactoryClass, tlsRequired)"
    return (
        f"port {port} takes entries from every host that reaches it: on {where}, without a"
        f" login (bookieAuthProviderFactoryClass){tls}"
    )
