"""The schema of what is printed: made from the views, kept, and true."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from bkctl.cli.root import cli
from bkctl.manual.output_schema import schema, schema_text, views
from bkctl.output.views import Kind
from tests.bkctl.support.schema import FILE, check
from tests.bkctl.support.terminal import FakeHost


def test_the_file_is_what_the_views_say_now() -> None:
    assert FILE.read_text(encoding="utf-8") == schema_text(), (
        "stale: python -m bkctl.manual.generate"
    )


def test_it_is_a_schema() -> None:
    Draft202012Validator.check_schema(schema())
    assert json.loads(schema_text()) == schema()


def test_every_field_of_every_view_is_in_it_with_its_type_and_unit() -> None:
    definitions = schema()["$defs"]
    for name, view in views().items():
        for field in view.fields:
            told = definitions[name]["properties"][field.name]
            assert told["description"].startswith(field.doc)
            assert "null" in told["type"]
            assert (field.kind is Kind.BYTES) == told["description"].endswith("In bytes.")


def test_a_description_names_what_it_is_about() -> None:
    vague = re.compile(r"(it|its|they|them|their|how|why|who|whose|of these)\b", re.IGNORECASE)
    docs = {f"{name}.{field.name}": field.doc for name, v in views().items() for field in v.fields}
    assert [name for name, doc in docs.items() if vague.match(doc)] == []


@pytest.mark.parametrize(
    "document",
    [
        {"schema": 1, "profiles": [{"profile": "x", "colour": "red"}]},
        {"schema": 1, "profile": "x", "colour": "red"},
        {"schema": 1, "profile": 3, "action": "made", "path": "/"},
        {"schema": 2, "count": 3},
    ],
)
def test_what_is_not_documented_is_found(document: object) -> None:
    with pytest.raises(AssertionError, match="no schema for"):
        check(document)


@pytest.mark.parametrize(
    "args",
    [
        ["profile", "list"],
        ["profile", "show", "lab"],
        ["profile", "show"],
        ["profile", "use", "lab"],
        ["profile", "use", "lab", "--dry-run"],
        ["config", "check", "CONF"],
        ["config", "explain", "gcWaitTime"],
        ["config", "explain"],
        ["config", "diff", "CONF"],
        ["config", "show", "--origin"],
        ["config", "show", "--all", "--for", "bookie", "-c", "CONF"],
        ["explain", "BK-LOCKED"],
        ["explain"],
        ["version"],
        ["ledger", "list", "-u", "sqlite:///nowhere/at/all"],
        ["ledger", "show"],
    ],
    ids=" ".join,
)
def test_what_needs_no_cluster_prints_what_is_documented_in_every_form(
    args: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    conf, profiles = tmp_path / "bk.conf", tmp_path / "config.toml"
    conf.write_text("metadataServiceUri=sqlite:///x\nwhat=3\n")
    profiles.write_text('profile = "lab"\n[profiles.lab]\nservice-uri = "sqlite:///lab.db"\n')
    words = [str(conf) if word == "CONF" else word for word in args]

    def printed(form: str) -> tuple[str, str]:
        host = FakeHost(environ={"BKCTL_CONFIG": str(profiles)})
        profiles.chmod(0o600)
        cli.run([*words, "-o", form], host)
        told = capsys.readouterr()
        return host.out.text + told.out, host.err.text + told.err

    out, err = printed("json")
    for text in filter(str.strip, (out, *err.splitlines()[-1:])):
        check(json.loads(text))
    for line in printed("jsonl")[0].splitlines():
        check(json.loads(line))
    for form in ("table", "wide", "yaml", "csv", "id"):
        assert bool(printed(form)[0]) == bool(out), form
