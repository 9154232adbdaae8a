"""The cookie commands on a cluster in memory."""

from __future__ import annotations

import socket
from pathlib import Path

import attrs
import pytest

from bkclient.metadata.errors import CookieNotFoundError
from bkclient.metadata.versions_and_watches import NEW
from bkctl.exit_status import ExitStatus
from tests.bkclient.metadata.values import metadata
from tests.bkclient.worlds import World
from tests.bkctl.support.stopped_bookie import new_bookie
from tests.bkctl.support.world import run_in
from tests.support.memory_zookeeper import MemoryMetadata
from wire.codes import LedgerState
from wire.ids import BookieId, EntryId, LedgerId
from wire.ledger_metadata import Fragment, LedgerMetadata
from wire.records.cookie import Cookie, decode_cookie, encode_cookie

A, B, C = (BookieId(f"b{n}") for n in (1, 2, 3))
CLUSTER = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
def world() -> World:
    return World(3)


@pytest.fixture
def store(world: World) -> MemoryMetadata:
    made = world.metadata.metadata()
    world.run(made.connect())
    return made


def cookie(bookie_id: str = A, **changes: object) -> Cookie:
    made = Cookie(bookie_id, "/journal", ("/ledgers",), None, CLUSTER)
    return attrs.evolve(made, **changes)


def write(path: Path, value: Cookie) -> Path:
    path.write_bytes(encode_cookie(value))
    return path


def stored(world: World, store: MemoryMetadata, bookie_id: BookieId = A) -> bytes:
    return world.run(store.read_cookie(bookie_id)).value


def add_ledger(
    world: World,
    store: MemoryMetadata,
    ledger_id: int,
    ensemble: tuple[BookieId, ...],
    *,
    closed: bool,
) -> None:
    new: LedgerMetadata = metadata(fragments=(Fragment(EntryId(0), ensemble),))
    if closed:
        new = attrs.evolve(
            new, state=LedgerState.CLOSED, last_entry_id=EntryId(5), length=10, creator_token=0
        )
    world.run(store.create_ledger(LedgerId(ledger_id), new))


class TestCreateAndUpdate:
    def test_a_cookie_of_a_file_is_stored_as_it_is(
        self, world: World, store: MemoryMetadata, tmp_path: Path
    ) -> None:
        file = write(tmp_path / "VERSION", cookie())
        run_in(world, "cookie", "create", A, "--file", file)
        assert stored(world, store) == file.read_bytes()
        twice = run_in(world, "cookie", "create", A, "--file", file, ok=False)
        assert twice.status == 7

    def test_one_that_no_bookie_would_start_with_is_refused_by_name(
        self, world: World, store: MemoryMetadata, tmp_path: Path
    ) -> None:
        text = tmp_path / "text"
        text.write_text("hello")
        for file, said in (
            (write(tmp_path / "other", cookie(B)), "the cookie of b2, not of b1"),
            (write(tmp_path / "away", cookie(instance_id="x")), "a cookie of cluster x"),
            (text, "the text is not a valid cookie"),
        ):
            refused = run_in(world, "cookie", "create", A, "--file", file, ok=False)
            assert refused.status == 4
            assert said in refused.err
            assert "--force content" in refused.err
        run_in(world, "cookie", "create", A, "--file", text, "--force", "content")
        assert stored(world, store) == b"hello"

    def test_an_update_shows_the_fields_that_change_and_asks(
        self, world: World, store: MemoryMetadata, tmp_path: Path
    ) -> None:
        world.run(store.write_cookie(A, encode_cookie(cookie()), NEW))
        file = write(tmp_path / "new", cookie(ledger_dirs=("/ledgers", "/more")))
        said = run_in(world, "cookie", "update", A, "--file", file, typed="n\n", tty=True, ok=False)
        assert said.status == 4
        assert "ledger directories: /ledgers becomes /ledgers, /more" in said.err
        assert stored(world, store) == encode_cookie(cookie())
        run_in(world, "cookie", "update", A, "--file", file, typed="y\n", tty=True)
        assert stored(world, store) == file.read_bytes()

    def test_a_bookie_without_a_cookie_has_none_to_update(
        self, world: World, tmp_path: Path
    ) -> None:
        file = write(tmp_path / "new", cookie())
        missing = run_in(world, "cookie", "update", A, "--file", file, "--yes", ok=False)
        assert missing.status == 3
        assert "did you mean" not in missing.err
        assert run_in(world, "cookie", "create", A, "--file", "/none", ok=False).status == 3

    def test_a_mistyped_id_is_answered_with_the_one_most_like_it(
        self, world: World, store: MemoryMetadata, tmp_path: Path
    ) -> None:
        world.run(store.write_cookie(A, encode_cookie(cookie()), NEW))
        file = write(tmp_path / "new", cookie())
        wrong = f"{A}9"
        said = run_in(world, "cookie", "get", wrong, ok=False)
        assert (said.status, f"did you mean {A}?" in said.err) == (3, True), said
        for words in (["update", wrong, "--file", file], ["delete", wrong]):
            said = run_in(world, "cookie", *words, "--yes", ok=False)
            assert (said.status, "did you mean" in said.err) == (3, False), said


