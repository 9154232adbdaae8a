"""Who we are to ZooKeeper, by the settings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bkclient.config.client import ClientConfig
from bkclient.errors import SecurityError
from bkclient.metadata.store_settings import store_options

URI = "zk+hierarchical://zk1:2181/ledgers"
JAAS = """
Client {
  org.apache.zookeeper.server.auth.DigestLoginModule required username="bk" password="pw";
};
"""


def options(uri: str = URI, **settings: Any) -> dict[str, Any]:
    return store_options(ClientConfig(**settings), uri)


def test_a_file_knows_nobody(tmp_path: Path) -> None:
    told = options("sqlite:///m.db", zk_enable_security=True, zk_digest_path=str(tmp_path / "no"))
    assert set(told) == {"session_timeout_s", "requests_per_s_max", "mark_times"}


def test_pace_and_patience_are_those_of_the_settings() -> None:
    told = options(zk_timeout_ms=1500, zk_request_rate_limit=7, store_mark_time=False)
    assert told == {
        "session_timeout_s": 1.5,
        "requests_per_s_max": 7,
        "mark_times": False,
        "secure": False,
    }


def test_a_digest_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "digest"
    path.write_text("bookie:se:cret\n")
    told = options(zk_enable_security=True, zk_digest_path=str(path))
    assert (told["auth_data"], told["secure"]) == ([("digest", "bookie:se:cret")], True)
    for wrong in ("bookie", "", "a:b\nc:d"):
        path.write_text(wrong)
        with pytest.raises(SecurityError, match="is not one line USER:PASSWORD"):
            options(zk_digest_path=str(path))
    with pytest.raises(SecurityError, match="zkDigestAuthFile: cannot read"):
        options(zk_digest_path=str(tmp_path / "none"))


def test_the_section_for_zookeeper_is_the_one_that_java_reads(tmp_path: Path) -> None:
    path = tmp_path / "jaas.conf"
    path.write_text(JAAS)
    told = options(jaas_path=str(path))
    assert told["sasl_options"] == {
        "mechanism": "DIGEST-MD5",
        "username": "bk",
        "password": "pw",
    }
    path.write_text(JAAS.replace("Client", "BookKeeper"))
    assert "sasl_options" not in options(jaas_path=str(path))


def test_nodes_for_their_creator_need_somebody_to_be_that(tmp_path: Path) -> None:
    path = tmp_path / "jaas.conf"
    path.write_text(JAAS.replace("Client", "BookKeeper"))
    for settings in ({}, {"jaas_path": str(path)}):
        with pytest.raises(SecurityError, match="zkEnableSecurity needs credentials"):
            options(zk_enable_security=True, **settings)


def test_credentials_are_read_without_the_driver() -> None:
    """A command that only reads metadata would take 80 ms longer."""
    code = (
        "import sys; from bkclient.config.client import ClientConfig\n"
        "from bkclient.metadata.store_settings import store_options\n"
        f"store_options(ClientConfig(), {URI!r})\n"
        "print([m for m in ('kazoo', 'twisted.internet.defer') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
