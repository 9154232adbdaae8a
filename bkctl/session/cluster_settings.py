"""Where the cluster is and how to talk to it.

What is said by an option comes first, then a profile named by an option, the environment, another
profile, the settings file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from bkclient.config.client import ClientConfig
from bkclient.config.environment import settings_of_environment
from bkclient.config.findings import Findings, Severity
from bkclient.config.private_files import changeable_by_others, open_to_others
from bkclient.config.properties import Properties, parse_properties, read_properties
from bkclient.config.settings import load
from bkctl.errors import NothingFoundError, UsageError
from bkctl.global_options import OF_PROFILE, Options
from bkctl.session.profiles import Profile, is_typed, use_profile

DEFAULT_CONF: Final = (
    Path("/etc/bookkeeper/bk_server.conf"),
    Path("/opt/bookkeeper/conf/bk_server.conf"),
)
"""Where a bookie's settings are looked for when nothing else says where the cluster is."""

URI_KEY: Final = "metadataServiceUri"
LAC_KEY: Final = "explicitLacInterval"
LAC_INTERVAL_MS: Final = 500
"""The interval where none is set: input may pause, and readers then wait for the last entry.

The client library's default, as Java's, is never.
"""


@attrs.frozen
class ClusterSettings:
    """One cluster as a client sees it, and where that is known from."""

    uri: str
    config: ClientConfig
    origin: str
    warnings: tuple[str, ...] = ()


def cluster_settings(options: Options, environ: Mapping[str, str]) -> ClusterSettings:
    """Return the cluster that the options, the environment, the profile and the file name.

    Raises:
        UsageError: none of them names one, or an override is not a ``KEY=VALUE``.
        NothingFoundError: there is no such profile or settings file.
        PropertiesError, ConfigError: the file cannot be read, or a value is refused.
    """
    properties, path = cluster_properties(options, environ)
    config, findings = _load(properties, path)
    if properties.entries.get(LAC_KEY) is None:
        config = attrs.evolve(config, explicit_lac_interval_ms=LAC_INTERVAL_MS)
    uri = config.service_uri
    if uri is None:
        raise UsageError(
            "which cluster?",
            next_step="give -u URI, -c FILE or --profile NAME, set BKCTL_SERVICE_URI, or start "
            "one: bkctl local 3",
        )
    named = properties.entries.get(URI_KEY)
    source = str(named.origin) if named is not None else path or ""
    warnings = tuple(
        str(found)
        for found in (*findings, *open_to_others(config), *changeable_by_others(path or ""))
        if found.severity is Severity.WARNING
    )
    return ClusterSettings(uri, config, source, warnings)


def client_config(options: Options, environ: Mapping[str, str]) -> ClientConfig:
    """Return the settings of a client that may have no cluster.

    Raises:
        UsageError, NothingFoundError, PropertiesError, ConfigError: as ``cluster_settings``.
    """
    return _load(*cluster_properties(options, environ))[0]


def _load(properties: Properties, path: str | None) -> tuple[ClientConfig, Findings]:
    return load(ClientConfig, properties, also=_bookie_classes(path))


def cluster_properties(
    options: Options, environ: Mapping[str, str]
) -> tuple[Properties, str | None]:
    """Return what is set for a client, each value with its origin, and the file, if one is read.

    Raises:
        UsageError: an override is not a ``KEY=VALUE``.
        NothingFoundError: there is no such profile or settings file.
        PropertiesError: the file cannot be read.
    """
    profile = use_profile(options, environ)
    properties, path = _file(options, profile)
    layers = [(settings_of_environment(environ, ClientConfig), "BK_{key}")]
    if profile is not None:
        keys = {key: _as_value(value) for key, value in profile.keys.items()}
        if profile.service_uri is not None:
            keys[URI_KEY] = _as_value(profile.service_uri)
        layers.insert(1 if is_typed(options) else 0, (keys, f"{OF_PROFILE}{profile.name}"))
    layers.append((overrides(options.overrides), "-X"))
    if options.service_uri:
        origin = options.origins.get("service_uri", "-u")
        layers.append(({URI_KEY: _as_value(options.service_uri)}, origin))
    for values, source in layers:
        properties = properties.override(values, source) if values else properties
    return properties, path


def _file(options: Options, profile: Profile | None) -> tuple[Properties, str | None]:
    if options.conf:
        return read_conf(Path(options.conf)), options.conf
    named = options.service_uri or (profile is not None and profile.service_uri)
    for path in DEFAULT_CONF if not named else ():
        if path.is_file():
            return read_conf(path), str(path)
    return parse_properties(""), None


def read_conf(path: Path, environ: Mapping[str, str] | None = None) -> Properties:
    """Return what a settings file says; ``environ`` is for those that refer to it.

    Raises:
        NothingFoundError: there is no such file.
        PropertiesError: it cannot be read, or breaks the syntax.
    """
    if not path.exists():
        raise NothingFoundError(
            f"settings file {path}: no such file",
            next_step="give the bookie's or client's settings file, as in -c bk_server.conf",
        )
    return read_properties(path, environ=environ or {})


def overrides(given: tuple[str, ...]) -> dict[str, str]:
    """Return what ``-X KEY=VALUE`` sets.

    Raises:
        UsageError: one is not a ``KEY=VALUE``.
    """
    settings = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"-X {text}: not KEY=VALUE")
        settings[key.strip()] = value.strip()
    return settings


def _as_value(uri: str) -> str:
    """Protect the commas of a URI: in a settings file they would split it."""
    return uri.replace("\\", "\\\\").replace(",", "\\,")


def _bookie_classes(path: str | None) -> tuple[type, ...]:
    """Know the bookie's keys only where a file may hold them: their module is a large one."""
    if path is None:
        return ()
    try:
        from bookied.config.bookie import BookieConfig
    except ImportError:
        return ()
    return (BookieConfig,)
