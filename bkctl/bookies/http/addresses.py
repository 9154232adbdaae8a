"""The address of a bookie's HTTP server, and the admin token."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bkclient.metadata.errors import MetadataUnavailableError, NotFoundError
from bkctl.bookies.http.admin_client import TIMEOUT_S, AdminClient, HttpAddress
from bkctl.errors import ConflictError, NothingFoundError, UsageError
from bkctl.session.cluster_settings import client_config, cluster_properties
from bkctl.session.profiles import of_user
from bkctl.suggest import no_such_bookie

if TYPE_CHECKING:
    from bkclient.client import Client
    from bkclient.config.client import ClientConfig
    from bkctl.session.session import Session
    from wire.ids import BookieId
    from wire.records.bookie_service_info import BookieServiceInfo

HTTP: Final = "http"
HTTPS: Final = "https"

_ANY_ADDRESS: Final = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 -- what a bookie published


def connect(
    session: Session, bookie_id: BookieId, address: str | None, token_file: Path | None
) -> AdminClient:
    """Return the bookie's admin API, at ``address`` or at its published address.

    Raises:
        ConflictError: the bookie is not registered.
        NothingFoundError: the bookie does not exist, or has not published an address.
        NothingFoundError: the token's file cannot be read.
    """
    timeout_s = session.options.timeout_s or TIMEOUT_S
    # With an address the cluster is not asked: it may be unavailable.
    where = _published(session, bookie_id) if address is None else _parsed(session, address)
    session.verbose(f"asking {where.host}:{where.port}")
    token = admin_token(session, token_file)
    profile = session.options.used_profile
    return AdminClient(
        *where,
        token=token,
        timeout_s=timeout_s,
        trace=session.messages.trace,
        profile=profile.name if profile is not None else "NAME",
    )


def _published(session: Session, bookie_id: BookieId) -> HttpAddress:
    try:
        return session.call(published, bookie_id)
    except MetadataUnavailableError:
        session.failed = "with --http HOST:PORT the bookie is asked without the metadata service"
        raise


async def published(client: Client, bookie_id: BookieId) -> HttpAddress:
    """Return the published address of a bookie's HTTP server.

    Raises:
        ConflictError: the bookie is not registered.
        NothingFoundError: it does not exist, or has not published an address.
    """
    hint = "name its address with --http HOST:PORT"
    try:
        info = await client.store.service_info(bookie_id)
    except NotFoundError as error:
        known = await client.store.known_bookies()
        if bookie_id not in known:
            unknown = no_such_bookie(bookie_id, known)
            raise NothingFoundError(unknown, next_step=hint) from error
        raise ConflictError(
            f"bookie {bookie_id} is not registered: it does not run, or its process hangs",
            next_step=hint,
        ) from error
    found = http_address(info, client.config)
    if found is None:
        raise NothingFoundError(
            f"bookie {bookie_id} has published no HTTP server",
            next_step=f"set httpServerEnabled=true for it, or {hint}",
        )
    return found


def http_address(info: BookieServiceInfo, config: ClientConfig) -> HttpAddress | None:
    """Return the published address of a bookie's HTTP server; None if it has not published one."""
    secured, own = info.endpoint(HTTPS), info.endpoint()
    endpoint = secured or info.endpoint(HTTP)
    if endpoint is None:
        return None
    host = own.host if own is not None and endpoint.host in _ANY_ADDRESS else endpoint.host
    return HttpAddress(host, endpoint.port, None if secured is None else config.https)


def _parsed(session: Session, address: str) -> HttpAddress:
    match = re.fullmatch(r"(?:(https?)://)?\[?([^/]+?)\]?:(\d{1,5})/?", address)
    if match is None:
        raise UsageError(f"--http: {address!r} is not HOST:PORT, with https:// in front for TLS")
    scheme, host, port = match.groups()
    config = client_config(session.options, session.host.environ)
    return HttpAddress(host, int(port), config.https if scheme == HTTPS else None)


def admin_token(session: Session, token_file: Path | None = None) -> str:
    """Return the admin token: from a file, the profile, or the bookie's settings.

    Raises:
        NothingFoundError: the file is missing, or this user may not read it.
    """
    profile = session.options.used_profile
    if token_file is None and profile is not None and profile.admin_token_file:
        token_file = Path(of_user(profile.admin_token_file))
    return _token(token_file) if token_file is not None else _token_of_settings(session)


def _token_of_settings(session: Session) -> str:
    """Return the token from the settings file; empty if only the bookie may read it."""
    settings, _ = cluster_properties(session.options, session.host.environ)
    found = {
        key: settings.expand(one.values[0])
        for key in ("httpAdminTokenFile", "httpAdminToken")
        if (one := settings.entries.get(key)) is not None
    }
    if file := found.get("httpAdminTokenFile"):
        try:
            return _token(Path(file))
        except NothingFoundError as error:
            session.verbose(str(error))
            return ""
    return found.get("httpAdminToken", "")


def _token(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise NothingFoundError(f"token file {os.fspath(path)}: {why}") from error
