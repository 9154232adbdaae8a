"""File systems of pyarrow, with a local one in the place of an object store and of HDFS."""

from __future__ import annotations

from typing import Any

import pytest

from bkctl.commands.export.target.arrow_file_systems import ArrowFiles
from bkctl.commands.export.target.export_commit import COMMIT_PATH
from bkctl.commands.export.target.file_systems import open_files
from tests.bkctl.commands.export.target.dying_system import (
    DyingSystem,
    LostReplyError,
    check_every_step,
)
from tests.bkctl.commands.export.target.test_export_commit import Killed

pytest.importorskip("pyarrow")


class Named:
    """A local file system that passes for another kind."""

    def __init__(self, type_name: str) -> None:
        from pyarrow import fs

        self._system, self.type_name = fs.LocalFileSystem(), type_name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._system, name)


@pytest.mark.parametrize(
    "error",
    [Killed(), OSError("no network"), LostReplyError("no answer")],
    ids=["killed", "error", "lost reply"],
)
@pytest.mark.parametrize("kind", ["s3", "hdfs"])
def test_a_commit_that_stops_at_any_step_leaves_all_or_nothing(tmp_path, kind, error) -> None:
    system = Named(kind)
    files = ArrowFiles(f"{kind}://bucket", system, str(tmp_path))
    assert check_every_step(system, files, error) > 10


def test_a_small_file_is_never_seen_half(tmp_path) -> None:
    system = Named("hdfs")
    ArrowFiles("hdfs://", system, str(tmp_path)).put(COMMIT_PATH, b"old")

    class Half(DyingSystem):
        """Writes the first bytes of a file, and dies."""

        def open_output_stream(self, path: str) -> Any:
            with self._system.open_output_stream(path) as stream:
                stream.write(b"ha")
            raise Killed

    dying = ArrowFiles("hdfs://", Half(system, 100, Killed()), str(tmp_path))
    with pytest.raises(Killed):
        dying.put(COMMIT_PATH, b"half")
    assert (tmp_path / COMMIT_PATH).read_bytes() == b"old"


@pytest.mark.parametrize("failures", [1, 2])
def test_an_object_that_another_export_overwrites_is_read_once_more(tmp_path, failures) -> None:
    """One of three exports at a time failed: the object changed while the store sent it."""
    (tmp_path / "commit").write_bytes(b"new")

    class Overwritten(Named):
        """Cuts the first answers."""

        left = failures

        def open_input_file(self, path: str) -> Any:
            if self.left:
                self.left -= 1
                raise OSError("Failed to flush response stream")
            return self._system.open_input_file(path)

    files = ArrowFiles("s3://bucket", Overwritten("s3"), str(tmp_path))
    if failures == 1:
        assert files.read("commit") == b"new"
    else:
        with pytest.raises(OSError, match="flush"):
            files.read("commit")


def test_what_a_uri_asks_for_stays_behind_the_path() -> None:
    files = open_files("s3a://bucket/exports/?endpoint_override=127.0.0.1:9000&scheme=http")
    assert files.uri == "s3a://bucket/exports?endpoint_override=127.0.0.1:9000&scheme=http"
    below = files.child("a/b").uri
    assert below == "s3a://bucket/exports/a/b?endpoint_override=127.0.0.1:9000&scheme=http"


def test_a_uri_with_a_password_is_refused_and_not_shown() -> None:
    with pytest.raises(OSError, match="the URI of bucket has a password") as caught:
        open_files("s3a://key:secret@bucket/exports")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("rest", ["data/exports", "/data/exports?a=b", "/data/exports#2"])
def test_a_file_uri_of_which_a_part_would_be_dropped_is_refused(rest: str) -> None:
    """An export to file://data/exports was in /exports."""
    with pytest.raises(OSError, match="write file:///DIRECTORY"):
        open_files(f"file://{rest}")
    for good in (
        "file:///data/ex%20ports",
        "file:/data/ex ports",
        "file://localhost/data/ex ports",
    ):
        assert open_files(good).uri == "/data/ex ports"


def test_a_directory_that_appears_while_it_is_listed_is_listed(tmp_path) -> None:
    class Appearing(Named):
        """Says once that what is a directory by now is none."""

        is_new = True

        def get_file_info(self, asked: Any) -> Any:
            if self.is_new:
                self.is_new = False
                raise NotADirectoryError(asked.base_dir)
            return self._system.get_file_info(asked)

    (tmp_path / "file").write_bytes(b"abc")
    assert ArrowFiles("hdfs://", Appearing("hdfs"), str(tmp_path)).sizes() == {"file": 3}
