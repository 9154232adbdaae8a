from __future__ import annotations

from typing import Any

import pytest

from bkctl.cli.parameter_types import LEDGER_ID
from bkctl.environment_and_streams import Host
from bkctl.errors import NothingFoundError, RefusedError
from bkctl.exit_status import Effect
from bkctl.global_options import Options
from bkctl.session.interrupt import Interrupts
from bkctl.session.safety_checks import Objection, refuse_unless_forced
from bkctl.session.session import Session
from tests.bkctl.support.terminal import FakeHost, run_here


def _session(host: Host, effect: Effect = Effect.LOSES_DATA, **given: Any) -> Session:
    options = Options()
    options.args = ("ledger", "delete", "7", *(["--no-input"] if "no_input" in given else []))
    for name, value in given.items():
        setattr(options, name, value)
    return Session(host, options, effect, Interrupts())


def test_what_loses_data_wants_the_id_typed_after_showing_what_goes() -> None:
    host = FakeHost("abc-1\n", tty=True)
    _session(host).confirm(["7: 10 entries"], "Delete it?", proof="abc-1")
    assert host.err.text.index("7: 10 entries") < host.err.text.index("To confirm, type abc-1")


@pytest.mark.parametrize("typed", ["", "\n", "y\n", "abc\n", "abc-1x\n"])
def test_anything_but_the_id_is_a_no(typed: str) -> None:
    with pytest.raises(RefusedError, match="not confirmed"):
        _session(FakeHost(typed, tty=True)).confirm([], "Delete it?", proof="abc-1")


@pytest.mark.parametrize(("typed", "agreed"), [("y\n", True), ("YES\n", True), ("no\n", False),
                                               ("\n", False), ("", False)])  # fmt: skip
def test_what_fences_is_asked_with_yes_or_no(typed: str, *, agreed: bool) -> None:
    session = _session(FakeHost(typed, tty=True), Effect.FENCES)
    if agreed:
        session.confirm([], "Fence it?")
    else:
        with pytest.raises(RefusedError):
            session.confirm([], "Fence it?")


@pytest.mark.parametrize("given", [{"tty": False}, {"tty": True, "no_input": True}])
def test_with_nobody_to_ask_it_is_refused_with_the_line_to_type(given: dict[str, Any]) -> None:
    host = FakeHost("abc-1\n", tty=given.pop("tty"))
    with pytest.raises(RefusedError, match="there is no terminal to ask") as caught:
        _session(host, **given).confirm(["7: 10 entries"], "Delete it?", proof="abc-1")
    assert caught.value.exit_status == 4
    assert caught.value.hint == "add --yes: bkctl ledger delete 7 --yes"
    assert "7: 10 entries" in host.err.text


def test_a_refusal_names_every_objection_that_is_not_overridden() -> None:
    session = _session(FakeHost())
    objections = [Objection(name, f"{name} is so", "wait") for name in ("one", "two", "three")]
    with pytest.raises(RefusedError, match=r"^one is so \(wait, or --force one\); and ") as caught:
        refuse_unless_forced(session, objections, ["two"])
    assert str(caught.value).endswith("three is so (wait, or --force three)")


def test_yes_is_not_asked_for_again() -> None:
    host = FakeHost()
    _session(host, yes=True).confirm(["7: 10 entries"], "Delete it?", proof="abc-1")
    assert host.err.text == ""


def test_reading_never_asks_unless_it_is_to_fence() -> None:
    session = _session(FakeHost("y\n", tty=True), Effect.READ)
    with pytest.raises(AssertionError):
        session.confirm([], "Really?")
    session.confirm([], "Recover it?", effect=Effect.FENCES)


def test_ids_come_from_arguments_and_where_a_dash_stands_from_stdin() -> None:
    session = _session(FakeHost("3 4\n0x10\n\n"))
    assert list(session.input.words([1, "-", 2], LEDGER_ID)) == [1, 3, 4, 16, 2]


def test_a_password_is_the_file_without_its_last_newline(tmp_path) -> None:
    file = tmp_path / "pw"
    file.write_bytes(b"se cret\n\n")
    session = _session(FakeHost())
    assert session.questions.password(str(file)) == b"se cret\n"
    assert session.questions.password(None) == b""
    with pytest.raises(NothingFoundError, match="No such file"):
        session.questions.password(str(tmp_path / "none"))


def test_a_password_in_place_of_a_file_is_the_first_line_of_stdin() -> None:
    session = _session(FakeHost("se cret\nthe rest"))
    assert session.questions.password("-") == b"se cret"
    assert session.input.bytes.read() == b"the rest"


def test_quiet_keeps_warnings_and_drops_notes() -> None:
    host = FakeHost()
    session = _session(host, quiet=True)
    session.note("a note")
    session.verbose("detail")
    session.warn("care")
    assert host.err.text == "bkctl: warning: care\n"


def test_a_plan_is_printed_as_a_result() -> None:
    host = FakeHost()
    session = _session(host, dry_run=True)
    session.plan(["do this", "do that"])
    session.finish()
    assert host.out.text == "would do this\nwould do that\n"


class _Client:
    def __init__(self) -> None:
        self.closed = False

    def call(self, _function: object) -> None:
        """Say that autorecovery is enabled."""

    def close(self) -> None:
        self.closed = True


def test_a_host_keeps_one_connection_a_cluster_until_it_is_closed() -> None:
    made: list[tuple[str, _Client]] = []

    def connect(uri: str, _config: object) -> Any:
        made.append((uri, _Client()))
        return made[-1][1]

    host = Host(environ={}, connect=connect)
    for uri in ("sqlite:///a", "sqlite:///a", "sqlite:///b"):
        assert _session(host, service_uri=uri).cluster.client is not None
    assert [uri for uri, _ in made] == ["sqlite:///a", "sqlite:///b"]
    host.close()
    assert all(client.closed for _, client in made)


def test_columns_that_a_form_ignores_are_named() -> None:
    words = ("config", "explain", "journal", "--columns", "key")
    assert run_here(*words, "-o", "id").stderr == (
        "bkctl: warning: -o id prints only ids, and ignores --columns\n"
    )
    assert not run_here(*words, "-o", "json").stderr
