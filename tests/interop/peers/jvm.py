"""A JVM with the Java release on its class path, driven from Python over py4j.

There is no Java source here. Where thousands of calls must not cross the border one by one, the
loop runs inside the JVM: java.util.stream over functions that are made of method handles.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from py4j.java_gateway import (
    GatewayParameters,
    JavaGateway,
    JavaObject,
    JavaPackage,
    is_instance_of,
)
from py4j.protocol import Py4JJavaError

from bkctl.commands.local.child_process import ChildProcess, ServerProcess
from bkctl.commands.local.java import Java, find_java
from tests.interop.peers.jars import PeerUnavailable, common_class_path, shared_classes
from tests.support.waiting import START_S, NotInTimeError, until

if TYPE_CHECKING:
    from typing_extensions import Self

FAST_JVM: Final = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
)
"""Small and quick to start, from the archive of classes; a run that measures leaves them out."""

NETTY_OPTIONS: Final = (
    "-Dio.netty.leakDetectionLevel=disabled",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-opens=java.base/java.io=ALL-UNNAMED",
    "--add-opens=java.base/java.util.zip=ALL-UNNAMED",
    "-Djava.net.preferIPv4Stack=true",
    "-Dorg.bouncycastle.fips.approved_only=true",
)
"""What the release's own start script gives every JVM."""

_CLOSES_AT_ONCE: Final = "-Dzookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty"
"""ZooKeeper's other client socket sleeps for 100 ms whenever a client is closed."""

LOG_LEVEL_PROPERTY: Final = "bkctl.test.level"

SHELL_LOGGERS: Final = (
    "org.apache.bookkeeper.bookie.BookieShell",
    "org.apache.bookkeeper.bookie.InterleavedStorageRegenerateIndexOp",
    "org.apache.bookkeeper.client.BookKeeperAdmin",
    "org.apache.bookkeeper.tools.cli.commands",
)
"""The loggers whose lines the release's shell shows as results (its conf/log4j2.shell.xml)."""

_OPENED_FOR_REFLECTION: Final = tuple(
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in (
        "java.lang", "java.lang.invoke", "java.util", "java.util.concurrent", "java.util.stream"
    )
)  # fmt: skip

_LOG4J: Final = """<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="error">
  <Appenders>
    <Console name="TEXT" target="SYSTEM_ERR">
      <PatternLayout pattern="%d{ISO8601} %-5p [%t] %c{1} - %m %X%n"/>
    </Console>
    <Console name="RESULTS" target="SYSTEM_OUT">
      <JsonLayout compact="true" eventEol="true" properties="true"/>
    </Console>
  </Appenders>
  <Loggers>
    <Root level="${sys:bkctl.test.level:-INFO}"><AppenderRef ref="TEXT"/></Root>
    RESULT_LOGGERS
  </Loggers>
</Configuration>
"""


class JavaError(Exception):
    """The Java side threw.

    ``name`` is the simple name of the BKException's class where there is one, else of the
    innermost cause; ``code`` is the BKException's code or None.
    """

    def __init__(self, name: str, code: int | None, message: str) -> None:
        super().__init__(f"{name} ({code}): {message}")
        self.name, self.code = name, code


class Package:
    """A package of the JVM. py4j asks for each part of a name each time; this one asks once.

    The JVM looks through its whole class path to say that ``java.util`` is not a class.
    """

    def __init__(self, package: JavaPackage) -> None:
        self._package = package

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._package, name)
        found = Package(found) if isinstance(found, JavaPackage) else found
        setattr(self, name, found)
        return found


def _java(vm: JavaVM) -> Package:
    return Package(vm.gateway.jvm.java)


def _bookkeeper(vm: JavaVM) -> Package:
    return Package(vm.gateway.jvm.org.apache.bookkeeper)


def _netty(vm: JavaVM) -> Package:
    return Package(vm.gateway.jvm.io.netty)


