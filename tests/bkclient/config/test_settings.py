"""Settings: file syntax, loading, findings, and what is made from the declarations."""

from __future__ import annotations

import contextlib
import enum
import fnmatch
from pathlib import Path
from typing import ClassVar

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkclient.config.declaration import (
    OtherKey,
    declared,
    ignored,
    is_secret_key,
    setting,
    value_text,
)
from bkclient.config.findings import ConfigError, FindingKind, SettingFinding, Severity
from bkclient.config.properties import (
    Origin,
    PropertiesError,
    java_system_properties,
    parse_properties,
    read_properties,
)
from bkclient.config.settings import (
    _Patterns,
    load,
    non_default_settings,
    settings_of_environment,
)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@attrs.frozen(kw_only=True)
class Sample:
    """A settings class with one attribute of each kind."""

    other_keys: ClassVar[tuple[OtherKey, ...]] = (
        OtherKey("dlog.*", "belongs to the table service"),
        OtherKey("numJournalCallbackThreads", "Java reads it nowhere"),
        OtherKey("journalDir", "read by no version", instead="journalDirectory"),
        *ignored("one thread is enough", "threads=8"),
    )

    port: int = setting(
        3181, key="bookiePort", doc="Port.", group="Server", minimum=0, maximum=65535
    )
    wait_ms: int = setting(2, key="waitMSec", unit="ms", doc="Wait.")
    usage: float = setting(0.95, key="usage", doc="Usage.", minimum=0, maximum=1)
    sync: bool = setting(
        True, key="sync", doc="Sync.", risky=lambda on: None if on else "acknowledged data may go"
    )
    name: str | None = setting(None, key="bookieId", doc="Name.", default_text="from the address")
    root: str = setting("/ledgers", key="root", doc="Root.")
    dirs: tuple[str, ...] = setting(("/tmp/a",), key="dirs", doc="Directories.", group="Disks")
    rate: int = setting(1000, key="rateByEntries", aliases=("rate",), doc="Rate.")
    colour: Colour = setting(Colour.RED, key="colour", doc="Colour.")
    level: int | None = setting(None, key="level", doc="Level.")
    password: str = setting("", key="passwd", doc="Password.", secret=True)
    scheme: str = setting(
        "zk", key="scheme", doc="Scheme.", refuse=lambda s: "is not served" if s == "etcd" else None
    )

    def cross_check(self):
        if self.wait_ms > self.rate:
            yield SettingFinding(
                Severity.ERROR, FindingKind.INVALID, "must not exceed rate", "waitMSec"
            )


def loaded(text: str, **kwargs):
    return load(Sample, parse_properties(text, source="bk.conf", **kwargs))


def values(text: str) -> dict[str, list[str]]:
    entries = parse_properties(text).entries
    return {key: [value.text for value in prop.values] for key, prop in entries.items()}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a=1", {"a": ["1"]}),
        ("a: 1", {"a": ["1"]}),
        ("a 1", {"a": ["1"]}),
        ("  a  =  1 2  ", {"a": ["1 2"]}),
        ("a", {"a": [""]}),
        ("a=", {"a": [""]}),
        ("a==b", {"a": ["=b"]}),
        ("a.b-c=1", {"a.b-c": ["1"]}),
        ("a\\ b\\=c=1", {"a b=c": ["1"]}),
        ("# a=1\n! b=2\n\na=3", {"a": ["3"]}),
        ("a=1,2 , 3", {"a": ["1", "2", "3"]}),
        ("a=1\\,2,3", {"a": ["1,2", "3"]}),
        ("a=x\\,", {"a": ["x,"]}),
        ("a=1,", {"a": ["1", ""]}),
        ("a=1\na=2,3", {"a": ["1", "2", "3"]}),
        ("a=1,\\\n   2,\\\n# no\n\n 3\nb=4", {"a": ["1", "2", "3"], "b": ["4"]}),
        ("a=ends\\", {"a": ["ends"]}),
        ("a=\\u0041\\t\\\\x\\q", {"a": ["A\t\\xq"]}),
        ("a=/tmp/x y\r\nb=2\r\n", {"a": ["/tmp/x y"], "b": ["2"]}),
    ],
)
def test_the_file_syntax_is_that_of_java(line: str, expected: dict[str, list[str]]) -> None:
    assert values(line) == expected


@given(st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.text(max_size=20)))
def test_any_text_that_value_text_writes_is_read_back(wanted: dict[str, str]) -> None:
    wanted = {key: " ".join(text.split()) for key, text in wanted.items() if key != "include"}
    file = "\n".join(f"{key}={value_text(text)}" for key, text in wanted.items())
    assert {key: ",".join(found) for key, found in values(file).items()} == wanted


