"""``bkctl log`` on a real cluster of three bookies."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bkclient.log import LogManager, Position
from bkclient.log.errors import NotLeaderError
from bkclient.log.ledger_list import LOG_KEY, LedgerList
from bkclient.log.log_manager import LedgerInfo
from bkclient.metadata.errors import NoSuchLogError
from bkctl.commands.log.columns import LogLedgerRow
from bkctl.commands.log.lifecycle import delete_shown, removed_by_trim
from bkctl.exit_status import ExitStatus
from bkctl.output.views import view_of
from tests.bkclient.worlds import World
from tests.bkctl.support.cluster import BKCTL, Cluster, local_cluster
from tests.bkctl.support.runner import Run, runner
from tests.bkctl.support.world import run_in
from tests.support.waiting import until
from wire.codes import LedgerState
from wire.ids import LedgerId

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[Cluster]:
    with local_cluster(tmp_path_factory.mktemp("logs") / "bk") as running:
        yield running


@pytest.fixture(scope="module")
def run(cluster: Cluster) -> Iterator[Run]:
    with runner(cluster) as running:
        yield running


def test_a_log_is_created_appended_to_by_turns_and_read(run: Run) -> None:
    assert run("log", "create", "turns").out == "log turns created\n"
    one = run("log", "append", "turns", "one").out
    assert one == "appended 1 entry to log turns, at 0:0, in a new ledger\n"
    more = run("log", "append", "turns", "-", typed="two\nthree\n").out
    assert more.startswith(
        "appended 2 entries to log turns, from 1:0 to 1:1, in a new ledger (8 B in "
    )
    assert run("log", "tail", "turns").out == "one\ntwo\nthree\n"
    assert run("log", "tail", "turns", "--from", "1:1").out == "three\n"
    assert run("log", "tail", "turns", "-n", "2").out == "two\nthree\n"
    both = run("log", "tail", "turns", "-n", "2", "--from", "1:1", ok=False)
    assert both.status == ExitStatus.USAGE
    rows = [
        json.loads(line) for line in run("log", "tail", "turns", "-o", "jsonl").out.splitlines()
    ]
    assert [row["position"] for row in rows] == ["0:0", "1:0", "1:1"]


@contextlib.contextmanager
def appended(run: Run, cluster: Cluster, name: str, text: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run an appender to a log of its own; it waits for more behind ``text``, and is killed."""
    command = [*BKCTL, "-u", cluster.uri, "log", "append", name, "-"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as appender:
        assert appender.stdin is not None
        try:
            appender.stdin.write(text.encode())
            appender.stdin.flush()
            until(lambda: run("log", "tail", name).out == text)
            yield appender
        finally:
            appender.kill()


def test_an_appender_whose_log_another_one_took_says_what_it_appended(
    run: Run, cluster: Cluster
) -> None:
    run("log", "create", "taken")
    with appended(run, cluster, "taken", "one\n") as first:
        run("log", "append", "taken", "two")
        _, said = first.communicate(b"three\n")
    assert first.returncode == ExitStatus.TIME_LIMIT
    assert b"another client writes the log; the entry sent to 0:1 may be in the log or" in said
    assert b"1 entry appended, up to 0:0; `bkctl log tail taken -n 5` shows" in said
    assert run("log", "tail", "taken").out == "one\ntwo\n"


def test_the_end_of_a_log_whose_appender_was_killed_is_said_to_be_open_and_then_found(
    run: Run, cluster: Cluster
) -> None:
    run("log", "create", "killed")
    with appended(run, cluster, "killed", "one\ntwo\n"):
        pass  # Killed at the end of the block.
    seen = run("log", "tail", "killed", "-n", "1")
    assert seen.out == "two\n"
    assert "the last ledger of log killed is open: entries that are not confirmed" in seen.err
    assert "not shown; -f waits for them. Only if the writer is gone for good, `bkctl" in seen.err
    assert "a writer that still runs is fenced and fails" in seen.err
    (ledger,) = run("log", "show", "killed", "-o", "id").out.split()
    for command in ("read", "tail"):
        assert f"ledger {ledger} is open: entries that" in run("ledger", command, ledger).err
    taken = run("log", "append", "killed", "-", typed="")
    assert "log killed ends at 0:1; the new entries follow" in taken.err
    assert taken.out == "nothing to append to log killed: it ends at 0:1\n"
    for command in (("log", "tail", "killed"), ("ledger", "read", ledger)):
        assert run(*command).err == ""


def test_an_appender_whose_input_breaks_off_says_what_it_appended(run: Run, tmp_path: Path) -> None:
    run("log", "create", "broken")
    lines = tmp_path / "lines"
    lines.write_bytes(b"x\n" * 20_000 + b"y" * 6_000_000)
    found = run("log", "append", "broken", "--file", str(lines), ok=False)
    assert found.status == ExitStatus.USAGE
    assert "longer than an entry can be" in found.err
    (ledger,) = json.loads(run("log", "show", "broken", "-o", "json").out)["ledgers"]
    assert ledger["state"] == "closed"
    entries = ledger["last_entry"] + 1
    assert entries > 10_000
    assert f"{entries} entries appended, up to 0:{entries - 1}; `bkctl log tail" in found.err


def test_a_follower_sees_the_last_entry_of_an_appender_that_waits_for_more(
    run: Run, cluster: Cluster, tmp_path: Path
) -> None:
    run("log", "create", "quiet")
    command = [*BKCTL, "-u", cluster.uri, "log"]
    read = tmp_path / "read"
    with (
        read.open("wb") as out,
        subprocess.Popen(
            [*command, "tail", "quiet", "--follow"], stdout=out, stderr=subprocess.PIPE
        ) as follower,
        subprocess.Popen(
            [*command, "append", "quiet", "-"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
        ) as appender,
    ):
        assert appender.stdin is not None
        try:
            for count, line in enumerate((b"one\n", b"two\n", b"three\n"), 1):
                appender.stdin.write(line)
                appender.stdin.flush()
                until(lambda: len(read.read_bytes().splitlines()) == count)  # noqa: B023
        finally:
            follower.send_signal(signal.SIGINT)
            appender.stdin.close()
        assert follower.stderr is not None
        assert follower.stderr.read() == b"bkctl: log quiet: interrupted; read up to 0:2\n"
    assert appender.returncode == 0
    assert read.read_bytes() == b"one\ntwo\nthree\n"


def test_what_it_is_made_of_is_shown(run: Run) -> None:
    run("log", "create", "shown", "-W", 3, "--roll-entries", 2)
    run("log", "append", "shown", "a", "b", "c", "d", "e", "--seal")
    listed = {row["name"]: row for row in run("log", "list", "-o", "json").json["logs"]}
    assert (listed["shown"]["state"], listed["shown"]["entries"]) == ("sealed", 5)
    ledgers = run("log", "info", "shown", "-o", "json").json["ledgers"]
    assert [row["index"] for row in ledgers] == list(range(len(ledgers)))
    assert {row["state"] for row in ledgers} == {"closed"}
    refused = run("log", "append", "shown", "f", "--json", ok=False)
    assert refused.status == ExitStatus.CONFLICT
    assert "sealed" in str(refused.error)


def test_a_log_is_trimmed_by_whole_ledgers_after_a_question(run: Run) -> None:
    run("log", "create", "long")
    for word in ("a", "b", "c"):
        run("log", "append", "long", word)
    plan = run("log", "trim", "long", "--before", "2:0", "--dry-run").out
    assert plan.count("would delete ledger") == 2
    last_two = run("log", "trim", "long", "--keep-ledgers", 2, "--dry-run")
    assert last_two.out.count("would delete ledger") == 1
    assert "log long would begin with 1:0" in last_two.err
    nothing = run("log", "trim", "long", "--before", "0:1", "--dry-run").err
    assert "no closed ledger of log long ends before 0:1" in nothing
    refused = run("log", "trim", "long", "--before", "2:0", ok=False)
    assert refused.status == ExitStatus.REFUSED
    said = run("log", "trim", "long", "--before", "2:0", typed="long\n", tty=True).out
    assert said == "deleted 2 ledgers: log long begins with 2:0 now\n"
    assert run("log", "tail", "long").out == "c\n"
    within = run("log", "trim", "long", "--before", "2:1", "--yes").err
    assert "entries from 2:0 on stay: a trim deletes only complete ledgers" in within
    gone = run("log", "tail", "long", "--from", "0:0", ok=False)
    assert gone.status == ExitStatus.NOT_FOUND
    assert "0:0 was trimmed; the first entry kept is 2:0" in gone.err


def test_a_log_is_trimmed_by_age() -> None:
    world = World(3)
    run_in(world, "log", "create", "aged")
    trim = ("log", "trim", "aged", "--yes", "--older-than")
    no = "nothing was dropped from log aged: a trim deletes complete ledgers, and no closed ledger "
    kept = f"{no}ends before that limit; the first entry kept is 0:0\n"
    assert run_in(world, *trim, "0").out == kept
    for word in ("a", "b", "c", "d"):
        run_in(world, "log", "append", "aged", word)
        world.clock.advance(3600)
    # What "b" was added to ended when the ledger of "c" began, two hours ago.
    assert run_in(world, *trim, "3h30m").out == kept
    assert run_in(world, *trim, "1h59m").out == "deleted 2 ledgers: log aged begins with 2:0 now\n"
    assert run_in(world, "log", "tail", "aged").out == "c\nd\n"
    assert run_in(world, *trim, "0").out == "deleted 1 ledger: log aged begins with 3:0 now\n"
    both = run_in(world, *trim, "1h", "--before", "3:0", ok=False)
    assert both.status == ExitStatus.USAGE


def test_the_entries_that_a_trim_will_delete_are_read_first() -> None:
    world = World(3)
    run_in(world, "log", "create", "l")
    for words in (("a",), ("b", "c"), ("d",)):
        run_in(world, "log", "append", "l", *words)
    ledgers = run_in(world, "log", "show", "l", "-o", "id").out.split()
    plan = run_in(world, "log", "trim", "l", "--before", "2:0", "--dry-run", "-o", "id")
    assert plan.out.split() == ledgers[:2]
    tail = "log", "tail", "l", "--cursor", "archive", "--before"
    assert run_in(world, *tail, "1:1").out == "a\nb\n"
    assert run_in(world, *tail, "2:0").out == "c\n"
    assert run_in(world, *tail, "2:0").out == ""
    assert run_in(world, "log", "tail", "l", "--cursor", "archive").out == "d\n"
    kept = run_in(world, "log", "trim", "l", "--before", "0:0", "--dry-run").err
    assert "the last ledger stays until a writer begins the next: `bkctl log show l`" in kept


def test_a_log_is_trimmed_to_its_last_entries() -> None:
    world = World(3)
    run_in(world, "log", "create", "short")
    for words in (("a", "b"), ("c", "d"), ("e", "f")):
        run_in(world, "log", "append", "short", *words)
    trim = ("log", "trim", "short", "--yes", "--keep-entries")
    assert "nothing was dropped" in run_in(world, *trim, "5").out
    said = run_in(world, *trim, "3").out
    assert said == "deleted 1 ledger: log short begins with 1:0 now\n"
    assert run_in(world, "log", "tail", "short").out == "c\nd\ne\nf\n"
    run_in(world, *trim, "2")
    assert run_in(world, "log", "tail", "short").out == "e\nf\n"


def test_a_log_that_has_lost_a_ledger_says_so_and_goes_on_after_a_trim() -> None:
    world = World(3)
    run_in(world, "log", "create", "holed")
    for word in ("a", "b", "c"):
        run_in(world, "log", "append", "holed", word)
    run_in(world, "ledger", "delete", 1, "--yes", "--force", "log-ledgers")
    assert "holed  damaged" in run_in(world, "log", "list").out
    refused = run_in(world, "log", "append", "holed", "d", ok=False).err
    assert "`bkctl log trim NAME --before INDEX:0` gives up the log before INDEX" in refused
    last = run_in(world, "log", "tail", "holed", "-n", "3")
    assert last.out == "c\n"
    assert last.err == (
        "bkctl: warning: the entries begin after a loss: ledger 1 of log holed is gone: its "
        "entries are lost\n"
    )
    assert run_in(world, "log", "tail", "holed", "-n", "1").err == ""
    run_in(world, "log", "trim", "holed", "--before", "2:0", "--yes")
    run_in(world, "log", "append", "holed", "d")
    assert run_in(world, "log", "tail", "holed").out == "c\nd\n"


def test_a_log_that_was_taken_over_has_the_status_of_a_conflict() -> None:
    assert NotLeaderError.exit_status == ExitStatus.CONFLICT


def test_a_dry_run_of_a_sweep_names_the_ledgers() -> None:
    world = World(3)
    run_in(world, "log", "create", "swept")
    run_in(world, "log", "append", "swept", "a")
    orphan = world.run(world.client().create_ledger(custom={LOG_KEY: b"swept"})).ledger_id
    sweep = "log", "sweep", "swept", "--dry-run", "--older-than"
    assert run_in(world, *sweep, "1h").out == "would change nothing\n"
    said = run_in(world, *sweep, "0").out
    assert said == f"would delete ledger {orphan}, which log swept does not list\n"


def test_what_begins_a_new_ledger_is_shown_with_the_log() -> None:
    world = World(3)
    run_in(world, "log", "create", "rolled", "--roll-entries", "5", "--roll-after", "1h")
    run_in(world, "log", "create", "endless", "--roll-size", "0")
    table = run_in(world, "log", "list").out.splitlines()
    assert [line.split()[-4:] for line in table[1:]] == [
        ["0", "never", "never", "never"],
        ["1.0", "GiB", "5", "1h"],
    ]
    run_in(world, "log", "append", "endless", "a")
    said = run_in(world, "log", "show", "rolled").err
    assert said == "no ledgers\na new ledger begins at 1.0 GiB, after 5 entries or after 1h\n"
    assert run_in(world, "log", "show", "endless").err == "no limit begins a new ledger\n"
    run_in(world, "log", "create", "usual")
    usual = run_in(world, "log", "show", "usual").err
    assert usual == "no ledgers\na new ledger begins at 1.0 GiB\n"
    run_in(world, "log", "append", "endless", "b", "--seal")
    assert run_in(world, "log", "show", "endless").err == "the log is sealed\n"
    row = json.loads(run_in(world, "log", "list", "-o", "jsonl").out.splitlines()[1])
    assert [row[key] for key in ("roll_size", "roll_entries", "roll_after_s")] == [2**30, 5, 3600.0]


def test_a_trim_spares_a_log_that_was_made_again_since_it_was_confirmed() -> None:
    world = World(3)

    def made() -> None:
        run_in(world, "log", "create", "again")
        for word in ("a", "b"):
            run_in(world, "log", "append", "again", word)

    made()
    client = world.client()
    before, going = world.run(removed_by_trim(client, "again", Position(1, 0)))
    assert len(going) == 1
    run_in(world, "log", "delete", "again", "--yes")
    made()
    with pytest.raises(NoSuchLogError, match="another was created"):
        world.run(LogManager(client).trim("again", before))
    assert run_in(world, "log", "tail", "again").out == "a\nb\n"


def test_a_deletion_spares_a_log_that_was_made_again_since_it_was_confirmed() -> None:
    world = World(3)
    run_in(world, "log", "create", "again")
    client = world.client()
    shown = world.run(LogManager(client).info("again"))
    run_in(world, "log", "delete", "again", "--yes")
    run_in(world, "log", "create", "again", seed=1)  # Another id.
    run_in(world, "log", "append", "again", "a")
    with pytest.raises(NoSuchLogError, match="another was created"):
        world.run(delete_shown(client, shown))
    assert run_in(world, "log", "tail", "again").out == "a\n"


def test_a_trim_spares_a_ledger_that_was_closed_since_it_was_confirmed() -> None:
    """A log that is being rolled has two open ledgers; the question did not name the first."""
    world = World(3)
    run_in(world, "log", "create", "rolled")
    run_in(world, "log", "append", "rolled", "a")
    client = world.client()
    ledgers = LedgerList(client, "rolled")
    known, writers = world.run(ledgers.read()), []
    for _ in range(2):
        known, writer = world.run(ledgers.append_ledger(known, known.record.last_ledger_id))
        writers.append(writer)
    kept, going = world.run(removed_by_trim(client, "rolled", Position(2, 0)))
    assert ([one.index for one in going], kept) == ([0], Position(1, 0))
    world.run(writers[0].close())
    _, more = world.run(removed_by_trim(client, "rolled", Position(2, 0)))
    assert [one.index for one in more] == [0, 1]
    assert world.run(LogManager(client).trim("rolled", kept)) == kept


@pytest.mark.parametrize(
    ("state", "last", "length"), [(LedgerState.OPEN, None, None), (LedgerState.CLOSED, 4, 0)]
)
def test_the_length_of_a_ledger_that_is_not_closed_is_unknown(
    state: LedgerState, last: int | None, length: int | None
) -> None:
    info = LedgerInfo(
        index=0,
        ledger_id=LedgerId(7),
        created_ms=0,
        state=state,
        last_entry_id=last,
        length_bytes=0,
    )
    assert view_of(LogLedgerRow)["length"].get(LogLedgerRow(info)) == length


def test_a_trim_that_drops_nothing_is_no_dry_run(run: Run) -> None:
    run("log", "create", "kept")
    run("log", "append", "kept", "a")
    said = run("log", "trim", "kept", "--before", "0:1", "--yes").out
    assert said.startswith("nothing was dropped from log kept")
    assert "the first entry kept is 0:0" in said
    last = int(run("log", "show", "kept", "-o", "json").json["ledgers"][-1]["index"])
    for extra in ("--yes", "--dry-run"):
        refused = run("log", "trim", "kept", "--before", f"{last + 1}:0", extra, ok=False)
        assert refused.status == ExitStatus.NOT_FOUND
        assert f"log kept has no ledger {last + 1}: its last is {last}" in refused.err


def test_a_log_is_deleted_with_its_ledgers(run: Run) -> None:
    run("log", "create", "gone")
    run("log", "append", "gone", "a")
    ledger = run("log", "info", "gone", "-o", "id").out.strip()
    assert "log gone with 1 ledger deleted" in run("log", "delete", "gone", "--yes").out
    assert run("ledger", "show", ledger, ok=False).status == ExitStatus.NOT_FOUND
    assert run("log", "tail", "gone", ok=False).status == ExitStatus.NOT_FOUND
    assert "no ledgers" in run("log", "sweep", "gone", "--older-than", "0", "--yes").out


def test_a_ledger_of_a_log_is_deleted_alone_only_by_force(run: Run) -> None:
    run("log", "create", "whole")
    run("log", "append", "whole", "a", "--seal")
    ledger = run("log", "info", "whole", "-o", "id").out.strip()
    other = run("ledger", "write", "-", typed="b\n").id
    refused = run("ledger", "delete", other, ledger, "--yes", ok=False)
    assert refused.status == ExitStatus.REFUSED
    assert f"ledger {ledger} is a part of log whole" in refused.err
    assert "bkctl log trim whole --before" in refused.err
    assert run("ledger", "show", other).status == 0, "none of them went"
    assert run("log", "tail", "whole").out == "a\n"
    forced = run("ledger", "delete", ledger, "--yes", "--force", "log-ledgers")
    assert "overridden: log-ledgers" in forced.err
    assert run("ledger", "show", ledger, ok=False).status == ExitStatus.NOT_FOUND


@pytest.mark.parametrize("position", ["", "1", "a:b", "1:2:3"])
def test_what_is_no_position_is_told(run: Run, capfd, position: str) -> None:
    refused = run("log", "tail", "turns", "--from", position, ok=False)
    assert refused.status == ExitStatus.USAGE
    assert "INDEX:ENTRY" in capfd.readouterr().err


def test_nothing_to_append_is_told(run: Run) -> None:
    assert run("log", "append", "turns", ok=False).status == ExitStatus.USAGE
