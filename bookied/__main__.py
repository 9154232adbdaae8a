"""The program ``bookied``: from arguments and settings to a bookie that runs until a signal.

However the process ends, it writes one line to stderr and has an exit status of
``BookieExitStatus``.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from bkclient.config.client import ClientConfig
from bkclient.config.findings import ConfigError, Findings, Severity
from bkclient.config.private_files import open_to_others
from bkclient.config.properties import PropertiesError
from bkclient.config.settings import non_default_settings
from bookied.config.bookie import BookieConfig
from bookied.config.reload import SettingsSource
from bookied.errors import BookieExitStatus, BookieStopError, StopTimeoutError
from bookied.process.command_line import (
    DaemonOptions,
    configure,
    configure_client,
    log_level,
    log_path,
    origins,
    parse_options,
    remarks,
    settings_file,
)
from bookied.process.own_version import own_version
from bookied.process.standard_streams import open_closed_streams
from wire.control_characters import printable
from wire.errors import BookKeeperError

ABANDON_S: Final = 15.0
"""Seconds that a failed bookie has to release its resources before the process ends anyway."""

GC_THRESHOLD_OF_START: Final = 20_000
"""Allocated objects between two garbage collections during the start; most objects stay."""

GC_THRESHOLDS: Final = (10 * gc.get_threshold()[0], 10, 10)
"""Ten times Python's threshold for a bookie that serves: so the objects of one read of adds to many
ledgers are freed before a collection visits them. Full collections are ten times rarer, too.

