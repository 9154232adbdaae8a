"""Pictures for README and docs, from real runs: ``python -m tests.support.pictures [NAME...]``.

A cluster of six bookies runs; commands run on a terminal (``tests.shell.screen``), and what is on
its screen then is drawn as SVG by rich, into ``docs/pictures``. Figures in them are those of the
run, so no two runs give the same bytes; ``tests/project/test_pictures.py`` holds that each picture
is there and shows what it is said to show.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs
from rich.console import Console
from rich.style import Style
from rich.text import Text

from bkctl.cli.root import cli
from bkctl.commands.local.cluster import LocalCluster
from bkctl.commands.local.metadata import ClusterMetadata
from bkctl.commands.local.run import DAEMONS
from tests.shell.screen import Terminal, terminal
from tests.support.recording import Recorder, animated
from tests.support.waiting import until

ROOT: Final = Path(__file__).parents[2]
PICTURES_DIR: Final = ROOT / "docs" / "pictures"
BOOKIES: Final = 6
PORT_BASE: Final = 3181
REPLACED: Final = 3
"""The ledger that loses a bookie while it is written to."""
LOST_NUMBER: Final = 2
LOST: Final = f"127.0.0.1:{PORT_BASE + LOST_NUMBER - 1}"
"""The bookie that is lost in the recorded session."""
REPAIRED_BYTES: Final = 20_000_000
REPAIRED_LEDGERS: Final = 30
RACK_COUNT: Final = 3
RACKS: Final = """\
#!/bin/sh
for host; do
  case $host in
    127.0.0.1) echo /hall-1/rack-a ;;
    127.0.0.2) echo /hall-1/rack-b ;;
    127.0.0.3) echo /hall-2/rack-c ;;
    *) echo /default-rack ;;
  esac
done
"""
"""What ``networkTopologyScriptFileName`` names: the rack of each of the bookies' hosts."""
SCRIPT_KEY: Final = "networkTopologyScriptFileName"
SETTINGS: Final = {
    "httpServerEnabled": "true", "httpServerPort": "0",
    "statsProviderClass": "org.apache.bookkeeper.stats.prometheus.PrometheusMetricsProvider",
}  # fmt: skip
LOAD: Final = ("bench", "write", "-n", "10000000", "--window", "100", "-q")
LINES: Final = 40
TOP_LINES: Final = 16
TOP_ROUNDS_S: Final = 75.0
"""How long ``top`` looks before it is drawn: bookies tell latencies of their last minute."""
SHELL_LINES: Final = 20
QUIET_S: Final = 1.0
"""A screen that stays as it is for so long shows all."""
PROMPT: Final = "$ "

_COLORS: Final = {"brown": "yellow", "brightbrown": "brightyellow"}
"""Names that pyte has and rich has not."""


@attrs.frozen(kw_only=True)
class Picture:
    """One picture: what is typed for it, and how wide the terminal is."""

    name: str
    title: str
    commands: tuple[str, ...]
    columns: int = 96
    with_loss: bool = False
    """Taken while one bookie is down."""
    shell: tuple[str, ...] = ()
    """What is typed into ``bkctl shell``; the commands are then those that show there."""
    until: str = ""
    """What the last screen shows, where it is not that of a command that has ended."""
    under_load: bool = False
    """The command goes on until it is left, and entries are added meanwhile."""
    is_recorded: bool = False
    """Drawn as it moves, in a cluster of its own. A bookie is killed after the first command."""


PICTURES: Final = (
    Picture(
        name="bookie-list",
        title="The bookies of a cluster",
        commands=("bkctl bookie list",),
    ),
    Picture(
        name="ledger",
        title="Ledgers, and the metadata of one ledger",
        commands=("bkctl ledger list", "bkctl ledger show 1"),
        columns=112,
    ),
    Picture(
        name="ledger-map",
        title="A ledger after one of its bookies was lost and replaced",
        commands=("bkctl ledger map 3",),
        with_loss=True,
    ),
    Picture(
        name="cluster-map",
        title="Three racks, their bookies, and how full they are",
        commands=("bkctl cluster map",),
        with_loss=True,
    ),
    Picture(
        name="top",
        title="bkctl top: the load of each bookie",
        commands=("bkctl top",),
        under_load=True,
        until=f"{BOOKIES} bookies",
        columns=110,
    ),
    Picture(
        name="doctor",
        title="What is wrong, the worst first",
        commands=("bkctl doctor",),
        columns=116,
        with_loss=True,
    ),
    Picture(
        name="shell",
        title="bkctl shell: the existing ledgers complete a command",
        commands=("ledger read 0-2", "ledger show"),
        shell=("use ledger 0\r", "ledger read 0-2\r", "ledger show "),
        until="open, made",
        columns=100,
    ),
    Picture(
        name="repair",
        title="A bookie is lost, and its ledgers are repaired",
        commands=(
            "bkctl bookie list",
            "bkctl doctor",
            f"bkctl decommission {LOST} --yes",
            "bkctl doctor",
        ),
        columns=104,
        is_recorded=True,
    ),
)


