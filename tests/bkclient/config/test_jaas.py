"""JAAS files: those that operators of Java's bookies have, and what is wrong with others."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkclient.config.jaas import JaasFile, Login, read_jaas
from bkclient.errors import SecurityError

FILE = """
/* Names and passwords; { braces = here } count for nothing. */
Bookie {
       org.apache.zookeeper.server.auth.DigestLoginModule required // whoever comes
       user_hd="testpwd"
       user_bookkeeper="with \\"quotes\\", {braces}; and //slashes";
};
BookKeeper {
  org.apache.zookeeper.server.auth.DigestLoginModule REQUIRED
  username=hd password="testpwd";
};
Several {
  a.B optional;
  org.apache.zookeeper.server.auth.DigestLoginModule required username="x" password="";
};
Kerberos {
  com.sun.security.auth.module.Krb5LoginModule required
  useKeyTab=true keyTab="/etc/x.keytab" principal="bookkeeper/host@REALM";
};
"""


def test_a_bookies_section_names_who_may_come() -> None:
    assert JaasFile("jaas.conf", FILE).users("Bookie") == {
        "hd": "testpwd",
        "bookkeeper": 'with "quotes", {braces}; and //slashes',
    }


def test_a_clients_section_says_who_it_is() -> None:
    found = JaasFile("jaas.conf", FILE)
    assert found.login("BookKeeper") == Login("hd", "testpwd")
    assert found.login("Several") == Login("x", "")
    assert "testpwd" not in repr(found.login("BookKeeper"))


@pytest.mark.parametrize(
    ("section", "told"),
    [
        (
            "Client",
            "there is no section Client; existing sections: Bookie, BookKeeper, Several, Kerberos",
        ),
        ("Kerberos", "Kerberos logs in by Kerberos (GSSAPI), which is not offered; DIGEST-MD5 is"),
        ("Bookie", "Bookie has no username and password"),
    ],
)
def test_a_section_that_cannot_be_used_says_why(section: str, told: str) -> None:
    with pytest.raises(SecurityError) as caught:
        JaasFile("jaas.conf", FILE).login(section)
    assert str(caught.value).startswith(f"jaas.conf: {told}")


def test_sections_can_be_looked_for() -> None:
    found = JaasFile("jaas.conf", FILE)
    assert "Bookie" in found
    assert "Client" not in found


def test_a_bookies_section_without_users_is_refused() -> None:
    with pytest.raises(SecurityError, match='BookKeeper names no user; add user_NAME="PASSWORD"'):
        JaasFile("jaas.conf", FILE).users("BookKeeper")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("A {\n m required x=y;\n}", "jaas.conf:3: ';' is missing; the file ends"),
        ("A {\n m x=y;\n};", "jaas.conf:2: a login module and its flag"),
        ("A {\n m required user_a secret;\n};", "jaas.conf:2: '=' is missing; there is something"),
        ('A {\n m required user_a="secret;\n};', "jaas.conf:2: something that can be understood"),
        ("A", "jaas.conf:1: '{' is missing; the file ends"),
        ("A {", "jaas.conf:1: a login module and its flag"),
        ("A { m required x", "jaas.conf:1: '=' is missing"),
    ],
)
def test_a_broken_file_is_told_by_its_line_and_without_passwords(text: str, told: str) -> None:
    with pytest.raises(SecurityError) as caught:
        JaasFile("jaas.conf", text)
    assert str(caught.value).startswith(told)
    assert "secret" not in str(caught.value)


@given(st.text(alphabet='a{};="\\ \n/*\0é', max_size=40))
def test_no_text_does_worse_than_a_security_error(text: str) -> None:
    try:
        JaasFile("jaas.conf", text)
    except SecurityError:
        return


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SecurityError, match=r"saslJaasConfigFile: cannot read .*/none: No such"):
        read_jaas(str(tmp_path / "none"))
    with pytest.raises(SecurityError, match=r"-Djava\.security\.auth\.login\.config"):
        read_jaas("")