@given(st.text(max_size=200))
def test_no_text_does_worse_than_a_typed_error(text: str) -> None:
    with contextlib.suppress(ConfigError, PropertiesError):
        loaded(text)


def test_a_broken_escape_names_its_line() -> None:
    with pytest.raises(PropertiesError, match=r"^bk.conf:2: '\\u00zz' is no"):
        parse_properties("a=1\nb=\\u00zz", source="bk.conf")


def test_an_included_file_is_read_in_place(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "main.conf").write_text("a=1\ninclude = sub/other.conf\na=3\n")
    (tmp_path / "sub/other.conf").write_text("a=2\ninclude=third.conf")
    (tmp_path / "sub/third.conf").write_text("b=4")
    properties = read_properties(tmp_path / "main.conf")
    assert [value.text for value in properties.entries["a"].values] == ["1", "2", "3"]
    assert str(properties.entries["b"].origin) == f"{tmp_path}/sub/third.conf:1"


def test_a_circle_of_includes_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.conf").write_text("include=a.conf")
    with pytest.raises(PropertiesError, match="in a circle"):
        read_properties(tmp_path / "a.conf")


def test_files_without_an_end_are_not_read_into_memory(tmp_path: Path) -> None:
    (tmp_path / "a.conf").write_text("x=1\ninclude=/dev/zero")
    with pytest.raises(PropertiesError, match=r"a.conf:2: cannot read /dev/zero: larger than"):
        read_properties(tmp_path / "a.conf")


def test_includes_that_grow_from_file_to_file_are_counted(tmp_path: Path) -> None:
    for number in range(12):
        include = f"include={number + 1}.conf\n" * 10
        (tmp_path / f"{number}.conf").write_text(include if number < 11 else "a=1")
    with pytest.raises(PropertiesError, match="more than 100 files"):
        read_properties(tmp_path / "0.conf")


@pytest.mark.parametrize("text", ["\x1b[31mkey=1", "level=\x1b[31mx", "a\x9bb=1"])
def test_a_finding_cannot_drive_a_terminal_and_is_bounded(text: str) -> None:
    try:
        _, findings = loaded(text + "y" * 100_000)
    except ConfigError as error:
        findings = error.findings
    assert len(findings) == 1
    assert str(findings[0]).isprintable()
    assert len(str(findings[0])) < 5000


def test_a_missing_file_is_named_with_the_line_that_asked_for_it(tmp_path: Path) -> None:
    (tmp_path / "a.conf").write_text("\ninclude=b.conf")
    with pytest.raises(PropertiesError, match=r"a.conf:2: cannot read .*b.conf: No such file"):
        read_properties(tmp_path / "a.conf")


def test_a_file_that_is_not_utf8_is_latin_1(tmp_path: Path) -> None:
    (tmp_path / "a.conf").write_bytes(b"root=/\xe9")
    assert read_properties(tmp_path / "a.conf").entries["root"].values[0].text == "/é"


def test_references_to_environment_system_and_keys_are_expanded() -> None:
    config, findings = loaded(
        "root=${env:R}/${sys:user.name}/${bookiePort}\nbookiePort=99",
        environ={"R": "/r"},
        system={"user.name": "u"},
    )
    assert config.root == "/r/u/99"
    assert findings == ()


@pytest.mark.usefixtures("nameless")
def test_who_has_no_name_and_no_home_is_a_question_mark_as_in_java(tmp_path: Path) -> None:
    (tmp_path / "a.conf").write_text("root=${sys:user.name}/${sys:user.home}")
    config, findings = load(Sample, read_properties(tmp_path / "a.conf"))
    assert (config.root, findings) == ("?/?", ())


def test_the_name_of_a_user_is_that_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "somebody-else")
    assert java_system_properties()["user.name"] not in {"", "somebody-else"}


def test_a_reference_to_nothing_stays_and_is_reported() -> None:
    config, (finding,) = loaded("root=/${env:NOPE}")
    assert config.root == "/${env:NOPE}"
    assert finding.kind is FindingKind.REFERENCE


def test_references_in_a_circle_are_an_error() -> None:
    with pytest.raises(PropertiesError, match="refers to itself"):
        loaded("root=${x}\nx=${root}")


def test_every_kind_of_value_is_read() -> None:
    config, findings = loaded(
        "bookiePort=0x10\nusage=0.5\nsync=YES\nbookieId=b1\ndirs=/a, /b\nrate=5\n"
        "colour=BLUE\nlevel=-3\npasswd=p"
    )
    assert findings == ()
    assert config == Sample(
        port=16,
        usage=0.5,
        sync=True,
        name="b1",
        dirs=("/a", "/b"),
        rate=5,
        colour=Colour.BLUE,
        level=-3,
        password="p",
    )


