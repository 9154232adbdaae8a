"""Files, pipes and devices that are read up to a limit."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from bkclient.config.properties import read_at_most

LARGE = bytes(200_000)


@pytest.mark.parametrize("data", [b"", b"a=b", LARGE])
def test_a_file_is_read_to_its_end_or_limit(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    assert read_at_most(str(path), 1000) == data[:1001]
    assert read_at_most("/dev/zero", 100_000) == bytes(100_001)


def test_a_pipe_that_no_process_writes_to_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(OSError, match="no process writes to this pipe"):
        read_at_most(str(path), 1000, writer_wait_s=0.05)


@pytest.mark.parametrize("data", [b"", b"a=b", LARGE])
def test_a_pipe_is_read_to_its_end(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_bytes(data))
    writer.start()
    try:
        assert read_at_most(str(path), len(LARGE), writer_wait_s=60) == data
    finally:
        writer.join()


def test_a_writer_that_takes_its_time_is_waited_for() -> None:
    reading, writing = os.pipe()
    found: list[bytes] = []
    path = f"/proc/self/fd/{reading}"
    reader = threading.Thread(target=lambda: found.append(read_at_most(path, 1000, 0.0)))
    reader.start()
    os.write(writing, b"a")
    os.write(writing, b"b")
    os.close(writing)
    reader.join()
    os.close(reading)
    assert found == [b"ab"]