class TestLook:
    def test_a_cookie_is_printed_as_it_is_stored_or_taken_apart(
        self, world: World, store: MemoryMetadata
    ) -> None:
        world.run(store.write_cookie(A, encode_cookie(cookie()), NEW))
        assert run_in(world, "cookie", "get", A).out.encode() == encode_cookie(cookie())
        parts = run_in(world, "cookie", "get", A, "--json").json
        assert (parts["ledger_dirs"], parts["instance_id"]) == (["/ledgers"], CLUSTER)
        assert run_in(world, "cookie", "get", B, ok=False).status == 3

    def test_all_are_listed_those_that_are_none_too(
        self, world: World, store: MemoryMetadata
    ) -> None:
        world.run(store.write_cookie(A, encode_cookie(cookie()), NEW))
        world.run(store.write_cookie(B, b"nonsense", NEW))
        assert run_in(world, "cookie", "list", "-o", "id").out == "b1\nb2\n"
        problems = [
            one["problem"] for one in run_in(world, "cookie", "list", "--json").json["cookies"]
        ]
        assert problems[0] is None
        assert "nonsense" in problems[1]

    def test_one_is_made_for_named_directories_and_the_clusters_id(self, world: World) -> None:
        made = run_in(
            world, "cookie", "generate", A, "--journal-dir", "/j1", "--journal-dir", "/j2",
            "--ledger-dir", "/l1", "--ledger-dir", "/l2", "--index-dir", "/i",
        ).out  # fmt: skip
        assert decode_cookie(made.encode()) == Cookie(
            A, "/j1,/j2", ("/l1", "/l2"), ("/i",), CLUSTER
        )
        half = run_in(world, "cookie", "generate", A, "--ledger-dir", "/l", ok=False)
        assert half.status == 2

    def test_one_is_made_by_the_settings_as_the_daemon_would(
        self, world: World, tmp_path: Path
    ) -> None:
        conf = tmp_path / "bk.conf"
        conf.write_text(
            "advertisedAddress=127.0.0.1\nallowLoopback=true\nbookiePort=3181\n"
            "journalDirectories=/j\nledgerDirectories=/l1,/l2\n"
        )
        made = run_in(world, "cookie", "generate", "-c", conf).out
        assert decode_cookie(made.encode()) == Cookie(
            "127.0.0.1:3181", "/j", ("/l1", "/l2"), None, CLUSTER
        )


class TestDelete:
    @pytest.fixture(autouse=True)
    def _a_cookie(self, world: World, store: MemoryMetadata) -> None:
        world.run(store.write_cookie(A, encode_cookie(cookie()), NEW))
        world.kill("b1")

    def gone(self, world: World, store: MemoryMetadata) -> bool:
        try:
            stored(world, store)
        except CookieNotFoundError:
            return True
        return False

    def test_it_wants_the_bookies_id(self, world: World, store: MemoryMetadata) -> None:
        wrong = run_in(world, "cookie", "delete", A, typed="yes\n", tty=True, ok=False)
        assert wrong.status == 4
        assert "journals /journal" in wrong.err
        assert not self.gone(world, store)
        run_in(world, "cookie", "delete", A, typed=f"{A}\n", tty=True)
        assert self.gone(world, store)

    def test_nobody_to_ask_is_a_refusal_with_the_line_to_paste(self, world: World) -> None:
        refused = run_in(world, "cookie", "delete", A, ok=False)
        assert refused.status == 4
        assert "cookie delete b1 --yes" in refused.err

    def test_a_ledger_that_is_not_closed_keeps_it(
        self, world: World, store: MemoryMetadata
    ) -> None:
        add_ledger(world, store, 7, (A, B), closed=False)
        refused = run_in(world, "cookie", "delete", A, "--yes", ok=False)
        assert refused.status == 4
        assert "not know which ledgers are fenced: 7" in refused.err
        assert "--force open-ledgers" in refused.err
        assert not self.gone(world, store)
        forced = run_in(world, "cookie", "delete", A, "--yes", "--force", "open-ledgers")
        assert "overridden" in forced.err
        assert self.gone(world, store)

    def test_the_only_copy_of_anything_keeps_it(self, world: World, store: MemoryMetadata) -> None:
        add_ledger(world, store, 8, (A, BookieId("b9")), closed=True)
        refused = run_in(world, "cookie", "delete", A, "--yes", ok=False)
        assert refused.status == 4
        assert "1 ledger have no other copy in service: 8" in refused.err
        told = run_in(world, "cookie", "delete", A, "--dry-run", ok=False)
        assert told.status == 4
        assert "refused without --force only-copies" in told.err
        assert told.out == "would remove the cookie of b1\n"
        assert not self.gone(world, store)

    def test_closed_ledgers_with_other_copies_do_not(
        self, world: World, store: MemoryMetadata
    ) -> None:
        add_ledger(world, store, 9, (A, B), closed=True)
        run_in(world, "cookie", "delete", A, "--yes")
        assert self.gone(world, store)

    def test_a_bookie_that_runs_keeps_it(self, world: World, store: MemoryMetadata) -> None:
        world.restart("b1")
        refused = run_in(world, "cookie", "delete", A, "--yes", ok=False)
        assert refused.status == 4
        assert "b1 is registered" in refused.err
        assert not self.gone(world, store)

    def test_a_bookie_that_starts_while_the_question_waits_keeps_it(
        self, world: World, store: MemoryMetadata
    ) -> None:
        refused = run_in(
            world,
            *("cookie", "delete", A),
            typed=f"{A}\n",
            tty=True,
            ok=False,
            while_asked=lambda: world.restart("b1"),
        )
        assert refused.status == 4
        assert "b1 is registered" in refused.err
        assert not self.gone(world, store)