def test_nothing_set_gives_the_defaults() -> None:
    assert loaded("") == (Sample(), ())


def test_an_empty_text_is_none_and_an_empty_list_is_empty() -> None:
    config, _ = loaded("bookieId=\ndirs=")
    assert (config.name, config.dirs) == (None, ())


def test_the_newer_name_wins_over_the_older() -> None:
    assert loaded("rate=5\nrateByEntries=6")[0].rate == 6


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("bookiePort=", "'' is empty where a number must be; allowed: 0 to 65535"),
        ("bookiePort=x", "'x' is not a whole number; allowed: 0 to 65535"),
        ("bookiePort=1.5", "'1.5' is not a whole number; allowed: 0 to 65535"),
        ("waitMSec=5m", "'5m' is not a whole number of ms"),
        ("bookiePort=65536", "'65536' is out of range; allowed: 0 to 65535"),
        ("level=9223372036854775808", "'9223372036854775808' does not fit into 64 bits; allowed"),
        ("usage=nan", "'nan' is not a number; allowed: 0 to 1"),
        ("sync=maybe", "'maybe' is not a boolean; allowed: true, false, yes"),
        ("colour=green", "'green' is not one of the allowed values; allowed: red, blue"),
        ("scheme=etcd", "'etcd' is not served"),
    ],
)
def test_a_refused_value_names_file_line_key_value_and_what_is_allowed(line, reason) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(f"\n{line}")
    key, _, value = line.partition("=")
    assert str(caught.value).startswith(f"bk.conf:2: {key}: {reason}")
    finding = caught.value.finding
    assert finding.origin == Origin("bk.conf", 2)
    assert (finding.key, finding.value) == (key, value)


def test_all_refused_values_are_in_one_error() -> None:
    with pytest.raises(ConfigError, match=r"bookiePort.*\(and 1 more\)$") as caught:
        loaded("bookiePort=x\nlevel=y\nnonsense=1")
    kinds = [finding.kind for finding in caught.value.findings]
    assert kinds == [FindingKind.INVALID, FindingKind.INVALID, FindingKind.UNKNOWN]


@pytest.mark.parametrize(
    ("line", "severity", "kind", "message"),
    [
        ("bookiPort=1", "WARNING", "UNKNOWN", "unknown key, not used; did you mean bookiePort?"),
        ("BOOKIEPORT=1", "WARNING", "UNKNOWN", "unknown key, not used; did you mean bookiePort?"),
        ("nonsense=1", "WARNING", "UNKNOWN", "unknown key, not used"),
        ("journalDir=/j", "WARNING", "UNKNOWN", "read by no version; the key is journalDirectory"),
        ("dlog.x=1", "NOTE", "IGNORED", "no effect: belongs to the table service"),
        ("threads=9", "NOTE", "IGNORED", "no effect: one thread is enough"),
        ("sync=no", "WARNING", "RISKY", "acknowledged data may go"),
        ("root=/a,/b", "WARNING", "CUT", "cut at the first comma, as Java does"),
        ("root=/a\nroot=/b", "WARNING", "CUT", "set again at bk.conf:2; the first counts"),
    ],
)
def test_an_odd_value_is_reported_by_name(line, severity, kind, message) -> None:
    _, (finding,) = loaded(line)
    assert finding.message.startswith(message)
    assert (finding.severity, finding.kind) == (Severity[severity], FindingKind[kind])
    assert str(finding).startswith(f"bk.conf:1: {finding.key}: ")


@pytest.mark.parametrize("line", ["dlog.x=", "threads=8"])
def test_an_empty_or_read_value_is_not_reported(line: str) -> None:
    assert loaded(line)[1] == ()


def test_a_scalar_takes_the_first_of_several() -> None:
    assert loaded("root=/a,/b\nroot=/c")[0].root == "/a"


def test_each_of_very_many_unknown_keys_is_reported() -> None:
    text = "".join(f"unknown.{number}=1\n" for number in range(2000))
    findings = load(Sample, parse_properties(text))[1]
    assert len(findings) == 2000
    assert {finding.kind for finding in findings} == {FindingKind.UNKNOWN}


@given(st.lists(st.sampled_from(["a*", "ab", "a?c", "*.x", "[ab]c", "a.b*"])), st.text("abcx.*"))
def test_the_first_pattern_that_a_key_matches_is_found(patterns: list[str], key: str) -> None:
    matching = (number for number, one in enumerate(patterns) if fnmatch.fnmatchcase(key, one))
    assert _Patterns(patterns).first(key) == next(matching, None)


