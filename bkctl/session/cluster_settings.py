"""The settings of the cluster: its address, and the client's settings.

The order is: options, a profile named by an option, the environment, another profile, the settings
file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from bkclient.config.client import ClientConfig
from bkclient.config.findings import Findings, Severity
from bkclient.config.private_files import changeable_by_others, open_to_others
from bkclient.config.properties import Properties, parse_properties, read_properties
from bkclient.config.settings import load, settings_of_environment
from bkctl.errors import NothingFoundError, UsageError
from bkctl.global_options import OF_PROFILE, Options
from bkctl.session.profiles import Profile, is_typed, use_profile

DEFAULT_CONF: Final = (
    Path("/etc/bookkeeper/bk_server.conf"),
    Path("/opt/bookkeeper/conf/bk_server.conf"),
)
"""The default settings files of a bookie, used if nothing else names the cluster."""

URI_KEY: Final = "metadataServiceUri"
LAC_KEY: Final = "explicitLacInterval"
LAC_INTERVAL_MS: Final = 500
"""The default interval: input may pause, and readers then wait for the last entry.

The default of the client library, and of Java, is never.
"""


@attrs.frozen
class ClusterSettings:
    """The settings of a client for one cluster, and their origin."""

    uri: str
    config: ClientConfig
    origin: str
    warnings: tuple[str, ...] = ()


def cluster_settings(options: Options, environ: Mapping[str, str]) -> ClusterSettings:
    """Return the cluster of the options, the environment, the profile and the settings file.

    Raises:
        UsageError: none of them names a cluster, or an override is not a ``KEY=VALUE``.
        NothingFoundError: the profile or the settings file does not exist.
        PropertiesError, ConfigError: the file cannot be read, or a value is refused.
    """
    properties, path = cluster_properties(options, environ)
    config, findings = _load(properties, path)
    if properties.entries.get(LAC_KEY) is None:
        config = attrs.evolve(config, explicit_lac_interval_ms=LAC_INTERVAL_MS)
    uri = config.service_uri
    if uri is None:
        raise UsageError(
            "no cluster is named",
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
    """Return the settings of a client; they may name no cluster.

    Raises:
        UsageError, NothingFoundError, PropertiesError, ConfigError: as ``cluster_settings``.
    """
    return _load(*cluster_properties(options, environ))[0]


def _load(properties: Properties, path: str | None) -> tuple[ClientConfig, Findings]:
    return load(ClientConfig, properties, also=_bookie_classes(path))


def cluster_properties(
    options: Options, environ: Mapping[str, str]
) -> tuple[Properties, str | None]:
    """Return a client's settings, each value with its origin, and the file, if one is read.

    Raises:
        UsageError: an override is not a ``KEY=VALUE``.
        NothingFoundError: the profile or the settings file does not exist.
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
    """Return the settings of a file; ``environ`` replaces the variables in its values.

    Raises:
        NothingFoundError: the file does not exist.
        PropertiesError: the file cannot be read, or breaks the syntax.
    """
    if not path.exists():
        raise NothingFoundError(
            f"settings file {path}: no such file",
            next_step="give the bookie's or client's settings file, as in -c bk_server.conf",
        )
    return read_properties(path, environ=environ or {})


def overrides(given: tuple[str, ...]) -> dict[str, str]:
    """Return the settings of ``-X KEY=VALUE``.

    Raises:
        UsageError: a text is not a ``KEY=VALUE``.
    """
    settings = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"-X {text}: not KEY=VALUE")
        settings[key.strip()] = value.strip()
    return settings


def _as_value(uri: str) -> str:
    """Escape the commas of a URI: in a settings file they separate values."""
    return uri.replace("\\", "\\\\").replace(",", "\\,")


def _bookie_classes(path: str | None) -> tuple[type, ...]:
    """Return the classes of the bookie's keys if a file may have them: their module is large."""
    if path is None:
        return ()
    try:
        from bookied.config.bookie import BookieConfig
    except ImportError:
        return ()
    return (BookieConfig,)
