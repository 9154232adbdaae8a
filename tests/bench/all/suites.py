"""The benches with Java's figure beside ours: how each is run, and how its lines are read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import attrs

from tests.bench.all.table import Figure

_KINDS: Final = {"java": "java", "ours": "ours", "our": "ours"}


def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


@attrs.frozen
class Pattern:
    """Lines with figures: groups ``kind`` and ``value``, or ``java`` and ``ours``.

    Besides these it has the groups that ``row`` has in braces.
    """

    line: re.Pattern[str] = attrs.field(converter=_compiled)
    row: str
    unit: str
    is_rate: bool


@attrs.frozen(kw_only=True)
class Suite:
    """One bench."""

    name: str
    module: str
    full: str
    """Its arguments."""
    quick: str
    patterns: tuple[Pattern, ...]
    context: re.Pattern[str] | None = attrs.field(
        default=None, converter=attrs.converters.optional(_compiled)
    )
    """Lines that say what those behind them are about, as groups for ``row``."""

    def arguments(self, *, quick: bool) -> list[str]:
        """Return the arguments of a run."""
        return (self.quick if quick else self.full).split()

    def figures(self, text: str) -> Iterator[Figure]:
        """Yield the figures in what the bench printed."""
        about: dict[str, str] = {}
        for line in text.splitlines():
            if self.context is not None and (found := self.context.search(line)):
                about = found.groupdict()
            for pattern in self.patterns:
                match = pattern.line.search(line)
                if match is None:
                    continue
                groups = match.groupdict()
                row = " ".join(pattern.row.format(**about, **groups).split())
                if "kind" in groups:
                    values = {_KINDS[groups["kind"]]: groups["value"]}
                else:
                    values = {kind: groups[kind] for kind in ("java", "ours")}
                for kind, value in values.items():
                    number = float(value.replace(",", ""))
                    yield Figure(row, kind, number, pattern.unit, pattern.is_rate)


_NUMBER = r"(?P<value>[\d.,]*\d)"

_ADD_CONTEXT = r"^ *(?P<size>\d+ B) +c(?P<c>\d+) +w(?P<window>\d+) +(?P<protocol>v\d(?: TLS)?)"


def _adds(name: str, full: str, quick: str, what: str) -> Suite:
    """Return a suite of adds to one bookie; ``what`` says which ones in a row's name."""
    return Suite(
        name=name,
        module="bookie_bench",
        full=f"--kinds java,ours {full}",
        quick=f"--kinds java,ours --seconds 2 --megabytes 100 {quick}",
        context=_ADD_CONTEXT,
        patterns=(
            Pattern(
                rf"^  (?P<kind>java|ours) +{_NUMBER}/s", f"one bookie, adds of {what}", "/s", True
            ),
            Pattern(
                rf"^  (?P<kind>java|ours) +[\d,]+/s .* p99 +{_NUMBER} ",
                f"the same, p99 ({what})",
                "ms",
                False,
            ),
        ),
    )


def _ledgers(name: str, full: str, quick: str) -> Suite:
    """Return a suite of adds to many ledgers, alone and beside readers."""
    about = "{ledgers} ledgers{shape}"
    return Suite(
        name=name,
        module="ledgers_bench",
        full=full,
        quick=f"--adds 60000 --megabytes 30 --rounds 1 {quick}",
        context=r"^(?P<ledgers>\d+) ledgers, (?P<size>\d+) B(?P<shape>.*)$",
        patterns=(
            Pattern(
                rf"^(?P<kind>java|ours) (?P<how>[a-z ]+): {_NUMBER} adds/s",
                f"{about}, adds of {{size}} B {{how}}",
                "/s",
                True,
            ),
            Pattern(
                rf"^(?P<kind>java|ours) (?P<how>[a-z ]+): .* p99 {_NUMBER} ms",
                f"the same, p99 {{how}} ({about})",
                "ms",
                False,
            ),
            Pattern(
                rf"^(?P<kind>java|ours) .* {_NUMBER} reads/s catching up",
                f"the same, the reader that catches up ({about})",
                "/s",
                True,
            ),
        ),
    )


_PULSAR: Final = "--db --size 100"

