"""Files with secrets that others can read are warned about, each by its setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkclient.config.client import ClientConfig
from bkclient.config.declaration import declared
from bkclient.config.findings import Severity
from bkclient.config.private_files import SECRET_FILES, changeable_by_others, open_to_others
from bkclient.config.properties import parse_properties
from bkclient.config.settings import load
from bookied.config.bookie import BookieConfig


def config(cls: type, path: Path) -> object:
    known = {one.spec.key for one in declared(cls)} & SECRET_FILES
    text = "metadataServiceUri=sqlite:///m.db\n" + "".join(f"{key}={path}\n" for key in known)
    return load(cls, parse_properties(text))[0]


@pytest.mark.parametrize("cls", [BookieConfig, ClientConfig])
@pytest.mark.parametrize(("mode", "can"), [(0o644, "read"), (0o606, "change"), (0o602, "change")])
def test_a_secret_that_others_reach_is_warned_about(
    tmp_path: Path, cls: type, mode: int, can: str
) -> None:
    path = tmp_path / "secret"
    path.touch()
    path.chmod(mode)
    found = list(open_to_others(config(cls, path)))
    assert {one.key for one in found} == {one.spec.key for one in declared(cls)} & SECRET_FILES
    assert {one.severity for one in found} == {Severity.WARNING}
    assert {one.message for one in found} == {
        f"{path} has mode {mode:04o}: every user of this host can {can} it; chmod o-rwx {path}"
    }


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o400, 0o660])
def test_a_secret_of_its_user_and_group_is_fine(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "secret"
    path.touch()
    path.chmod(mode)
    assert list(open_to_others(config(BookieConfig, path))) == []
    path.unlink()
    assert list(open_to_others(config(BookieConfig, path))) == []


def test_every_setting_that_names_a_secret_file_is_known() -> None:
    keys = {one.spec.key for cls in (BookieConfig, ClientConfig) for one in declared(cls)}
    assert keys >= SECRET_FILES
    words = ("KeyStore", "PasswordPath", "JaasConfig", "TokenFile", "AuthFile", "KeyStorePath")
    named = {key for key in keys if key.endswith(words) or key == "saslJaasConfigFile"}
    assert named == SECRET_FILES


@pytest.mark.parametrize(("mode", "warned"), [(0o644, False), (0o664, False), (0o646, True)])
def test_a_settings_file_that_others_can_change_is_warned_about(
    tmp_path: Path, mode: int, *, warned: bool
) -> None:
    path = tmp_path / "bk_server.conf"
    assert list(changeable_by_others(str(path))) == []
    path.touch()
    path.chmod(mode)
    text = f"{path}: has mode 0646: every user of this host can change it; chmod o-w {path}"
    assert [str(one) for one in changeable_by_others(str(path))] == [text] * warned
    assert list(changeable_by_others("/dev/null")) == []
