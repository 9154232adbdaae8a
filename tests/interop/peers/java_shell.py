"""The shell of the Java release: what a command logged, with the values, and what it printed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

import attrs

from tests.interop.peers.jvm import (
    FAST_JVM,
    LOG_LEVEL_PROPERTY,
    SHELL_LOGGERS,
    JavaError,
    JavaVM,
    java_command,
)


@attrs.frozen
class ShellEvent:
    """One line of result of the Java shell: what it logged, and the values it logged with it."""

    logger: str
    level: str
    message: str
    attributes: Mapping[str, str]


@attrs.frozen
class ShellResult:
    """What a command of the Java shell did. ``printed`` is what went to stdout past the logger."""

    returncode: int
    events: tuple[ShellEvent, ...]
    printed: str
    stderr: str

    def attribute(self, name: str) -> list[str]:
        """Return the values logged under ``name``, in order."""
        return [e.attributes[name] for e in self.events if name in e.attributes]


def java_shell(vm: JavaVM, conf: Path, *arguments: object) -> ShellResult:
    """Run ``bookkeeper shell ARGUMENTS`` with the configuration file ``conf`` in a JVM of clients.

    It does what the shell's ``main`` does, without the start of a JVM, which takes far longer than
    most commands.

    Raises:
        PeerUnavailable: the JVM does not start.
    """
    vm.start()
    io, system, util = vm.java.io, vm.java.lang.System, vm.bookkeeper.util
    settings = vm.bookkeeper.conf.ServerConfiguration()
    settings.loadConf(io.File(str(conf)).toURI().toURL())
    ids = util.LedgerIdFormatter.newLedgerIdFormatter(settings)
    shell = vm.bookkeeper.bookie.BookieShell(ids, util.EntryFormatter.newEntryFormatter(settings))
    shell.setConf(settings)
    words = vm.array(vm.java.lang.String, [*map(str, arguments)])
    printed, stdout, before = io.ByteArrayOutputStream(), system.out, vm.log.stat().st_size
    system.setOut(io.PrintStream(printed, True))
    try:
        returncode, thrown = vm.call(shell.run, words), ""
    except JavaError as error:
        returncode, thrown = 1, str(error)
    finally:
        system.setOut(stdout)
    with vm.log.open("rb") as log:
        log.seek(before)
        events, rest = _shell_output(log.read().decode("utf-8", "replace"))
    return ShellResult(returncode, tuple(events), printed.toString(), rest + thrown)


def java_shell_process(conf: Path, *arguments: object, timeout_s: float = 120.0) -> ShellResult:
    """Run ``bookkeeper shell ARGUMENTS`` with the configuration file ``conf`` as users do.

    Raises:
        PeerUnavailable: Java or its jars are missing.
    """
    directory = conf.parent / "shell"
    directory.mkdir(exist_ok=True)
    options = [*FAST_JVM, "-Xmx256m", f"-D{LOG_LEVEL_PROPERTY}=WARN"]
    main = ["org.apache.bookkeeper.bookie.BookieShell", "-conf", str(conf), *map(str, arguments)]
    command = java_command(directory, options, main, results=SHELL_LOGGERS)
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    events, printed = _shell_output(done.stdout)
    return ShellResult(done.returncode, tuple(events), printed, done.stderr)


def _shell_output(text: str) -> tuple[list[ShellEvent], str]:
    """Tell the logger's JSON lines from all else."""
    events, others = [], []
    for line in text.splitlines(keepends=True):
        event = _shell_event(line)
        if event is None:
            others.append(line)
        else:
            events.append(event)
    return events, "".join(others)


def _shell_event(line: str) -> ShellEvent | None:
    if not line.startswith("{"):
        return None
    try:
        found = json.loads(line)
        return ShellEvent(
            found["loggerName"], found["level"], found["message"], found.get("contextMap", {})
        )
    except (ValueError, KeyError):
        return None
