"""The dashboard and the alerts can be read, and name only what a bookie's page has."""

from __future__ import annotations

import json
import re
from pathlib import Path

import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from bookied.admin.monitoring.dashboard import ALERTS, ROWS, alert_rules, grafana
from bookied.config.bookie import StorageClass
from tests.bookied.admin.monitoring.test_metrics_with_java_names import KINDS, Served, add

FUNCTIONS = {"sum", "max", "by", "rate", "increase", "ignoring"}
OF_PROMETHEUS = {"up", "job", "instance"}


def names_of(expression: str) -> set[str]:
    """Return metrics and labels of an expression that Prometheus takes."""
    text = expression.replace("$__rate_interval", "5m")
    promql_parser.parse(text)
    bare = re.sub(r'"[^"]*"|\[[^]]*\]', "", text)
    return {*re.findall(r"\b[a-zA-Z_]\w*", bare)} - FUNCTIONS


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


@pytest.mark.parametrize("broken", ["rate(x[5m]", "x ; y", "x > 0.1 * ignoring(a) x"])
def test_an_expression_that_is_none_would_be_seen(broken: str) -> None:
    with pytest.raises(ValueError, match=r"unclosed|unexpected|matching"):
        names_of(broken)
