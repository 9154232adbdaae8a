"""The commands that ask a bookie: the same values of a bookie of ours and of one that speaks v1."""

from __future__ import annotations

import itertools
import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import attrs
import pytest

from bkclient.config.client import ClientConfig
from bkclient.config.declaration import MASKED
from bkclient.errors import BookieUnavailableError
from bkctl.bookies.http import addresses, bookie_metrics, bookie_settings, bookie_state, garbage
from bkctl.bookies.http.admin_client import AdminAnswer, AdminClient, HttpAddress
from bkctl.bookies.http.bookie_settings import BookieSetting
from bkctl.bookies.http.bookie_state import BookieMode
from bkctl.commands.bookie import admin_requests
from bkctl.errors import CommandError, ConflictError, NothingFoundError, RefusedError, UsageError
from bkctl.exit_status import Effect, ExitStatus
from bkctl.global_options import Options
from bkctl.output.emitter import Emitter
from bkctl.output.views import view_of
from bkctl.session.interrupt import Interrupts
from bkctl.session.session import Session
from bookied.admin.api import Access, Api
from bookied.admin.control.operations import Control
from bookied.admin.http.requests_and_replies import Credentials, HttpRequest
from bookied.config.reload import SettingsSource
from tests.bkctl.support.runner import cli
from tests.bkctl.support.terminal import FakeHost
from tests.bookied.worlds.clock_world import World
from tests.bookied.worlds.fakes import done
from tests.support.memory_zookeeper import MemoryZooKeeper
from wire.ids import BookieId
from wire.records.bookie_service_info import BOOKIE_RPC, BookieServiceInfo, Endpoint

ME = BookieId("b1")
PAGE = """\
# TYPE a gauge
a{dir="/d 1",said="\\"no\\"\\n"} 1.5
# TYPE bookkeeper_server_ADD_ENTRY summary
bookkeeper_server_ADD_ENTRY_count{success="true"} 7
bookkeeper_server_ADD_ENTRY_IN_PROGRESS 2
bookkeeper_server_ADD_ENTRY{success="true",quantile="0.5"} NaN
bookie_journal_JOURNAL_QUEUE_SIZE{journalIndex="0"} 3
"""


class InMemory(AdminClient):
    """Asks the API of a bookie on a clock; ``v1`` hides what no Java bookie has."""

    def __init__(self, world: World, *, v1: bool, token: str = "t") -> None:
        super().__init__("nowhere", 0, token=token)
        source = SettingsSource(lambda: world.service.config, Path("/etc/bk_server.conf"))
        self._api = Api(Control(world.service, lambda: PAGE, source), Access("t"))
        self._v1 = v1
        self.methods: list[str] = []
        """Of the requests so far."""

    def request(self, method: str, path: str, body: object = None) -> AdminAnswer:
        self.methods.append(method)
        if self._v1 and path.startswith("/api/v2"):
            return AdminAnswer(404, "<html><body><h1>Resource not found</h1></body></html>")
        sent = b"" if body is None else json.dumps(body).encode()
        asked = HttpRequest(method=method, body=sent)
        reply = done(self._api.answer(path, asked, Credentials(f"Bearer {self._token}")))
        return AdminAnswer(reply.status, reply.body)


@attrs.frozen
class Stage:
    world: World
    v1: bool

    @property
    def admin(self) -> InMemory:
        return InMemory(self.world, v1=self.v1)


