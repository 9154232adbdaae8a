"""The id and address of a bookie.

Agrees with BookKeeper 4.18.0, BookieImpl.getBookieId and LegacyCookieValidation.possibleBookieIds:
``bookieId`` if set, else ``advertisedAddress``, else the address of the interface or its host name,
with the port. Tests replace ``HostNames`` to choose the host's names and addresses.
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import socket
import struct
from typing import Final, Protocol

import attrs

from bookied.config.bookie import BookieConfig
from bookied.errors import AddressError
from wire.ids import BookieId, is_valid_bookie_id

_SIOCGIFADDR: Final = 0x8915


class HostNames(Protocol):
    """The names and addresses of a host. Every method blocks, and raises ``OSError``."""

    def address(self, interface: str | None) -> str:
        """Return the IPv4 address of an interface, or of the host's own name.

        ``interface`` may also be an IPv4 address.
        """
        ...

    def canonical_name(self, address: str) -> str:
        """Return the full name of an address; the address itself if it has no name."""
        ...

    def resolve(self, name: str) -> str:
        """Return an address of ``name``."""
        ...


class RealHost:
    """This machine."""

    def address(self, interface: str | None) -> str:
        if interface is None:
            return self.resolve(socket.gethostname())
        with contextlib.suppress(ValueError):
            return str(ipaddress.IPv4Address(interface))
        request = struct.pack("256s", interface.encode()[:15])
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            answer = fcntl.ioctl(sock.fileno(), _SIOCGIFADDR, request)
        return socket.inet_ntoa(answer[20:24])

    def canonical_name(self, address: str) -> str:
        name, _aliases, _addresses = socket.gethostbyaddr(address)
        return name

    def resolve(self, name: str) -> str:
        return str(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0])


@attrs.frozen
class Identity:
    """The identity of a bookie.

    Metadata has the bookie under ``bookie_id``; clients connect to ``host`` and ``port``. The
    bookie may have run earlier under any of ``possible_ids``, and a cookie under one of them must
    match.
    """

    bookie_id: BookieId
    host: str
    port: int
    possible_ids: tuple[BookieId, ...]


def identify(config: BookieConfig, port: int, host: HostNames) -> Identity:
    """Return the identity of a bookie with this configuration and bound port.

    Raises:
        AddressError: its address is unknown or a loopback address, or its id is invalid.
    """
    name = _advertised(config, host)
    bookie_id = BookieId(config.bookie_id or f"{name}:{port}")
    if not is_valid_bookie_id(bookie_id):
        raise AddressError(f"bookieId: '{bookie_id}' is not a bookie id")
    return Identity(
        bookie_id=bookie_id,
        host=name,
        port=port,
        possible_ids=_possible_ids(config, bookie_id, port, host),
    )


def listen_host(config: BookieConfig, host: HostNames) -> str:
    """Return the address to listen on; empty for all addresses.

    Raises:
        AddressError: ``listeningInterface`` has no address.
    """
    if config.listening_interface is None:
        return ""
    return _interface_address(config.listening_interface, host)


def _advertised(config: BookieConfig, host: HostNames) -> str:
    if config.advertised_address is not None:
        name = config.advertised_address.strip()
        key = "advertisedAddress"
    else:
        name = _own_name(config, host, as_host_name=config.use_host_name)
        key = "listeningInterface"
    try:
        address = host.resolve(name)
    except OSError as error:
        raise AddressError(f"{key}: {name} has no address ({error.strerror or error})") from error
    if ipaddress.ip_address(address).is_loopback and not config.allow_loopback:
        raise AddressError(
            f"{name} is a loopback address, which no other machine can reach: set "
            "advertisedAddress or listeningInterface, or allowLoopback=true"
        )
    return name


def _own_name(config: BookieConfig, host: HostNames, *, as_host_name: bool) -> str:
    address = _interface_address(config.listening_interface, host)
    if not as_host_name:
        return address
    try:
        name = host.canonical_name(address)
    except OSError as error:
        raise AddressError(f"useHostNameAsBookieID: {address} has no host name") from error
    if name == address:
        raise AddressError(f"useHostNameAsBookieID: {address} has no host name")
    return name.partition(".")[0] if config.use_short_host_name else name


def _interface_address(interface: str | None, host: HostNames) -> str:
    try:
        return host.address(interface)
    except OSError as error:
        what = "the host's own name" if interface is None else f"interface {interface}"
        raise AddressError(
            f"listeningInterface: {what} has no address ({error.strerror or error})"
        ) from error


def _possible_ids(
    config: BookieConfig, bookie_id: BookieId, port: int, host: HostNames
) -> tuple[BookieId, ...]:
    found = [bookie_id]
    if config.bookie_id is None:
        for as_host_name in (False, True):
            try:
                name = _own_name(config, host, as_host_name=as_host_name)
            except AddressError:
                continue  # The bookie cannot have had a name that the host does not have.
            found.append(BookieId(f"{name}:{port}"))
    return tuple(dict.fromkeys(found))