def main(names: Sequence[str]) -> int:
    """Draw the pictures, or those that are named; return the exit status."""
    wanted = [one for one in PICTURES if not names or one.name in names]
    PICTURES_DIR.mkdir(exist_ok=True)
    if still := [one for one in wanted if not one.is_recorded]:
        with _cluster(RACK_COUNT) as (environ, cluster, watched):
            _fill(cluster.uri)
            is_lost = False
            for picture in sorted(still, key=lambda one: one.with_loss):
                if picture.with_loss and not is_lost:
                    _lose(cluster, watched)
                    is_lost = True
                _write(picture, drawn(picture, environ))
    for picture in (one for one in wanted if one.is_recorded):
        with _cluster(1, DAEMONS) as (environ, cluster, watched):
            _write(picture, recorded(picture, environ, cluster, watched))
    return 0


def _write(picture: Picture, svg: str) -> None:
    path = PICTURES_DIR / f"{picture.name}.svg"
    path.write_text(svg)
    print(path.relative_to(ROOT))


@contextmanager
def _cluster(
    count: int, settings: Mapping[str, str] = SETTINGS
) -> Iterator[tuple[dict[str, str], LocalCluster, ClusterMetadata]]:
    """Run a cluster in so many racks; return its environment, it, and what knows its bookies."""
    directory = Path(tempfile.mkdtemp(prefix="bk-"))
    script = directory / "racks.sh"
    script.write_text(RACKS)
    script.chmod(0o755)
    racks = {SCRIPT_KEY: str(script)} if count > 1 else {}
    for_clients = {f"BK_{key}": text for key, text in racks.items()}
    place = directory / "cluster"
    made = LocalCluster(
        place, BOOKIES, port_base=PORT_BASE, racks=count, settings={**settings, **racks}
    )
    with made as cluster, ClusterMetadata(lambda: cluster.uri) as watched:
        cluster.start(watched.writable, watched.known, watched.initialize)
        environ = {
            "BKCTL_SERVICE_URI": cluster.uri, "BKCTL_PAGER": "", "XDG_STATE_HOME": str(directory),
            "XDG_CACHE_HOME": str(directory), "XDG_CONFIG_HOME": str(directory),
            "LC_ALL": "C.UTF-8", "TZ": "UTC", **for_clients,
        }  # fmt: skip
        yield environ, cluster, watched
    shutil.rmtree(directory)


def _lose(cluster: LocalCluster, watched: ClusterMetadata) -> None:
    """Kill a bookie of an open ledger, wait until that is noticed, and add to the ledger."""
    shown = json.loads(_run(cluster.uri, "ledger", "show", str(REPLACED), "--json"))
    bookie = shown["fragments"][-1]["ensemble"][0]
    lost = cluster.kill(int(bookie.rpartition(":")[2]) - PORT_BASE + 1)
    assert lost == bookie
    until(lambda: lost not in watched.writable(), f"{lost} is still registered")
    _run(cluster.uri, "ledger", "add", str(REPLACED), "fourth", "fifth")


def _fill(uri: str) -> None:
    """Make ledgers of several kinds and states."""
    copies = ("-E", "3", "-W", "3", "-A", "2")
    for words in (
        ("ledger", "write", str(ROOT / "README.md"), *copies, "--meta", "file=README.md"),
        ("ledger", "write", str(ROOT / "CHANGELOG.md"), "--meta", "file=CHANGELOG.md"),
        ("ledger", "write", str(ROOT / "LICENSE"), *copies, "--chunks", "1k"),
        ("ledger", "create", *copies, "--meta", "owner=audit"),
        ("ledger", "add", "3", "first", "second", "third"),
        ("ledger", "create"),
    ):
        _run(uri, *words)


def _run(uri: str, *words: str) -> str:
    """Run a command in this process; return what it prints."""
    saved, sys.stdout = sys.stdout, io.StringIO()
    try:
        status = cli.run(["-u", uri, "-q", *words])
        text = sys.stdout.getvalue()
    finally:
        sys.stdout = saved
    assert status == 0, words
    return text


# A screen as a picture ---------------------------------------------------------------------------


def drawn(picture: Picture, environ: dict[str, str]) -> str:
    """Return a picture as SVG."""
    lines: list[Text] = []
    if picture.shell:
        command = [sys.executable, "-m", "bkctl", "shell"]
        with terminal(command, columns=picture.columns, lines=SHELL_LINES, **environ) as screen:
            for typed in picture.shell:
                _settle(screen)
                screen.type(typed)
            screen.shows(picture.until)
            _settle(screen)
            lines += shown(screen)
    if picture.under_load:
        lines += _under_load(picture, environ)
    for command in () if picture.shell or picture.under_load else picture.commands:
        words = [sys.executable, "-m", *command.split()]
        with terminal(words, columns=picture.columns, lines=LINES, **environ) as screen:
            screen.ended()
            lines.append(Text.assemble((PROMPT, "green"), (command, "bold")))
            lines += [*shown(screen), Text("")]
    return _svg(picture, lines)