# A stopped bookie's own files -------------------------------------------------------------------


def test_a_generated_cookie_goes_to_a_file(tmp_path: Path) -> None:
    bookie, file = new_bookie(tmp_path), tmp_path / "cookie"
    printed = bookie.run("cookie", "generate").out
    said = bookie.run("cookie", "generate", "--out", file).out
    assert said == f"cookie of {bookie.old} written to {file}\n"
    assert file.read_text() == printed


def test_a_cookie_is_deleted_with_the_files_of_its_stopped_bookie(tmp_path: Path) -> None:
    bookie = new_bookie(tmp_path)
    planned = bookie.run("cookie", "delete", "--local", "--dry-run").out.splitlines()
    assert planned == [
        f"would remove {tmp_path}/journal/current/VERSION",
        f"would remove {tmp_path}/ledgers/current/VERSION",
        f"would remove the cookie of {bookie.old}",
    ]
    other = bookie.run("cookie", "delete", "other:1", "--local", "--yes", ok=False)
    assert other.status == ExitStatus.USAGE
    with socket.create_server(("127.0.0.1", bookie.port)):
        assert bookie.run("cookie", "delete", "--local", "--yes", ok=False).status == 4
    assert (bookie.versions(), bookie.cookies()) == ({bookie.old}, {bookie.old})
    bookie.run("cookie", "delete", "--local", typed=f"{bookie.old}\n", tty=True)
    assert (bookie.versions(), bookie.cookies()) == (set(), set())
    assert bookie.run("cookie", "delete", "--local", "--yes", ok=False).status == 3


def test_files_are_deleted_too_where_no_cookie_is_stored(tmp_path: Path) -> None:
    bookie = new_bookie(tmp_path)
    bookie.run("cookie", "delete", bookie.old, "--yes")
    assert bookie.versions() == {bookie.old}
    bookie.run("cookie", "delete", "--local", "--yes")
    assert bookie.versions() == set()


def test_deleting_needs_to_know_whose_cookie(tmp_path: Path) -> None:
    refused = new_bookie(tmp_path).run("cookie", "delete", "--yes", ok=False)
    assert refused.status == ExitStatus.USAGE
    assert "no bookie is named" in refused.err


def test_disk_expand_is_what_expand_storage_is(tmp_path: Path) -> None:
    bookie = new_bookie(tmp_path)
    bookie.settings["ledgerDirectories"] = f"{tmp_path}/ledgers,{tmp_path}/more"
    assert bookie.run("disk", "expand", "--dry-run").out == f"would add {tmp_path}/more\n"


def test_a_terminal_gets_nothing_of_a_cookie_that_it_would_obey(
    world: World, store: MemoryMetadata
) -> None:
    world.run(store.write_cookie(A, b"no \x1b[2J cookie", NEW))
    assert r"no \x1b[2J cookie" in run_in(world, "cookie", "show", A, tty=True).out
    assert "no \x1b[2J cookie" in run_in(world, "cookie", "show", A).out
