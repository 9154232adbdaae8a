"""The dashboard and the alerts can be read, and name only what a bookie's page has."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from bookied.admin.monitoring.dashboard import ALERTS, ROWS, alert_rules, grafana
from bookied.config.bookie import StorageClass
from tests.bookied.admin.monitoring.test_java_metrics import KINDS, Served, add

FUNCTIONS = {"sum", "max", "by", "rate", "increase", "ignoring"}
OF_PROMETHEUS = {"up", "job", "instance"}
TOKEN = re.compile(
    r"""\s*(?:(?P<text>"(?:[^"\\]|\\.)*")|(?P<range>\[(?:\$__rate_interval|[0-9]+[smhd])\])"""
    r"""|(?P<number>-?[0-9.]+)|(?P<name>[a-zA-Z_][a-zA-Z0-9_]*)|(?P<mark>[=!<>~]{1,2}|[(){},*/+-]))"""
)


def tokens(expression: str) -> list[tuple[str, str]]:
    """Take an expression apart; anything that is not PromQL stops it."""
    found, at = [], 0
    while at < len(expression):
        match = TOKEN.match(expression, at)
        assert match is not None, f"{expression!r} at {at}"
        kind = str(match.lastgroup)
        found.append((kind, match[kind]))
        at = match.end()
    return found


def names_of(expression: str) -> set[str]:
    """Return metrics and labels of an expression whose brackets are closed."""
    found = tokens(expression)
    opened: list[str] = []
    for kind, text in found:
        if kind == "mark" and text in "({":
            opened.append(text)
        elif kind == "mark" and text in ")}":
            assert opened.pop() + text in {"()", "{}"}, expression
    assert opened == [], expression
    return {text for kind, text in found if kind == "name"} - FUNCTIONS


def expressions() -> list[str]:
    drawn = [text for panels in ROWS.values() for one in panels for _, text in one.lines]
    return [*drawn, *(one.expression for one in ALERTS)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_metric_and_label_is_on_the_page_of_a_bookie(
    tmp_path: Path, kind: StorageClass
) -> None:
    served = Served(tmp_path, kind)
    served.send(add(0))
    served.rotate()
    families = list(text_string_to_metric_families(served.page))
    known = {sample.name for one in families for sample in one.samples}
    known |= {name.removesuffix("_total") for name in known}
    known |= {label for one in families for sample in one.samples for label in sample.labels}
    for text in expressions():
        assert names_of(text) <= known | OF_PROMETHEUS, text
    served.close()


def test_the_dashboard_is_json_whose_panels_do_not_overlap() -> None:
    found = json.loads(grafana())
    ids = [one["id"] for one in found["panels"]]
    assert len(ids) == len(set(ids)) > 15
    cells = [
        (x, y)
        for one in found["panels"]
        for x in range(one["gridPos"]["x"], one["gridPos"]["x"] + one["gridPos"]["w"])
        for y in range(one["gridPos"]["y"], one["gridPos"]["y"] + one["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) == 23
    drawn = [target["expr"] for one in found["panels"] for target in one.get("targets", ())]
    assert {*drawn} == {*expressions()[: len(drawn)]}


def test_the_rules_are_yaml_that_prometheus_takes() -> None:
    (group,) = yaml.safe_load(alert_rules())["groups"]
    assert [rule["alert"] for rule in group["rules"]] == [one.name for one in ALERTS]
    for rule, one in zip(group["rules"], ALERTS, strict=True):
        assert {*rule} == {"alert", "expr", "for", "labels", "annotations"}
        assert rule["expr"] == one.expression
        assert re.fullmatch("[0-9]+m", rule["for"])
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert {*rule["annotations"]} == {"summary", "description"}


@pytest.mark.parametrize("broken", ["rate(x[5m]", 'x{a="b"', "x{a=b}}", "x[5 m]", "x ; y"])
def test_an_expression_that_is_none_would_be_seen(broken: str) -> None:
    with pytest.raises((AssertionError, IndexError)):
        names_of(broken)