def _under_load(picture: Picture, environ: dict[str, str]) -> list[Text]:
    """Return the screen of a command that goes on, while entries are added."""
    (command,) = picture.commands
    load = [sys.executable, "-m", "bkctl", *LOAD]
    with (
        subprocess.Popen(load, env={**os.environ, **environ}, stdout=subprocess.DEVNULL) as adding,
        terminal(
            [sys.executable, "-m", *command.split()], columns=picture.columns, lines=TOP_LINES,
            **environ,
        ) as screen,
    ):  # fmt: skip
        try:
            until_s = time.monotonic() + TOP_ROUNDS_S
            while time.monotonic() < until_s:
                screen.read()
            screen.shows(picture.until)
            return [Text.assemble((PROMPT, "green"), (command, "bold")), *shown(screen)]
        finally:
            adding.terminate()


def _settle(screen: Terminal) -> None:
    """Wait until the prompt is there, and nothing more comes."""
    screen.until(lambda lines: any(one.startswith("bkctl") and ">" in one for one in lines))
    before = -1
    while before != len(screen.raw):
        before = len(screen.raw)
        screen.read(QUIET_S)


def recorded(
    picture: Picture, environ: dict[str, str], cluster: LocalCluster, watched: ClusterMetadata
) -> str:
    """Return a session as an animated SVG: what is typed, and what is on the screen meanwhile."""
    while _auditor(cluster.uri) == LOST:  # The next one would repair without delay.
        cluster.kill(LOST_NUMBER)
        until(lambda: LOST not in watched.writable(), f"{LOST} is still registered")
        cluster.restart(LOST_NUMBER, watched.writable)
    # As where bookies are restarted now and then: autorecovery waits before it repairs.
    _run(cluster.uri, "autorecovery", "delay", "10m")
    with tempfile.NamedTemporaryFile() as file:
        file.write(os.urandom(REPAIRED_BYTES))
        file.flush()
        for _ in range(REPAIRED_LEDGERS):
            _run(cluster.uri, "ledger", "write", file.name, "--chunks", "16k")
    (pid,) = (one.pid for one in cluster.states() if one.bookie_id == LOST)
    programs = str(Path(sys.executable).parent)
    environ = {**environ, "PATH": f"{programs}:{os.environ['PATH']}", "PS1": PROMPT}
    shell = ["bash", "--norc", "--noprofile", "-i"]
    with terminal(shell, columns=picture.columns, lines=LINES, **environ) as screen:
        screen.prompts(PROMPT)
        recorder = Recorder(screen, shown, PROMPT)
        first, *others = picture.commands
        recorder.run(first)
        recorder.run(f"kill -9 {pid}")
        until(lambda: LOST not in watched.writable(), f"{LOST} is still registered")
        for command in others:
            recorder.run(command)
        title, columns, name = picture.title, picture.columns, f"bkctl-{picture.name}"
        return animated(recorder.frames, title=title, columns=columns, name=name)


def _auditor(uri: str) -> str:
    """Return the bookie that runs the auditor, once there is one."""

    def told() -> str:
        status = json.loads(_run(uri, "autorecovery", "status", "--json"))
        return str(status["auditor"] or "")

    until(told, "no auditor is elected")
    return told()


def shown(screen: Terminal) -> list[Text]:
    """Return the lines of a screen with their colours, without the empty ones at its end."""
    lines = [_line(screen, y) for y in range(screen.screen.lines)]
    while lines and not lines[-1].plain.strip():
        lines.pop()
    return lines


def _line(screen: Terminal, y: int) -> Text:
    chars = [screen.screen.buffer[y][x] for x in range(screen.screen.columns)]
    while chars and not (chars[-1].data.strip() or chars[-1].reverse or chars[-1].bg != "default"):
        chars.pop()
    line = Text()
    for style, alike in itertools.groupby(chars, _style):
        text = "".join(char.data for char in alike)
        # By themselves, for some viewers drop the blanks that a text begins with.
        blanks = len(text) - len(text.lstrip())
        line.append(text[:blanks], style).append(text[blanks:], style)
    return line


def _style(char: Any) -> Style:
    return Style(
        color=_color(char.fg), bgcolor=_color(char.bg), bold=char.bold, italic=char.italics,
        underline=char.underscore, reverse=char.reverse,
    )  # fmt: skip


def _color(name: str) -> str | None:
    if name == "default":
        return None
    if len(name) == len("ffffff") and all(digit in "0123456789abcdef" for digit in name):
        return f"#{name}"
    name = _COLORS.get(name, name)
    return name.replace("bright", "bright_") if name.startswith("bright") else name


def _svg(picture: Picture, lines: Sequence[Text]) -> str:
    console = Console(
        record=True, width=picture.columns, file=io.StringIO(), force_terminal=True,
        color_system="truecolor", legacy_windows=False,
    )  # fmt: skip
    for line in lines:
        console.print(line, no_wrap=True, overflow="crop", highlight=False)
    return console.export_svg(title=picture.title, unique_id=f"bkctl-{picture.name}")


if __name__ == "__main__":
    os.environ.pop("BKCTL_SERVICE_URI", None)
    sys.exit(main(sys.argv[1:]))