With 10,000 requests in progress, a full collection stops the reactor for 50 ms and frees a hundred
objects. The other collections free young garbage.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one bookie until a signal stops it; return the exit status."""
    open_closed_streams(keep_output=False)
    argv = sys.argv[1:] if arguments is None else arguments
    options = parse_options(argv)
    try:
        config, findings = configure(options, os.environ)
        client_config = None
        if options.autorecovery_only or config.has_client:
            client_config = configure_client(options, os.environ)
    except ConfigError as error:
        return _refused(options, error)
    except PropertiesError as error:
        return _end(error, BookieExitStatus.INVALID_CONFIGURATION)
    if options.check_config:
        from bookied.process.config_check_report import check_config

        return check_config(options, config, client_config, findings)
    return _run(config, client_config, findings, options)


def _refused(options: DaemonOptions, error: ConfigError) -> int:
    if options.check_config:
        from bookied.process.config_check_report import show_findings

        return show_findings(error.findings)
    for found in error.findings:
        if found.severity is Severity.ERROR:
            sys.stderr.write(f"bookied: {found}\n")
    return BookieExitStatus.INVALID_CONFIGURATION


def _end(error: BaseException, status: int) -> int:
    message = printable(" ".join(_message_of(error).split())) or type(error).__name__
    sys.stderr.write(f"bookied: {message}\n")
    sys.stderr.flush()
    return status


def _run(
    config: BookieConfig,
    client_config: ClientConfig | None,
    findings: Findings,
    options: DaemonOptions,
) -> int:
    gc.disable()  # Loaded modules stay: a garbage collection of them takes a seventh of a start.
    from bookied.process.log_output import Logging

    os.umask(os.umask(0o777) | config.umask)
    try:
        logging = Logging(
            level=log_level(options, os.environ, config),
            form=options.log_format,
            file=log_path(options, os.environ),
        )
    except OSError as error:
        return _end(error, BookieExitStatus.INVALID_CONFIGURATION)
    logging.begin()
    gc.set_threshold(GC_THRESHOLD_OF_START)

    from bkclient.connection.security.lazy_openssl import load_openssl_late

    load_openssl_late()
    from bookied.process.reactor import install

    install()
    from twisted.internet import reactor

    from bkclient.concurrency import use_steady_clock
    from bkclient.connection.name_lookup import NameLookup

    use_steady_clock(reactor)
    reactor.installNameResolver(NameLookup(reactor))  # type: ignore[attr-defined]
    process = Process(
        config,
        findings,
        logging,
        reactor,
        client_config=client_config,
        autorecovery_only=options.autorecovery_only,
        source=SettingsSource(
            lambda: configure(options, os.environ)[0],
            settings_file(options, os.environ),
            partial(origins, options, os.environ),
        ),
        level_of=partial(log_level, options, os.environ),
    )
    return process.run()


class Process:
    """The process around one bookie: its reactor, signals, service manager and exit status.

    With ``autorecovery_only`` the process runs an auditor and a replication worker, and no bookie.
    ``level_of`` returns the lowest log level that the settings ask for.
    """

    def __init__(
        self,
        config: BookieConfig,
        findings: Findings,
        logging: Any,
        reactor: Any,
        *,
        client_config: ClientConfig | None = None,
        autorecovery_only: bool = False,
        source: SettingsSource,
        level_of: Callable[[BookieConfig], str],
    ) -> None:
        from twisted.internet.task import LoopingCall
        from twisted.logger import Logger

        from bookied.process.service_manager import Notifier
        from bookied.process.signals import ProcessSignals, SignalActions

        self._log = Logger("bookied")
        self._config, self._findings = config, findings
        self._client_config, self._autorecovery_only = client_config, autorecovery_only
        self._logging, self._reactor = logging, reactor
        self._source, self._level_of = source, level_of
        self._notifier = Notifier()
        self._start_extension = LoopingCall(self._notifier.notify, "EXTEND_TIMEOUT_USEC=30000000")
        self._service: Any = None
        self._admin: Any = None
        self._began_s, self._phase = time.monotonic(), ""
        self._collects_at_start = False
        self._signals = ProcessSignals(
            reactor,
            SignalActions(
                stop=self._stop_signal, reopen=self._reopen, collect=self._collect, dump=self._dump
            ),
        )
        self._error: BaseException | None = None
        self._status: int = BookieExitStatus.OK

    def run(self) -> int:
        """Run until the bookie has stopped; return the exit status."""
        from bookied.process.process_limits import raise_open_files_limit

        raise_open_files_limit()
        self._signals.begin()
        self._reactor.callWhenRunning(self._spawn, self._live)
        self._reactor.run(installSignalHandlers=False)
        self._signals.end()
        if self._error is not None:
            self._say_goodbye(self._error)
        return self._status

    def _say_goodbye(self, error: BaseException) -> None:
        """Write why the process ends to stderr, and to the log if it is a file or in JSON."""
        if not self._logging.is_plain_stderr:
            self._log.critical("{error}", error=_message_of(error), exit_status=int(self._status))
        if not self._logging.is_stderr or self._logging.is_plain_stderr:
            _end(error, self._status)

    # Start and stop ------------------------------------------------------------------------------

    async def _live(self) -> None:
        from bookied.process.heap_trim import HeapTrim
        from bookied.process.process_limits import (
            require_enough_open_files,
            require_enough_threads,
            warn_of_small_files,
        )
        from bookied.service.dependencies import real_dependencies
        from bookied.service.fatal_errors import OutOfMemoryWatch
        from bookied.service.start_and_stop import BookieService

        gc.freeze()
        gc.enable()
        _report_settings(self._log, self._config, self._findings)
        options = {} if self._client_config is None else {"client_config": self._client_config}
        try:
            if not self._autorecovery_only:
                require_enough_open_files()
                require_enough_threads(self._config)
                warn_of_small_files(self._config)
            parts = real_dependencies(self._config, self._reactor, **options)
            kind: Any = BookieService
            if self._autorecovery_only:
                from bookied.service.autorecovery import AutoRecoveryService as kind

            self._service = kind(self._config, parts, failed=self._failed, progress=self._progress)
            if isinstance(self._service, BookieService):
                OutOfMemoryWatch(self._reactor.callFromThread, self._service.fail).begin()
                HeapTrim().begin(self._reactor)
            self._start_extension.start(5.0)
            self._begin_admin()
            await self._service.start()
        except BookieStopError as error:
            self._end_with(error)
            return
        finally:
            if self._start_extension.running:
                self._start_extension.stop()
        if self._collects_at_start:
            self._collect()
        # Without this, each full collection stops the reactor for 40 ms to visit loaded modules. A
        # collection at this point would free fewer than a thousand objects.
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        self._notifier.notify("READY=1")
        self._begin_watchdog()
        self._log.info("serving after {seconds:.2f} s", seconds=time.monotonic() - self._began_s)

    def _begin_watchdog(self) -> None:
        """Send the service manager its watchdog message, if the service manager asks for it."""
        timeout_s = self._notifier.watchdog_s
        if timeout_s is None:
            return
        from bookied.process.watchdog import Watchdog

        engine = getattr(self._service, "engine", None)  # Only a bookie has an engine.
        journals = () if engine is None else engine.journals
        alive = partial(self._notifier.notify, "WATCHDOG=1")
        Watchdog(self._reactor, journals, alive, timeout_s=timeout_s).start()

    def _begin_admin(self) -> None:
        """Serve HTTP if the settings ask for it; the modules for HTTP are loaded only then."""
        if not (self._config.http_enabled or self._config.serves_stats_alone):
            return
        if self._autorecovery_only:
            self._begin_repair_metrics()
            return
        from bookied.admin.server import AdminServer

        warnings = sum(found.severity is Severity.WARNING for found in self._findings)
        self._admin = AdminServer(
            self._service,
            version=own_version(),
            config_warnings=warnings,
            source=self._source,
            obey=self._obey,
        )
        self._admin.start()

    def _begin_repair_metrics(self) -> None:
        """Serve only metrics.

        The settings are a bookie's, and a bookie on this host may serve the API.
        """
        if not self._config.serves_stats_alone:
            self._log.info("only bookies serve HTTP, and this process is not a bookie")
            return
        from bookied.admin.server import RepairMetrics

        self._admin = RepairMetrics(self._service)
        self._admin.start()

    def _failed(self, error: BookKeeperError) -> None:
        self._spawn(self._abandon, error)

    async def _abandon(self, error: BookKeeperError) -> None:
        self._signals.is_stopping = True
        self._notifier.notify("STOPPING=1", f"STATUS={error}")
        # The release may hang, too: a disk that does not answer must not keep the process alive.
        self._reactor.callLater(ABANDON_S, self._end_at_once, error)
        await self._service.abandon()
        self._end_with(error)

    async def _stop(self) -> None:
        self._notifier.notify("STOPPING=1")
        if self._config.stop_wait_ms:
            self._reactor.callLater(self._config.stop_wait_ms / 1000, self._stop_took_too_long)
        if self._service is not None:
            await self._service.stop()
        if self._admin is not None:
            await self._admin.close()
        self._stop_reactor()

    def _stop_took_too_long(self) -> None:
        after_s = self._config.stop_wait_ms / 1000
        self._end_at_once(
            StopTimeoutError(
                f"not stopped within {after_s:g} s, still at: {self._phase}; nothing that was "
                "acknowledged is lost, the next start replays it"
            )
        )

    def _end_with(self, error: BaseException) -> None:
        status = _status_of(error)
        if status != BookieExitStatus.OK:
            self._error, self._status = error, status
        self._stop_reactor()

    def _stop_reactor(self) -> None:
        if not self._signals.is_over:
            self._signals.is_over = True
            self._reactor.stop()

    def _end_at_once(self, error: BaseException) -> None:
        self._status = _status_of(error)
        self._say_goodbye(error)
        os._exit(self._status)

    def _spawn(self, function: Any, *arguments: Any) -> None:
        from twisted.internet.defer import Deferred

        Deferred.fromCoroutine(function(*arguments)).addErrback(self._crashed)

    def _crashed(self, failure: Any) -> None:
        if not isinstance(failure.value, BookKeeperError):
            self._log.failure("bookied failed", failure)
        self._end_with(failure.value)

    # Reporting -----------------------------------------------------------------------------------

    def _progress(self, phase: str) -> None:
        self._phase = phase
        self._notifier.notify(f"STATUS={phase}")

    # Signals -------------------------------------------------------------------------------------

    def _stop_signal(self) -> None:
        self._log.info("asked to stop")
        self._spawn(self._stop)

    def _reopen(self) -> None:
        self._notifier.notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
        try:
            self._logging.reopen()
        except OSError as error:
            self._log.error("the log file cannot be opened: {error}", error=error)
        self._log.info("log file opened")
        try:
            fresh = self._source.read()
        except (ConfigError, PropertiesError) as error:
            self._log.error("kept the old settings: {error}", error=error)
        else:
            self._take_settings(fresh)
        if self._admin is not None:
            self._admin.reload()
        if self._service is not None:
            self._service.reload()
        self._notifier.notify("READY=1")

    def _take_settings(self, fresh: BookieConfig) -> None:
        from bookied.config.reload import reloaded

        found = reloaded(self._config, fresh)
        if found.taken:
            taken = ", ".join(f"{key}={text}" for key, text in found.taken)
            self._log.info("applied changed settings: {taken}", taken=taken)
            self._obey(found.config)
        if found.later:
            later = ", ".join(found.later)
            self._log.warn("changed settings that need a restart: {later}", later=later)

    def _obey(self, config: BookieConfig) -> None:
        """Apply the settings that can change while the bookie runs."""
        self._config = config
        self._logging.set_level(self._level_of(config))
        if self._service is not None and not self._autorecovery_only:
            self._service.settings_changed(config)

    def _collect(self) -> None:
        if self._autorecovery_only:
            self._log.warn("this process is not a bookie: it has no garbage to collect")
            return
        collecting = None if self._service is None else self._service.background.collect_garbage()
        if collecting is None:
            self._collects_at_start = True
            self._log.info("garbage is collected once the bookie serves")
        else:
            self._log.info("garbage collection was requested")
            collecting.addErrback(self._crashed)

    def _dump(self) -> None:
        from bookied.process.signals import thread_stacks

        if self._service is not None:
            for what, value in self._service.dump().items():
                self._log.info("{what}: {value}", what=what, value=value)
        for number, stack in thread_stacks():
            self._log.info("thread {number}: {stack}", number=number, stack=stack)


def _report_settings(log: Any, config: BookieConfig, findings: Findings) -> None:
    """Log the settings that are not the defaults, and the problems in the settings."""
    from twisted.logger import LogLevel

    for level, text in remarks(os.environ):
        log.emit(LogLevel.lookupByName(level), "{text}", text=text)
    different = ", ".join(f"{key}={text}" for key, text in non_default_settings(config))
    log.info("settings that are not the defaults: {different}", different=different)
    ignored = [found.key for found in findings if found.severity is Severity.NOTE]
    if ignored:
        log.info("settings without effect here: {keys}", keys=", ".join(ignored))
    for found in (*findings, *open_to_others(config)):
        if found.severity is Severity.WARNING:
            log.warn("{finding}", finding=str(found))


def _message_of(error: BaseException) -> str:
    """Return the message of an error, with its hint if it has one."""
    hint = error.hint if isinstance(error, BookKeeperError) else ""
    return f"{error}; {hint}" if hint else str(error)


def _status_of(error: BaseException) -> int:
    """Return the exit status of an error: its own if it has a status of a bookie, else FATAL."""
    from bookied.errors import StartError, StorageError

    if isinstance(error, (BookieStopError, StartError)):
        return error.exit_status
    if isinstance(error, StorageError) and error.exit_status in {
        BookieExitStatus.FATAL,
        BookieExitStatus.DAMAGED,
    }:
        return error.exit_status
    return BookieExitStatus.FATAL


if __name__ == "__main__":
    sys.exit(main())
