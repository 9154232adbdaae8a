"""Whose version is known, and why that of others is not."""

from __future__ import annotations

import json

import pytest

from bkclient.errors import BookieUnavailableError
from bkctl.bookies.http.admin_client import AdminAnswer, AdminClient
from bkctl.cli.root import cli
from bkctl.commands.tool.help_and_version import of_bookie
from bookied.process.own_version import RELEASE, own_version
from tests.bkctl.support.terminal import FakeHost
from wire.ids import BookieId


class Bookie(AdminClient):
    """A bookie that gives the answers it was made with; without one it is gone."""

    def __init__(self, answers: dict[str, str | None]) -> None:
        super().__init__("nowhere", 0)
        self._answers = answers

    def request(self, method: str, path: str, body: object = None) -> AdminAnswer:
        if path not in self._answers:
            return AdminAnswer(404, "")
        text = self._answers[path]
        if text is None:
            raise BookieUnavailableError("no HTTP at nowhere")
        return AdminAnswer(200, text)


METRICS = '# x\nup 1\nbookied_info{bookieId="b1",version="1.2.3",port="1"} 1\n'


@pytest.mark.parametrize(
    ("answers", "kind", "version", "why"),
    [
        ({"/api/v2/bookie": "{}", "/metrics": METRICS}, "bookied", "1.2.3", ""),
        (
            {"/api/v2/bookie": "{}", "/metrics": "up 1\n"},
            "bookied",
            None,
            "metrics do not report it",
        ),
        ({"/api/v1/bookie/state": "{}"}, "Java bookie", None, "Java's bookies do not report it"),
        ({"/api/v2/bookie": None}, "bookie", None, "no HTTP at nowhere"),
    ],
)
def test_a_bookies_version_is_what_it_tells(
    answers: dict[str, str | None], kind: str, version: str | None, why: str
) -> None:
    found = of_bookie(Bookie(answers), BookieId("b1"), "writable")
    assert (found.kind, found.version) == (kind, version)
    assert why in found.why


def test_the_tools_version_is_the_same_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    host = FakeHost()
    assert cli.run(["version", "--json"], host) == 0
    told = json.loads(host.out.text)
    assert (told["version"], told["release"]) == (own_version(), RELEASE)
    assert cli.run(["--version"]) == 0
    assert f"bkctl {own_version()}," in capsys.readouterr().out
