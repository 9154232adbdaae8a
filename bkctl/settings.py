"""Where the cluster is and how to talk to it: option, environment, settings file, in this order."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from bkclient.config import ClientConfig
from bkclient.properties import Properties, PropertiesError, parse_properties, read_properties
from bkclient.settings import Severity, environment, load
from bkctl.errors import UsageError
from bkctl.options import Options

DEFAULT_CONF: Final = (
    Path("/etc/bookkeeper/bk_server.conf"),
    Path("/opt/bookkeeper/conf/bk_server.conf"),
)
"""Where a bookie's settings are looked for when nothing else says where the cluster is."""

_URI_KEY: Final = "metadataServiceUri"
_NO_FILE: Final = "-X or BK_metadataServiceUri"


@attrs.frozen
class ClusterSettings:
    """One cluster as a client sees it, and where that is known from."""

    uri: str
    config: ClientConfig
    origin: str
    warnings: tuple[str, ...] = ()


def cluster_settings(options: Options, environ: Mapping[str, str]) -> ClusterSettings:
    """Return the cluster that the options, the environment and the settings file name.

    Raises:
        UsageError: none of them names one, or an override is no ``KEY=VALUE``.
        PropertiesError, ConfigError: the file cannot be read, or a value is refused.
    """
    properties, origin = _file(options)
    source = origin
    properties = properties.override(environment(environ, ClientConfig), "environment")
    properties = properties.override(overrides(options.overrides), "-X")
    if options.service_uri:
        properties = properties.override({_URI_KEY: _as_value(options.service_uri)}, "-u")
        source = "-u or BKCTL_SERVICE_URI"
    config, findings = load(ClientConfig, properties, also=_bookie_classes(origin))
    if config.service_uri is None:
        raise UsageError(
            "which cluster?",
            next_step="give -u URI or -c FILE, set BKCTL_SERVICE_URI, or start one: bkctl local 3",
        )
    warnings = tuple(str(found) for found in findings if found.severity is Severity.WARNING)
    return ClusterSettings(config.service_uri, config, source, warnings)


def _file(options: Options) -> tuple[Properties, str]:
    if options.conf:
        return read_properties(Path(options.conf)), options.conf
    for path in DEFAULT_CONF if not options.service_uri else ():
        if path.is_file():
            return read_properties(path), str(path)
    return parse_properties(""), _NO_FILE


def overrides(given: tuple[str, ...]) -> dict[str, str]:
    """Return what ``-X KEY=VALUE`` sets.

    Raises:
        UsageError: one is no ``KEY=VALUE``.
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


def _bookie_classes(origin: str) -> tuple[type, ...]:
    """Know the bookie's keys only where a file may hold them: their module is a large one."""
    if origin == _NO_FILE:
        return ()
    try:
        from bookied.config import BookieConfig
    except ImportError:
        return ()
    return (BookieConfig,)


__all__ = ["ClusterSettings", "PropertiesError", "cluster_settings"]
