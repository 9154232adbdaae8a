"""The command line of ``bookied``: from options to settings.

The long options are those of Java's launcher (BookKeeper 4.18.0, server.Main). Options override
``BK_<key>`` in the environment, and the environment overrides the file.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bkclient.config.client import ClientConfig
from bkclient.config.declaration import value_text
from bkclient.config.findings import Findings
from bkclient.config.private_files import changeable_by_others
from bkclient.config.properties import (
    Properties,
    PropertiesError,
    java_system_properties,
    read_properties,
)
from bkclient.config.settings import setting_origins, settings_of_environment
from bookied.config.bookie import LEVELS, BookieConfig, load_bookie_config, load_client_config
from bookied.errors import MEANING, OF_AUTORECOVERY, BookieExitStatus
from bookied.process.own_version import own_version

FORMATS: Final = ("text", "json")
AUTORECOVERY: Final = "autorecovery"
DIRECTORY_KEYS: Final = frozenset(
    {"journalDirectory", "journalDirectories", "ledgerDirectories", "indexDirectories"}
)
LEFT_TO_SYSTEMD: Final = (
    "is left to the service manager: systemctl start bookied, systemctl stop bookied; "
    "bookied runs in the foreground"
)
CONF_VARIABLE: Final = "BOOKIE_CONF"
LEVEL_VARIABLE: Final = "BOOKIE_ROOT_LOG_LEVEL"

SIGNALS: Final = {
    "TERM and INT": "drain and stop, a second signal ends the process at once",
    "HUP": "reopens the log file, and reads the HTTP token, keys, certificates, passwords and "
    "the settings that can change at run time",
    "USR1": "collects garbage now, with the compaction that the settings allow",
    "QUIT": "writes the bookie's state to the log",
}
SIGNALS_OF_AUTORECOVERY: Final = {
    "TERM and INT": "stop, a second signal ends the process at once",
    "HUP": "reopens the log file, and reads keys, certificates and logLevel",
    "QUIT": "writes its present work to the log",
}
_EPILOG_WIDTH: Final = 100


class DaemonOptions(argparse.Namespace):
    """The parsed command line."""

    autorecovery_only: bool
    conf: Path | None
    overrides: list[str]
    check_config: bool
    strict_config: bool
    log_format: str
    log_level: str | None
    log_file: Path | None

    def __init__(self) -> None:
        super().__init__()
        self.settings: dict[str, str] = {}
        """Settings set by options: Java's key to the text that a settings file would have."""


def parse_options(arguments: Sequence[str]) -> DaemonOptions:
    """Return the options.

    End the process with status 0 after help, and 1 if an option is invalid.
    """
    if arguments[:1] == ["stop"]:
        bookie_parser().error(f"`bookied stop` {LEFT_TO_SYSTEMD}")
    if arguments[:1] == [AUTORECOVERY]:
        return autorecovery_parser().parse_args(arguments[1:], namespace=DaemonOptions())
    return bookie_parser().parse_args(arguments, namespace=DaemonOptions())