@pytest.fixture(params=["v1", "v2"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    world = World(tmp_path)
    done(world.service.start())
    yield Stage(world, request.param == "v1")
    world.stop()


def test_the_state_is_told_as_far_as_it_is_known(stage: Stage) -> None:
    found = bookie_state.state(stage.admin, ME)
    assert (found.state, found.read_only, found.takes_recovery_adds) == ("writable", False, True)
    assert found.registered is (None if stage.v1 else True)
    bookie_state.mode(stage.admin, ME, wanted=True)
    assert bookie_state.state(stage.admin, ME).state == "read-only"


def test_the_mode_is_set_and_told(stage: Stage) -> None:
    assert bookie_state.mode(stage.admin, ME, wanted=None) == BookieMode(ME, read_only=False)
    assert bookie_state.mode(stage.admin, ME, wanted=True) == BookieMode(ME, read_only=True)
    assert bookie_state.mode(stage.admin, ME, wanted=None) == BookieMode(ME, read_only=True)
    assert bookie_state.mode(stage.admin, ME, wanted=False) == BookieMode(ME, read_only=False)


def test_the_mode_is_not_kept_over_a_restart_by_default(stage: Stage) -> None:
    assert not bookie_state.keeps_mode(stage.admin)


def test_compactions_are_suspended_kind_by_kind(stage: Stage) -> None:
    def suspended(**how: bool) -> tuple[bool, bool]:
        found = garbage.compactions(stage.admin, ME, **how)
        return found.minor_suspended, found.major_suspended

    assert suspended() == (False, False)
    assert suspended(suspend=True, major=False) == (True, False)
    assert suspended(suspend=True) == (True, True)
    assert suspended(suspend=False, minor=False) == (True, False)


def test_garbage_is_collected_on_demand(stage: Stage) -> None:
    (new,) = garbage.collections(stage.admin)
    assert (new.logs, new.total_bytes) == (None, None), "no round has counted them yet"
    assert garbage.collect(stage.admin, ME, major=True, minor=True) == garbage.GarbageAsked(ME)
    stage.world.run_for(2)
    (found,) = garbage.collections(stage.admin)
    assert (found.major_compactions, found.running, found.compacting) == (1, False, None)
    assert found.rounds == (None if stage.v1 else 1)
    assert stage.v1 or (found.logs is not None and found.total_bytes is not None)
    assert found.unreadable_logs == (None if stage.v1 else 0)
    assert (new.last_ms, found.last_ms is None) == (None, stage.v1)
    assert stage.v1 or found.next_ms > found.last_ms


def test_whether_the_token_is_right_is_asked_without_a_change(stage: Stage) -> None:
    stage.admin.require_allowed()
    before = stage.world.service.config
    stranger = InMemory(stage.world, v1=stage.v1, token="")
    with pytest.raises(RefusedError, match="the bookie requires its admin token"):
        stranger.require_allowed()
    assert stage.world.service.config == before
    assert stranger.methods == ["GET"]


def test_the_end_of_a_collection_is_waited_for(stage: Stage) -> None:
    before = garbage.collections(stage.admin)
    garbage.collect(stage.admin, ME, major=True, minor=True)
    pauses: list[int] = []

    def pause(since: list[garbage.GarbageRun]) -> None:
        pauses.append(len(since))
        stage.world.run_for(2)

    (found,) = garbage.wait_collected(stage.admin, before, pause)
    assert not found.running
    # Over v1, which counts no rounds, a collection that has not begun yet looks like its end.
    assert stage.v1 or (found.major_compactions, bool(pauses)) == (1, True)


def test_a_restart_of_the_bookie_during_a_collection_is_reported(stage: Stage) -> None:
    before = garbage.collections(stage.admin)
    garbage.collect(stage.admin, ME, major=True, minor=True)
    clock = itertools.count(0, 1000).__next__  # The bookie has been up for less than a wait.

    def wait() -> list[garbage.GarbageRun]:
        return garbage.wait_collected(
            stage.admin, before, lambda _: stage.world.run_for(2), clock=clock
        )

    if stage.v1:
        assert wait()
        return
    with pytest.raises(ConflictError, match="the bookie restarted during the collection"):
        wait()


def test_the_end_of_a_collection_has_the_counts_of_that_collection() -> None:
    found = _collected(rounds=9, freed=70, major=3).since(_collected(8, 50, 2))
    assert (found.rounds, found.freed_bytes, found.major_compactions) == (1, 20, 1)
    assert found.total_bytes == 7, "a state, not a count"
    java = _collected(rounds=None, freed=None, major=3).since(_collected(None, None, 2))
    assert (java.rounds, java.freed_bytes, java.major_compactions) == (None, None, 1)


def _collected(rounds: int | None, freed: int | None, major: int) -> garbage.GarbageRun:
    return garbage.GarbageRun(
        number=0,
        running=False,
        compacting=None,
        rounds=rounds,
        minor_compactions=5,
        major_compactions=major,
        last_minor_ms=None,
        last_major_ms=None,
        total_bytes=7,
        freed_bytes=freed,
    )


def test_the_token_is_that_of_the_bookie_s_settings_if_nothing_else_names_one(
    tmp_path: Path,
) -> None:
    conf, file = tmp_path / "bookie.conf", tmp_path / "token"
    file.write_text("of the file\n")
    conf.write_text(f"httpAdminToken=of a line\nhttpAdminTokenFile={file}\n")

    def token(*given: Path) -> str:
        with closing(FakeHost()) as host:
            options = Options()
            options.conf = str(conf)
            session = Session(host, options, Effect.READ, Interrupts())
            return addresses.admin_token(session, *given)

    assert token() == "of the file"
    other = tmp_path / "other"
    other.write_text("given")
    assert token(other) == "given"
    file.unlink()
    assert not token(), "reading needs no token: the bookie names one that it requires"
    conf.write_text("httpAdminToken=of a line\n")
    assert token() == "of a line"


def test_settings_are_chosen_by_key(stage: Stage) -> None:
    (found,) = bookie_settings.settings(stage.admin, ME, ("bookieId",))
    assert found == BookieSetting(ME, "bookieId", "b1", None if stage.v1 else "default")
    assert len(bookie_settings.settings(stage.admin, ME, ())) > 100
    limits = bookie_settings.settings(
        stage.admin, ME, ("diskUsageLwmThreshold", "diskUsageThreshold")
    )
    assert len({one.value for one in limits}) == 1, "what has no value has that of its default"
    with pytest.raises(NothingFoundError, match="nonsense"):
        bookie_settings.settings(stage.admin, ME, ("nonsense",))
    with pytest.raises(NothingFoundError, match=r"gcWaitTme; did you mean gcWaitTime\?"):
        bookie_settings.settings(stage.admin, ME, ("gcWaitTme",))
    with pytest.raises(NothingFoundError, match=r"not set: nonsense, nothing$"):
        bookie_settings.settings(stage.admin, ME, ("nonsense", "nothing"))
    with pytest.raises(NothingFoundError, match="no setting b2:3181") as told:
        bookie_settings.settings(stage.admin, ME, ("b2:3181",))
    assert "separate several bookies by commas" in (told.value.hint or "")


def test_a_setting_of_autorecovery_is_neither_shown_nor_changed_on_a_running_bookie(
    stage: Stage,
) -> None:
    key = "replicationRateByBytes"
    with pytest.raises(NothingFoundError, match=f"^{key} is a setting of clients") as told:
        bookie_settings.settings(stage.admin, ME, (key,))
    assert f"`bkctl config show {key} -c FILE`" in (told.value.hint or "")
    if not stage.v1:
        with pytest.raises(NothingFoundError, match=f"^{key} is a setting of clients"):
            admin_requests.planned(stage.admin, ME, [(key, "100000")])


def test_settings_are_changed_together_and_told_before_and_after(stage: Stage) -> None:
    pairs = [("gcWaitTime", "70000"), ("majorCompactionThreshold", "0.7")]
    before = {one.key: one.value for one in bookie_settings.settings(stage.admin, ME, ())}
    told = [(key, before[key], value) for key, value in pairs]
    admin = stage.admin
    plan = admin_requests.planned(admin, ME, pairs)
    assert [(one.key, one.was, one.value) for one in plan] == told
    assert {one.key: one.value for one in bookie_settings.settings(stage.admin, ME, ())} == before
    admin.methods.clear()
    done_now = admin_requests.change(admin, pairs, plan)
    assert admin.methods == ["PUT", "GET"], "the plan knows what was set before"
    assert [(one.key, one.was, one.value) for one in done_now] == told
    assert bookie_settings.settings(stage.admin, ME, ("gcWaitTime",))[0].value == "70000"
    where = "its settings file" if stage.v1 else "/etc/bk_server.conf on its host"
    lines = f"set in {where}:\n  gcWaitTime=70000\n  majorCompactionThreshold=0.7"
    assert admin_requests.how_to_keep(stage.admin, done_now).endswith(lines)


def test_what_cannot_be_changed_while_it_runs_is_refused_with_what_can(tmp_path: Path) -> None:
    world = World(tmp_path)
    done(world.service.start())
    admin = InMemory(world, v1=False)
    before = bookie_settings.all_settings(admin)
    with pytest.raises(ConflictError, match=r"while the bookie runs: bookiePort; .*gcWaitTime"):
        admin_requests.planned(admin, ME, [("gcWaitTime", "70000"), ("bookiePort", "1")])
    with pytest.raises(UsageError, match="gcWaitTime: 'soon'"):
        admin_requests.planned(admin, ME, [("gcWaitTime", "soon")])
    with pytest.raises(UsageError, match="majorCompactionThreshold: is above 1"):
        admin_requests.planned(admin, ME, [("majorCompactionThreshold", "70")])
    with pytest.raises(
        UsageError, match=r"diskUsageWarnThreshold: 0\.9 is above diskUsageThreshold=0\.5"
    ):
        admin_requests.planned(
            admin, ME, [("diskUsageThreshold", "0.5"), ("diskUsageWarnThreshold", "0.9")]
        )
    with pytest.raises(UsageError, match=r"diskUsageWarnThreshold: 1\.0 is above .*=0\.5") as told:
        admin_requests.planned(admin, ME, [("diskUsageThreshold", "0.5")])
    assert "together, in one command" in (told.value.hint or "")
    with pytest.raises(NothingFoundError, match="did you mean gcWaitTime"):
        admin_requests.planned(admin, ME, [("gcWaitTimee", "1")])
    with pytest.raises(UsageError, match="give each key only once"):
        admin_requests.planned(admin, ME, [("gcWaitTime", "1"), ("gcWaitTime", "2")])
    assert bookie_settings.all_settings(admin) == before
    world.stop()


def test_a_java_bookie_is_told_any_key_and_its_secrets_are_masked() -> None:
    kept = {"gcWaitTime": "1", "passwd": "old"}

    class Java(Canned):
        speaks_v2 = False

        def request(self, method: str, path: str, body: object = None) -> AdminAnswer:
            assert path == "/api/v1/config/server_config"
            if method == "PUT":
                assert isinstance(body, dict)
                kept.update(body)
                return AdminAnswer(200, "Success set server config.")
            return AdminAnswer(200, json.dumps(kept))

    java = Java(200, "")
    pairs = [("passwd", "hunter2"), ("own.key", "x=y")]
    found = admin_requests.change(java, pairs, admin_requests.planned(java, ME, pairs))
    assert kept["passwd"] == "hunter2"
    assert [(one.key, one.was, one.value) for one in found] == [
        ("passwd", MASKED, MASKED), ("own.key", None, "x=y"),
    ]  # fmt: skip


def test_the_trace_of_a_request_has_no_secret_in_it() -> None:
    told: list[str] = []
    admin = AdminClient("127.0.0.1", 1, trace=told.append)
    with pytest.raises(BookieUnavailableError):
        admin.request("PUT", "/x", {"tlsKeyStorePassword": "hunter2", "gcWaitTime": "1"})
    assert "hunter2" not in told[0]
    assert "gcWaitTime" in told[0]


def test_ready_is_an_answer_or_a_conflict(stage: Stage, tmp_path: Path) -> None:
    assert bookie_state.ready(stage.admin, ME) == bookie_state.Ready(ME)
    early = InMemory(World(tmp_path / "early"), v1=stage.v1)
    with pytest.raises(ConflictError, match="not fully started"):
        bookie_state.ready(early, ME)


def test_metrics_are_taken_apart_and_chosen_by_a_pattern(stage: Stage) -> None:
    found = list(bookie_metrics.metrics(stage.admin, None))
    assert found[0].labels == {"dir": "/d 1", "said": '"no"\n'}
    assert found[0].value == 1.5
    assert len(found) == 5
    (count,) = bookie_metrics.metrics(stage.admin, "ENTRY_count")
    assert count.value == 7
    with pytest.raises(UsageError, match="--grep"):
        list(bookie_metrics.metrics(stage.admin, "("))
    value = view_of(bookie_metrics.MetricSample)["value"]
    assert [value.get(one) for one in found[1:4]] == ["7", "2", "nan"]
    host = FakeHost(tty=True, environ={"PAGER": "", "NO_COLOR": "1"})
    Emitter(Options(), host).many(found[1:3], bookie_metrics.MetricSample)
    assert host.out.text.splitlines() == [
        "         7  bookkeeper_server_ADD_ENTRY_count{success=true}",
        "         2  bookkeeper_server_ADD_ENTRY_IN_PROGRESS",
    ]


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (88, "BOOKIE RUNNING COMPACTING LAST NEXT TOTAL LIVE FREED LAST ERROR"),
        (48, "BOOKIE RUNNING COMPACTING FREED LAST ERROR"),
    ],
)
def test_a_narrow_terminal_shows_what_a_collection_freed_and_its_error(
    monkeypatch: pytest.MonkeyPatch, columns: int, shown: str
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", "24")
    host = FakeHost(tty=True, environ={"PAGER": "", "NO_COLOR": "1"})
    found = garbage.GarbageRun(
        number=0, running=False, compacting=None, minor_compactions=1, major_compactions=2,
        last_minor_ms=None, last_major_ms=None, last_ms=0, next_ms=0, rounds=3, ledgers=4, logs=5,
        total_bytes=10_000_000, live_bytes=2_000_000, freed_bytes=8_000_000,
    )  # fmt: skip
    Emitter(Options(), host).many([found], garbage.GarbageRun)
    assert host.out.text.splitlines()[0].split() == shown.split()


def test_when_garbage_was_collected_last_and_is_next_is_shown() -> None:
    now_ms = int(time.time() * 1000)
    began = _collected(0, 0, 0)
    later = attrs.evolve(began, rounds=1, last_ms=now_ms - 90_000, next_ms=now_ms + 509_500)
    java = attrs.evolve(began, rounds=None)
    options, host = Options(), FakeHost()
    options.columns = "last_round,next_round"
    Emitter(options, host).many([began, later, java], garbage.GarbageRun)
    first, second, third = host.out.text.splitlines()[1:]
    assert (first.split(), third.split()) == (["never", "-"], ["-", "-"])
    assert [second.split()[n][:2] for n in (0, 1, 2, 3)] == ["1m", "ag", "in", "8m"]


def test_jmx_attributes_are_told_by_what_replaces_them(stage: Stage) -> None:
    found = {(one.attribute, one.sample.name) for one in bookie_metrics.jmx(stage.admin)}
    assert found == {
        ("BookieServer AddStats", "bookkeeper_server_ADD_ENTRY_count"),
        ("BookieServer AddStats", "bookkeeper_server_ADD_ENTRY"),
        ("Bookie QueueLength", "bookie_journal_JOURNAL_QUEUE_SIZE"),
    }


def test_a_wrong_token_is_refused_with_what_to_do(stage: Stage) -> None:
    stranger = InMemory(stage.world, v1=stage.v1, token="guess")
    with pytest.raises(RefusedError) as refused:
        bookie_state.mode(stranger, ME, wanted=True)
    assert str(refused.value) == "the bookie rejects this admin token"
    fix = "bkctl profile edit NAME --admin-token-file FILE"
    assert "--token-file FILE, or" in refused.value.hint
    assert fix in refused.value.hint
    with pytest.raises(RefusedError, match="the bookie requires its admin token"):
        bookie_state.mode(InMemory(stage.world, v1=stage.v1, token=""), ME, wanted=True)
    assert bookie_state.mode(stranger, ME, wanted=None).read_only is False


class Canned(AdminClient):
    def __init__(self, status: int, body: str) -> None:
        super().__init__("nowhere", 0)
        self._answer = AdminAnswer(status, body)

    def request(self, method: str, path: str, body: object = None) -> AdminAnswer:
        return self._answer


@pytest.mark.parametrize(
    ("status", "body", "error", "words"),
    [
        (500, "Internal Server Error", CommandError, "the bookie failed: Internal Server Error"),
        (404, "<html>", NothingFoundError, "<html>"),
        (403, "set httpAdminToken", RefusedError, "^set httpAdminToken$"),
        (409, '{"error": {"code": "refused", "message": "no way"}}', ConflictError, "^no way$"),
        (503, "", ConflictError, "status 503"),
    ],
)
def test_a_bad_answer_is_an_error_in_the_bookie_s_words(
    status: int, body: str, error: type[CommandError], words: str
) -> None:
    with pytest.raises(error, match=words):
        Canned(status, body).ask("GET", "/x")
    with pytest.raises(CommandError, match="not JSON"):
        _ = Canned(200, "<html>").ask("GET", "/x").json


def test_what_a_java_bookie_tells_of_secrets_is_masked() -> None:
    told = {"httpServerKeyStorePassword": "hunter2", "passwd": "", "tlsKeyStorePasswordPath": "/p"}

    class Java(Canned):
        speaks_v2 = False

    found = bookie_settings.settings(Java(200, json.dumps(told)), ME, ())
    assert {one.key: one.value for one in found} == told | {"httpServerKeyStorePassword": MASKED}


# Where a bookie is asked -------------------------------------------------------------------------


class OneStore:
    """As much of a client as has a store."""

    config = ClientConfig()

    def __init__(self, store: object) -> None:
        self.store = store


@pytest.mark.parametrize(
    ("published", "host"), [("0.0.0.0", "bookie7"), ("::", "bookie7"), ("10.1.2.3", "10.1.2.3")]
)
def test_the_address_is_the_published_one_and_every_address_means_the_bookie_s_own(
    tmp_path: Path, published: str, host: str
) -> None:
    world = World(tmp_path)
    store = MemoryZooKeeper.initialized(world.clock).metadata()
    done(store.connect())
    own = Endpoint("bookie", 3181, "bookie7", BOOKIE_RPC)
    info = BookieServiceInfo((own, Endpoint("httpserver", 8080, published, "http")))
    done(store.register(ME, info, read_only=False))
    assert done(addresses.published(OneStore(store), ME)) == HttpAddress(host, 8080)
    done(store.register(BookieId("b2"), BookieServiceInfo((own,)), read_only=False))
    with pytest.raises(NothingFoundError, match="no HTTP server"):
        done(addresses.published(OneStore(store), BookieId("b2")))
    with pytest.raises(NothingFoundError, match="not registered"):
        done(addresses.published(OneStore(store), BookieId("b3")))
    done(store.close())


def test_a_bookie_that_publishes_https_is_asked_with_the_client_s_keys() -> None:
    config = ClientConfig(client_trust_store="trust.p12")
    plain = Endpoint("httpserver", 8080, "10.1.2.3", "http")
    secured = Endpoint("httpserver", 8443, "10.1.2.3", "https")
    address = addresses.http_address(BookieServiceInfo((plain, secured)), config)
    assert address == HttpAddress("10.1.2.3", 8443, config.https)
    assert config.https.trust_store.path == "trust.p12"
    assert not config.https.client_authentication, "there is no certificate to show"


def run(*words: str, **environ: str) -> tuple[int, str, str]:
    host = FakeHost(environ=environ)
    status = cli.run(list(words), host)
    return status, host.out.text, host.err.text


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("readonly", "b1", "on"), "turn read-only mode of bookie b1 on"),
        (("gc", "b1"), "collect garbage on bookie b1"),
        (("compaction", "b1", "suspend"), "suspend compaction on bookie b1"),
    ],
)
def test_a_dry_run_asks_nobody(words: tuple[str, ...], told: str) -> None:
    status, out, _ = run("bookie", *words, "--dry-run")
    assert (status, out.strip().endswith(told)) == (0, True), out