class JavaVM(ServerProcess):
    """One JVM for any number of Java clients; each client has its own threads and connections.

    ``kill`` takes all of them away at once, as a crash of the writing program would.
    """

    def __init__(
        self,
        directory: Path,
        *,
        heap_mb: int = 256,
        jvm_options: Sequence[str] = FAST_JVM,
        log_level: str = "WARN",
        java: Java | None = None,
    ) -> None:
        super().__init__()
        self.directory = directory
        self._options = [f"-Xmx{heap_mb}m", *jvm_options, f"-D{LOG_LEVEL_PROPERTY}={log_level}"]
        self._java = java
        self._gateway: JavaGateway | None = None
        self._kept: dict[Callable[[JavaVM], Any], Any] = {}

    def start(self, timeout_s: float = START_S) -> Self:
        """Start it, if it is not up already.

        Raises:
            PeerUnavailable: the jars are not here, or the JVM does not start.
        """
        if self._process is None:
            self.directory.mkdir(parents=True, exist_ok=True)
            self.log.unlink(missing_ok=True)
            options = [*self._options, *_OPENED_FOR_REFLECTION, _CLOSES_AT_ONCE]
            main = ["py4j.GatewayServer", "--enable-auth", "0"]
            command = java_command(
                self.directory, options, main, java=self._java, results=SHELL_LOGGERS
            )
            self._process = ChildProcess(command, self.log, cwd=self.directory)
            try:
                port, token = self._read_address(timeout_s)
                parameters = GatewayParameters(port=port, auth_token=token, auto_convert=True)
                self._gateway = JavaGateway(gateway_parameters=parameters)
                # Else the last part of a long answer waits 40 ms for an acknowledgement.
                for connection in self.field(self._gateway.java_gateway_server, "connections"):
                    connection.getSocket().setTcpNoDelay(True)
            except BaseException:
                self.kill()
                raise
        return self

    @property
    def log(self) -> Path:
        """What it writes to stdout and stderr."""
        return self.directory / "jvm.log"

    @property
    def gateway(self) -> JavaGateway:
        assert self._gateway is not None, "not started"
        return self._gateway

    @property
    def java(self) -> Any:
        """The package ``java``: ``vm.java.util.ArrayList()``."""
        return self.once(_java)

    @property
    def bookkeeper(self) -> Any:
        """The package ``org.apache.bookkeeper``."""
        return self.once(_bookkeeper)

    @property
    def netty(self) -> Any:
        """The package ``io.netty``."""
        return self.once(_netty)

    def stop(self, timeout_s: float = 10.0) -> int | None:
        """End it in good order, and return its exit status; harmless when it is not up."""
        status = super().stop(timeout_s)
        self._forget()
        return status

    def kill(self) -> int | None:
        """End it with SIGKILL."""
        status = super().kill()
        self._forget()
        return status

    def _forget(self) -> None:
        self._kept.clear()
        if self._gateway is not None:
            # Closes our sockets; the process has ended before.
            self._gateway.shutdown(raise_exception=False)
            self._gateway = None

    def __enter__(self) -> Self:
        return self.start()

    def call(self, method: Any, *arguments: Any) -> Any:
        """Call a Java method.

        Raises:
            JavaError: it threw.
        """
        try:
            return method(*arguments)
        except Py4JJavaError as e:
            raise self.error(e.java_exception) from e

    def field(self, of: JavaObject, name: str) -> Any:
        """Return what a private field holds."""
        field = of.getClass().getDeclaredField(name)
        field.setAccessible(True)
        return field.get(of)

    def error(self, thrown: JavaObject) -> JavaError:
        """Return what was thrown as a Python exception."""
        cause = thrown
        while True:
            if is_instance_of(self.gateway, cause, "org.apache.bookkeeper.client.api.BKException"):
                code = cause.getCode()
                break
            following = cause.getCause()
            if following is None:
                code = None
                break
            cause = following
        return JavaError(cause.getClass().getSimpleName(), code, str(cause.toString()))

    # Method handles: how loops are made without Java source.

    def type(self, name: str) -> Any:
        """Return a Class: ``long``, ``byte[]``, or a full name."""
        lang = self.java.lang
        known = {"void": lang.Void, "int": lang.Integer, "long": lang.Long, "boolean": lang.Boolean}
        if name in known:
            return known[name].TYPE
        return lang.Class.forName({"byte[]": "[B", "long[]": "[J"}.get(name, name))

    def virtual(self, owner: str, name: str, result: str, *parameters: str) -> Any:
        """Return the method as a handle; its object is its first argument."""
        return self._lookup().findVirtual(
            self.type(owner), name, self._method_type(result, parameters)
        )

    def static(self, owner: str, name: str, result: str, *parameters: str) -> Any:
        return self._lookup().findStatic(
            self.type(owner), name, self._method_type(result, parameters)
        )

    def function(self, handle: Any, interface: str = "java.util.function.Function") -> Any:
        """Return an object of ``interface``, whose one method calls ``handle``."""
        proxies = self.java.lang.invoke.MethodHandleProxies
        return proxies.asInterfaceInstance(self.type(interface), handle)

    def once(self, make: Callable[[JavaVM], Any]) -> Any:
        """Return what ``make`` returned the first time: a function is a class made as it runs."""
        if make not in self._kept:
            self._kept[make] = make(self)
        return self._kept[make]

    def array(self, element: Any, values: Sequence[Any]) -> Any:
        """Return ``values`` as a Java array of ``element``."""
        array = self.gateway.new_array(element, len(values))
        for i, value in enumerate(values):
            array[i] = value
        return array

    def _lookup(self) -> Any:
        return self.java.lang.invoke.MethodHandles.publicLookup()

    def _method_type(self, result: str, parameters: Sequence[str]) -> Any:
        types = self.array(self.java.lang.Class, [self.type(name) for name in parameters])
        return self.java.lang.invoke.MethodType.methodType(self.type(result), types)

    def _read_address(self, timeout_s: float) -> tuple[int, str]:
        """Wait for the two lines the gateway prints when it listens: port and token."""
        assert self._process is not None
        process = self._process

        def printed() -> re.Match[str] | None:
            text = process.log.read_text(encoding="utf-8", errors="replace")
            return re.search(r"^(\d+)\n(\S+)\n", text, re.MULTILINE)

        def goes_on() -> None:
            if process.returncode is not None:
                raise NotInTimeError

        try:
            found = until(printed, timeout_s=timeout_s, check=goes_on)
        except NotInTimeError as error:
            tail = process.log_tail()
            raise PeerUnavailable(f"no JVM for the Java client:\n{tail}") from error
        assert found is not None
        return int(found[1]), found[2]