def bookie_parser() -> argparse.ArgumentParser:
    """Return the parser of a bookie's options; the manual is made from the parser."""
    parser = _Parser(
        prog="bookied",
        description="Store ledgers for BookKeeper clients: one bookie, in the foreground.",
        epilog=_epilog(
            MEANING,
            SIGNALS,
            "`bookied autorecovery` runs an auditor and a replication worker without a bookie: "
            "see its --help.",
        ),
        formatter_class=_OptionFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(autorecovery_only=False)
    _add_settings(parser)
    sets = parser.add_setting
    sets("-p --bookieport", "bookiePort", "PORT", "port to listen on, as bookiePort")
    sets("-hp --httpport", "httpServerPort", "PORT", "port of the admin server, as httpServerPort")
    sets("-j --journal", "journalDirectories", "DIR", "journal directories", nargs="+")
    sets("-l --ledgerdirs", "ledgerDirectories", "DIR", "ledger directories", nargs="+")
    sets("-i --indexdirs", "indexDirectories", "DIR", "index directories", nargs="+")
    read_only, repairs = "-r --readOnly --read-only", "-withAutoRecovery --withAutoRecovery"
    sets(read_only, "forceReadOnlyBookie", None, "start read-only, and stay read-only", nargs=0)
    key = "autoRecoveryDaemonEnabled"
    sets(repairs, key, None, f"as {key}=true", nargs=0)
    _add_rest(parser)
    return parser


def autorecovery_parser() -> argparse.ArgumentParser:
    """Return the parser of the options of ``bookied autorecovery``."""
    parser = _Parser(
        prog="bookied autorecovery",
        description="Repair a cluster's ledgers: one auditor, if elected, and one replication "
        "worker, in the foreground, without a bookie.",
        epilog=_epilog(OF_AUTORECOVERY, SIGNALS_OF_AUTORECOVERY),
        formatter_class=_OptionFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(autorecovery_only=True)
    _add_settings(parser)
    _add_rest(parser)
    return parser


def _epilog(statuses: Iterable[BookieExitStatus], signals: Mapping[str, str], *more: str) -> str:
    ends = "; ".join(f"{int(status)} {MEANING[status]}" for status in statuses)
    signal_texts = "; ".join(f"{name} {does}" for name, does in signals.items())
    paragraphs = (f"Exit status: {ends}.", f"Signals: {signal_texts}.", *more)
    return "\n".join(textwrap.fill(text, _EPILOG_WIDTH) for text in paragraphs)


def _add_settings(parser: _Parser) -> None:
    settings, uri = (
        "settings file, in the format of Java's bk_server.conf",
        "metadata service, as metadataServiceUri",
    )
    parser.add_argument("-c", "--conf", type=Path, metavar="FILE", help=settings)
    sets = parser.add_setting
    sets("-u --metadata-uri", "metadataServiceUri", "URI", uri, type=value_text)
    sets("-z --zkserver", "zkServers", "HOSTS", "ZooKeeper servers, as zkServers")
    sets("-m --zkledgerpath", "zkLedgersRootPath", "PATH", "root of the metadata, with --zkserver")


def _add_rest(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "-X",
        dest="overrides",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="set any key of the settings file; may be repeated",
    )
    add(
        "--check-config",
        action="store_true",
        help="print warnings and errors of the settings, and end",
    )
    add("--strict-config", action="store_true", help="refuse unknown keys")
    add("--log-format", choices=FORMATS, default="text", help="format of the log lines")
    add("--log-level", choices=LEVELS, help="lowest level that is logged (default: info)")
    add("--log-file", type=Path, metavar="FILE", help="write the log to FILE, not to stderr")
    add("--daemonize", "--pid-file", action=_LeftToSystemd, nargs="?", help=argparse.SUPPRESS)
    add("--version", action=_ShowVersion, nargs=0, help="show the version, and end")


def configure(options: DaemonOptions, environ: Mapping[str, str]) -> tuple[BookieConfig, Findings]:
    """Return the settings of the file, the environment and the command line.

    Raises:
        PropertiesError: a settings file cannot be read, or an option is invalid.
        ConfigError: a value is refused.
    """
    properties = _properties(options, environ, BookieConfig, ClientConfig)
    config, findings = load_bookie_config(properties, strict=options.strict_config)
    if options.autorecovery_only:  # Autorecovery uses no directory of the bookie.
        findings = tuple(one for one in findings if one.key not in DIRECTORY_KEYS)
    path = settings_file(options, environ)
    return config, findings if path is None else (*findings, *changeable_by_others(str(path)))


def configure_client(options: DaemonOptions, environ: Mapping[str, str]) -> ClientConfig:
    """Return the client settings of the same sources; autorecovery uses a client.

    Raises:
        PropertiesError, ConfigError: as for ``configure``.
    """
    return load_client_config(_properties(options, environ, BookieConfig, ClientConfig))


def origins(options: DaemonOptions, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the source of each setting, by its key.

    Raises:
        PropertiesError: a settings file cannot be read.
    """
    return setting_origins(BookieConfig, _properties(options, environ, BookieConfig))


def settings_file(options: DaemonOptions, environ: Mapping[str, str]) -> Path | None:
    """Return the settings file, if an option or the environment names one."""
    return options.conf or (Path(environ[CONF_VARIABLE]) if environ.get(CONF_VARIABLE) else None)


def _properties(options: DaemonOptions, environ: Mapping[str, str], *classes: type) -> Properties:
    path = settings_file(options, environ)
    system = java_system_properties()
    if path is None:
        properties = Properties(environ=environ, system=system)
    else:
        properties = read_properties(path, environ=environ, system=system)
    properties = properties.override(
        settings_of_environment(environ, *classes), "BK_{key} in the environment"
    )
    return properties.override(_settings(options), "the command line")


def log_level(options: DaemonOptions, environ: Mapping[str, str], config: BookieConfig) -> str:
    """Return the lowest log level: the option's, else the environment's, else the settings'."""
    level = options.log_level or environ.get(LEVEL_VARIABLE, "").lower()
    return level if level in LEVELS else config.log_level


def log_path(options: DaemonOptions, environ: Mapping[str, str]) -> Path | None:
    """Return the log file, ``None`` for stderr; the variables are those of Java's scripts."""
    directory, name = environ.get("BOOKIE_LOG_DIR"), environ.get("BOOKIE_LOG_FILE")
    if options.log_file is not None or not (directory or name):
        return options.log_file
    return Path(directory or ".") / (name or "bookkeeper-server.log")


class _OptionFormatter(argparse.RawDescriptionHelpFormatter):
    """A formatter whose sections and sentences begin with a capital, as in ``bkctl``."""

    def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: str | None = None) -> None:
        super().add_usage(usage, actions, groups, "Usage: " if prefix is None else prefix)

    def start_section(self, heading: str | None) -> None:
        super().start_section(heading and heading.capitalize())

    def _expand_help(self, action: argparse.Action) -> str:
        text = super()._expand_help(action)
        return f"{text[:1].upper()}{text[1:]}."


class _Parser(argparse.ArgumentParser):
    """A parser that ends with status 1 for an invalid option, as Java's launcher.

    2 has another meaning.
    """

    def error(self, message: str) -> None:  # type: ignore[override]
        self.exit(1, f"bookied: {message}; see bookied --help\n")

    def add_setting(self, names: str, key: str, value: str | None, what: str, **more: Any) -> None:
        """Add options with the names ``names`` that set ``key`` of the settings file."""
        more |= {"default": argparse.SUPPRESS, "dest": key, "metavar": value, "help": what}
        self.add_argument(*names.split(), action=_Setting, **more)


def _settings(options: DaemonOptions) -> dict[str, str]:
    """Return the settings that the options set: Java's key to the text of a settings file."""
    found = dict(options.settings)
    if "zkServers" in found:
        found.setdefault("metadataServiceUri", "")  # An empty URI overrides the file's URI.
    elif "zkLedgersRootPath" in found:
        raise PropertiesError.of_option("--zkledgerpath", "goes with --zkserver")
    for override in options.overrides:
        key, equals, text = override.partition("=")
        if not equals:
            raise PropertiesError.of_option("-X", f"'{override}' is not KEY=VALUE")
        found[key.strip()] = text
    return found


class _Setting(argparse.Action):
    """An action that sets the settings key ``dest``; an option without a value sets ``true``."""

    def __call__(self, _parser: object, options: Any, value: Any, _name: object = None) -> None:
        if value == []:
            value = "true"
        options.settings[self.dest] = value if isinstance(value, str) else ",".join(value)


class _LeftToSystemd(argparse.Action):
    def __call__(
        self,
        parser: argparse.ArgumentParser,
        _options: object,
        _value: object,
        name: str | None = None,
    ) -> None:
        parser.error(f"{name} {LEFT_TO_SYSTEMD}")


class _ShowVersion(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_rest: object) -> None:
        what = "a bookie in Python for clusters and clients of BookKeeper 4.18"
        parser.exit(0, f"bookied {own_version()}, {what}\n")


LOG_CONF: Final = "BOOKIE_LOG_CONF"

_INSTEAD: Final = (
    "log4j's files mean nothing here; --log-format, --log-level, BOOKIE_ROOT_LOG_LEVEL, "
    "BOOKIE_LOG_DIR and BOOKIE_LOG_FILE say how to log"
)

OF_THE_JVM: Final = (
    "BOOKIE_EXTRA_CLASSPATH", "BOOKIE_EXTRA_OPTS", "BOOKIE_GC_LOGGING_OPTS", "BOOKIE_GC_OPTS",
    "BOOKIE_MAX_DIRECT_MEMORY", "BOOKIE_MAX_HEAP_MEMORY", "BOOKIE_MEM_OPTS",
    "BOOKIE_MIN_HEAP_MEMORY", "BOOKIE_NETTY_OPTS", "BOOKIE_PERF_OPTS",
)  # fmt: skip


def remarks(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield (log level, text) for each variable that bookied ignores."""
    if path := environ.get(LOG_CONF):
        yield "warn", f"{LOG_CONF}={path} is not read: {_INSTEAD}"
    if found := [name for name in OF_THE_JVM if environ.get(name)]:
        yield "debug", f"there is no JVM here for {', '.join(found)}"