def test_wrong_usage_is_told_before_anybody_is_asked(tmp_path: Path) -> None:
    status, _, err = run("bookie", "compaction", "b1", "suspend", "--no-major", "--no-minor")
    assert (status, "leave nothing to do" in err) == (2, True)
    status, _, err = run("bookie", "state", "b1", "--http", "nowhere")
    assert (status, "is not HOST:PORT" in err) == (2, True)
    status, _, _ = run("bookie", "config-set", "b1", "x", "--http", "a:1")
    assert status == 2
    for words in (["set", "b1", "x=1"], ["b1", "set", "x"], ["b1", "x=1"]):
        status, _, err = run("bookie", "config", *words, "--http", "a:1")
        assert (status, "`bkctl bookie config-set BOOKIE_ID KEY=VALUE` changes" in err) == (2, True)
    status, _, err = run("bookie", "config", "b1,b2", "--http", "a:1")
    assert (status, "--http is the address of one bookie" in err) == (2, True)
    for words in (["config"], ["config-set"], ["config-set", "b1"]):
        assert run("bookie", *words)[0] == 2
    missing = str(tmp_path / "token")
    status, _, err = run("bookie", "state", "b1", "--http", "a:1", "--token-file", missing)
    assert (status, f"token file {missing}: " in err) == (3, True)