def java_command(
    directory: Path,
    options: Sequence[str],
    main: Sequence[str],
    *,
    java: Java | None = None,
    behind: Sequence[Path] = (),
    results: Sequence[str] = (),
) -> list[str]:
    """Return the command line of a JVM of the Java release.

    With ``FAST_JVM`` among the options it starts with the archive that ``class_archive`` has made.

    Its logging is set up by a file written to ``directory``: text on stderr, and the loggers named
    in ``results`` as JSON lines on stdout (the release prints results through its logger, and its
    own layout for the shell leaves the values out).

    Raises:
        PeerUnavailable: the jars are not here.
    """
    java = java or find_java()
    class_path = [*common_class_path(), *behind]
    loggers = "".join(
        f'<Logger name="{name}" level="INFO" additivity="false">'
        '<AppenderRef ref="RESULTS"/></Logger>'
        for name in results
    )
    log4j = directory / "log4j2.xml"
    log4j.write_text(_LOG4J.replace("RESULT_LOGGERS", loggers), encoding="utf-8")
    return [
        str(java.executable),
        *NETTY_OPTIONS,
        *(shared_classes(java) if {*FAST_JVM} <= {*options} else ()),
        f"-Dlog4j.configurationFile={log4j}",
        f"-Djava.io.tmpdir={directory}",
        *options,
        "-cp",
        os.pathsep.join(map(str, class_path)),
        *main,
    ]
