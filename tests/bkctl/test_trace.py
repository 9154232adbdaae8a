"""What ``-vv`` tells: operations on the metadata, and requests over HTTP."""

from __future__ import annotations

import re

import pytest

from bkclient.errors import BookieUnavailableError
from bkctl.bookie_http_client import AdminClient, HttpAddress, as_curl
from tests.bkclient.fakes import World
from tests.bkctl.test_bookie import written
from tests.bkctl.world import run_in


def _traced(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("metadata: ")]


def test_operations_on_the_metadata_are_told_with_their_times() -> None:
    world = World(3)
    written(world)
    told = _traced(run_in(world, "ledger", "show", "0", "-vv").err)
    assert re.fullmatch(r"metadata: read_ledger\(0\) \d+\.\d ms", told[0])
    told = _traced(run_in(world, "ledger", "list", "-vv").err)
    assert any(re.fullmatch(r"metadata: ledger_ranges\(\) .* ms: 1 answers", one) for one in told)
    told = _traced(run_in(world, "ledger", "show", "9", "-vv", ok=False).err)
    assert re.fullmatch(r"metadata: read_ledger\(9\) .* ms: \w+Error", told[0])


def test_no_password_is_told(tmp_path) -> None:
    password = tmp_path / "password"
    password.write_text("hush")
    said = run_in(World(3), "ledger", "create", "--password-file", password, "-vv").err
    assert _traced(said)
    assert "hush" not in said


def test_nothing_is_told_with_less_or_after_the_command() -> None:
    world = World(3)
    written(world)
    assert not _traced(run_in(world, "ledger", "show", "0", "-v").err)
    assert _traced(run_in(world, "ledger", "show", "0", "-vv").err)
    assert not _traced(run_in(world, "ledger", "show", "0").err)


def test_requests_over_http_are_told_as_commands_without_the_token() -> None:
    told: list[str] = []
    admin = AdminClient("127.0.0.1", 1, token="hush", tell=told.append, timeout_s=5)
    with pytest.raises(BookieUnavailableError):
        admin.request("PUT", "/api/v2/bookie/mode", {"read_only": True})
    (asked,) = told
    assert asked == (
        "curl -X PUT -H 'Authorization: Bearer ***' --data '{\"read_only\": true}' "
        "http://127.0.0.1:1/api/v2/bookie/mode"
    )
    plain = as_curl("GET", HttpAddress("::1", 80), "/metrics", None, with_token=False)
    assert plain == "curl 'http://[::1]:80/metrics'"