@pytest.mark.parametrize("alike", [True, False])
def test_bookies_that_fail_alike_are_told_once(alike: bool) -> None:  # noqa: FBT001
    warned: list[str] = []
    session = SimpleNamespace(warn=warned.append, about="")
    b1, b2, b3 = (BookieId(f"b{n}:3181") for n in (1, 2, 3))
    why = "not while the bookie runs: x"

    def ask(_admin: object, one: BookieId) -> BookieId:
        if one == b3 and not alike:
            return one
        raise ConflictError(why)

    asked = admin_requests._BookieRequests(session, [b1, b2, b3], {})
    asked.admins = dict.fromkeys((b1, b2, b3), Canned(200, ""))
    if alike:
        with pytest.raises(ConflictError, match=f"^{why}$"):
            asked.of_each(ask)
    else:
        assert asked.of_each(ask) == [b3]
    assert warned == ([] if alike else [f"bookie {b1}, {b2}: {why}"])


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port of this host that refuses connections."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@pytest.mark.parametrize(
    "words", [("state", "b1"), ("ready", "b1"), ("config", "b1"), ("config", "gcWaitTime")]
)
def test_with_an_address_no_cluster_is_needed(words: tuple[str, ...], closed_port: int) -> None:
    where = f"127.0.0.1:{closed_port}"
    status, _, err = run("bookie", *words, "--http", where)
    assert status == ExitStatus.UNREACHABLE
    assert f"no HTTP at {where}: Connection refused" in err
    status, _, err = run("bookie", *words, "--http", f"https://{where}")
    assert status == ExitStatus.FAILED
    assert "clientTrustStore is not set" in err


def test_without_the_metadata_service_the_error_names_the_way_past_it(closed_port: int) -> None:
    uri = f"zk+hierarchical://127.0.0.1:{closed_port}/ledgers"
    status, _, err = run("bookie", "ready", "b1", "-u", uri)
    assert status == ExitStatus.UNREACHABLE
    assert "with --http HOST:PORT the bookie is asked without the metadata service" in err