def test_an_unknown_key_can_be_an_error() -> None:
    with pytest.raises(ConfigError, match="nonsense"):
        load(Sample, parse_properties("nonsense=1"), strict=True)


def test_keys_of_another_class_may_stand_in_the_same_file() -> None:
    @attrs.frozen(kw_only=True)
    class Other:
        nonsense: int = setting(1, key="nonsense", doc="Nonsense.")

    assert load(Sample, parse_properties("nonsense=2"), also=[Other])[1] == ()


def test_a_cross_check_gets_the_place_of_its_key() -> None:
    with pytest.raises(ConfigError, match=r"^bk.conf:2: waitMSec: must not exceed rate"):
        loaded("rate=5\nwaitMSec=6")


def test_the_command_line_wins_over_the_environment_and_that_over_the_file() -> None:
    properties = parse_properties("bookiePort=1\nroot=/file\nusage=0.1", source="bk.conf")
    set_in_environment = settings_of_environment(
        {"BK_root": "/env", "BK_usage": "0.2", "HOME": "/"}, Sample
    )
    properties = properties.override(set_in_environment, "BK_{key} in the environment")
    properties = properties.override({"usage": "0.3"}, "--usage")
    config, _ = load(Sample, properties)
    assert (config.port, config.root, config.usage) == (1, "/env", 0.3)


def test_the_environment_is_named_in_errors() -> None:
    properties = parse_properties("").override({"bookiePort": "x"}, "BK_{key} in the environment")
    with pytest.raises(ConfigError, match=r"^BK_bookiePort in the environment: bookiePort: 'x'"):
        load(Sample, properties)


def test_container_variables_that_are_no_settings_are_left_alone() -> None:
    found = settings_of_environment(
        {"BK_HOME": "/", "BK_rootPath": "x", "BK_root": "y", "X": "z"}, Sample
    )
    assert found == {"rootPath": "x", "root": "y"}


def test_secrets_are_masked_everywhere() -> None:
    config, _ = loaded("passwd=hunter2")
    assert "hunter2" not in repr(config)
    assert non_default_settings(config) == (("passwd", "********"),)


def test_a_secret_that_refers_to_nothing_is_not_part_of_the_warning() -> None:
    _, findings = loaded("passwd=hunter2${nothing}")
    assert [str(found) for found in findings] == [
        "bk.conf:1: passwd: '********' refers to nothing we know"
    ]


def test_names_tell_which_values_are_secret() -> None:
    for key in ("passwd", "httpAdminToken", "keyStorePassword", "clientSecret", "my.password"):
        assert is_secret_key(key)
    for key in ("tlsKeyStorePasswordPath", "httpAdminTokenFile", "bookiePort", "authorizedRoles"):
        assert not is_secret_key(key)


def test_changed_lists_what_differs_from_the_defaults() -> None:
    config, _ = loaded("dirs=/a,/b\nsync=off\nwaitMSec=2")
    assert non_default_settings(config) == (("sync", "false"), ("dirs", "/a,/b"))


def test_declarations_have_what_a_man_page_needs() -> None:
    found = {one.spec.key: one for one in declared(Sample)}
    assert list(found)[:2] == ["bookiePort", "waitMSec"]
    wait = found["waitMSec"]
    assert (wait.argument, wait.spec.unit) == ("wait_ms", "ms")
    assert (wait.default_text, wait.kind) == ("2", "whole number")
    assert (wait.spec.group, found["passwd"].spec.group) == ("Server", "Disks")
    assert found["bookieId"].default_text == "from the address"
    assert found["colour"].allowed == "red, blue"
    assert found["rateByEntries"].spec.aliases == ("rate",)


def test_a_file_of_all_defaults_gives_the_defaults() -> None:
    lines = [
        f"{one.spec.key}={value_text(one.default)}"
        for one in declared(Sample)
        if one.spec.key != "level"
    ]
    assert loaded("\n".join(lines)) == (Sample(), ())


@attrs.frozen(kw_only=True)
class Measured:
    wait_ms: int = setting(1, key="wait", doc="A wait.")
    size_bytes_max: int = setting(1, key="size", doc="A size.")
    copies_per_s: int = setting(1, key="speed", unit="copies/s", doc="A speed.")
    by_bytes: bool = setting(False, key="how", doc="A choice.")
    items: int = setting(1, key="items", doc="A count.")


def test_a_unit_is_read_from_the_name_where_none_is_declared() -> None:
    assert [one.spec.unit for one in declared(Measured)] == ["ms", "bytes", "copies/s", "", ""]
