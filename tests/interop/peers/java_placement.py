"""Java's placement policies, asked in a JVM: which bookies they choose, and what they refuse."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from tests.interop.peers.jvm import JavaVM
from wire.ids import BookieId

_SCRIPT = """#!/bin/sh
for host in "$@"; do
  case $host in
    10.*) echo "$host" | sed -E 's|^10\\.([0-9]+)\\.([0-9]+)\\..*$|/p\\1/k\\2|' ;;
    *) echo OTHERS ;;
  esac
done
"""


def bookie(place: int, inner: int, number: int) -> BookieId:
    """Return a bookie that the script puts into ``/p<place>/k<inner>``."""
    return BookieId(f"10.{place}.{inner}.{number}:3181")


STRANGER = BookieId("11.0.0.1:3181")
"""One that the script puts where it puts this host."""


def location(of: BookieId, others: str) -> str:
    """Return what the script says of a bookie."""
    octets = of.split(".")
    return f"/p{octets[1]}/k{octets[2]}" if octets[0] == "10" else others


def write_script(path: Path, others: str) -> Path:
    """Write a topology script; whoever has no place, such as this host, is at ``others``."""
    path.write_text(_SCRIPT.replace("OTHERS", others), encoding="utf-8")
    path.chmod(0o755)
    return path


class JavaPlacement:
    """One of Java's policies; ``cluster`` says who is there. Raises ``JavaError`` where it throws.

    ``conf`` takes the Java names.
    """

    def __init__(self, vm: JavaVM, name: str, script: Path, **conf: object) -> None:
        self._vm = vm
        configuration = vm.bookkeeper.conf.ClientConfiguration()
        configuration.setProperty("networkTopologyScriptFileName", str(script))
        for key, value in conf.items():
            configuration.setProperty(key, value)
        made = vm.bookkeeper.common.util.ReflectionUtils.newInstance(
            vm.type(f"org.apache.bookkeeper.client.{name}")
        )
        self._policy = vm.call(
            made.initialize,
            configuration,
            vm.java.util.Optional.empty(),
            vm.netty.util.HashedWheelTimer(),
            vm.bookkeeper.feature.SettableFeatureProvider.DISABLE_ALL,
            vm.bookkeeper.stats.NullStatsLogger.INSTANCE,
            vm.bookkeeper.net.BookieSocketAddress.LEGACY_BOOKIEID_RESOLVER,
        )

    def cluster(self, bookies: Collection[BookieId]) -> None:
        """Tell it which bookies are writable."""
        self._vm.call(self._policy.onClusterChanged, self._set(bookies), self._set(()))

    def choose(self, size: int, write_quorum: int, ack_quorum: int) -> tuple[BookieId, ...]:
        result = self._vm.call(
            self._policy.newEnsemble, size, write_quorum, ack_quorum, {}, self._set(())
        )
        return tuple(BookieId(str(one)) for one in result.getResult())

    def replace(
        self, ensemble: Sequence[BookieId], index: int, write_quorum: int, ack_quorum: int
    ) -> BookieId:
        result = self._vm.call(
            self._policy.replaceBookie,
            len(ensemble),
            write_quorum,
            ack_quorum,
            {},
            self._list(ensemble),
            self._id(ensemble[index]),
            self._set([ensemble[index]]),
        )
        return BookieId(str(result.getResult()))

    def adherence(self, ensemble: Sequence[BookieId], write_quorum: int, ack_quorum: int) -> str:
        """Return its judgement: MEETS_STRICT, MEETS_SOFT or FAIL."""
        judge = self._policy.isEnsembleAdheringToPlacementPolicy
        return str(self._vm.call(judge, self._list(ensemble), write_quorum, ack_quorum))

    def spans_enough(self, acked: Collection[BookieId], write_quorum: int, ack_quorum: int) -> bool:
        judge = self._policy.areAckedBookiesAdheringToPlacementPolicy
        return bool(self._vm.call(judge, self._set(acked), write_quorum, ack_quorum))

    def read_order(self, ensemble: Sequence[BookieId], write_quorum: int) -> list[int]:
        """Return the order in which it reads the first entry, where nobody ever failed."""
        client = self._vm.bookkeeper.client
        schedule = client.RoundRobinDistributionSchedule(write_quorum, 1, len(ensemble))
        ordered = self._vm.call(
            self._policy.reorderReadSequence,
            self._list(ensemble),
            self._vm.once(_all_healthy),
            schedule.getWriteSet(0),
        )
        return [ordered.get(place) for place in range(write_quorum)]

    def _id(self, one: BookieId) -> Any:
        return self._vm.bookkeeper.net.BookieId.parse(one)

    def _list(self, bookies: Collection[BookieId]) -> Any:
        made = self._vm.java.util.ArrayList()
        for one in bookies:
            made.add(self._id(one))
        return made

    def _set(self, bookies: Collection[BookieId]) -> Any:
        return self._vm.java.util.HashSet(self._list(bookies))


def _all_healthy(vm: JavaVM) -> Any:
    """Make a BookiesHealthInfo that knows of no failures and no requests: its answers are -1."""
    kinds = ["java.lang.Object", "java.lang.reflect.Method", "[Ljava.lang.Object;"]
    handles = vm.java.lang.invoke.MethodHandles
    answer = handles.constant(vm.type("long"), -1).asType(
        vm.java.lang.invoke.MethodType.methodType(vm.type("java.lang.Object"))
    )
    ignoring = handles.dropArguments(
        answer, 0, vm.array(vm.java.lang.Class, [vm.type(kind) for kind in kinds])
    )
    info = vm.type("org.apache.bookkeeper.client.BookiesHealthInfo")
    return vm.java.lang.reflect.Proxy.newProxyInstance(
        info.getClassLoader(),
        vm.array(vm.java.lang.Class, [info]),
        vm.function(ignoring, "java.lang.reflect.InvocationHandler"),
    )