SUITES: Final = (
    _adds(
        "adds",
        "--sizes 100,1024,10240 --windows 1,10,1000 --rounds 3",
        "--sizes 1024,10240 --windows 1,1000",
        "{size}, window {window}, {protocol}",
    ),
    _adds(
        "tls",
        "--sizes 1024 --windows 1,1000 --protocols v2,v3 --rounds 3 --tls",
        "--sizes 1024 --windows 1000 --protocols v2,v3 --tls",
        "{size}, window {window}, {protocol}",
    ),
    _adds(
        "large",
        "--sizes 65536,1048576 --windows 1,16 --rounds 3",
        "--sizes 65536,1048576 --windows 16",
        "{size}, window {window}, {protocol}",
    ),
    _adds(
        "connections",
        "--sizes 1024 --windows 1000 --connections 200 --protocols v2,v3 --rounds 3",
        "--sizes 1024 --windows 1000 --connections 200 --protocols v2,v3",
        "{size}, {c} connections, window {window}, {protocol}",
    ),
    _ledgers("beside", "", ""),
    _ledgers("pulsar", f"{_PULSAR} --ledgers 1000", f"{_PULSAR} --ledgers 1000"),
    _ledgers("pulsar-many", f"{_PULSAR} --ledgers 10000", f"{_PULSAR} --ledgers 10000"),
    _ledgers("disks", "--journals 2 --directories 4", "--journals 2 --directories 4"),
    Suite(
        name="cluster",
        module="cluster_bench",
        full="--adds 50000 --rounds 3",
        quick="--adds 5000 --rounds 1",
        patterns=(
            Pattern(
                rf"^  (?P<kind>java|our) client (?P<v>v\d) +on bookied +{_NUMBER} adds/s",
                "the client, adds on bookied, {v}",
                "/s",
                True,
            ),
            Pattern(
                rf"^  (?P<kind>java|our) client (?P<v>v\d) +on bookied .*"
                rf" {_NUMBER} reads/s",
                "the client, reads on bookied, {v}",
                "/s",
                True,
            ),
        ),
    ),
    Suite(
        name="reads",
        module="read_bench",
        full="--megabytes 100 --ledgers 10000 --rounds 3 --reads 50000",
        quick="--megabytes 30 --ledgers 3000 --rounds 1 --reads 20000",
        patterns=(
            Pattern(
                rf"^(?P<what>sequential|scattered) +(?P<heat>cold|warm): (?P<kind>java|ours) +"
                rf"{_NUMBER}/s",
                "one bookie, {what} reads, {heat}",
                "/s",
                True,
            ),
        ),
    ),
    Suite(
        name="ranges",
        module="range_bench",
        full="--kinds bookied --rounds 5",
        quick="--kinds bookied --entries 10000 --rounds 2",
        patterns=(
            Pattern(
                rf"^bookied +(?P<kind>java|ours) (?P<how>v\d, \w+) +{_NUMBER} reads/s",
                "complete ledgers on bookied, {how}",
                "/s",
                True,
            ),
        ),
    ),
    Suite(
        name="restart",
        module="restart_bench",
        full="--megabytes 1000",
        quick="--megabytes 200",
        patterns=(
            Pattern(
                rf"^(?P<kind>java|ours): {_NUMBER} s to replay and serve",
                "restart, to the first answer",
                "s",
                False,
            ),
        ),
    ),
    Suite(
        name="audit",
        module="audit_bench",
        full="--stores zookeeper",
        quick="--stores zookeeper --ledgers 10000",
        patterns=(
            Pattern(
                rf"^zookeeper, (?P<kind>java|ours), (?P<what>no bookie lost|one lost): "
                rf"{_NUMBER} s",
                "an audit, {what}",
                "s",
                False,
            ),
        ),
    ),
    Suite(
        name="repair",
        module="repair_bench",
        full="--gigabytes 1 --batches 10,100",
        quick="--gigabytes 0.1 --batches 100",
        patterns=(
            Pattern(
                rf"^(?P<kind>java|ours), batches of (?P<batch>\d+): .* s: {_NUMBER} MB/s",
                "repair, batches of {batch}",
                "MB/s",
                True,
            ),
        ),
    ),
    Suite(
        name="commands",
        module="cli_bench",
        full="--rounds 3",
        quick="--ledgers 2000 --many 0 --rounds 1",
        patterns=(
            Pattern(
                r"^(?P<what>[\w-][\w ,-]*?) +(?P<ours>\d+) ms( +\d+ ms)? +(?P<java>\d+) ms"
                r" +\d+ ms +\d+\.",
                "bkctl, {what}",
                "ms",
                False,
            ),
        ),
    ),
)
