"""Standard streams that are closed when a process begins."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = """
import json, os, sys
from bookied.process.standard_streams import open_closed_streams
open_closed_streams(keep_output=sys.argv[2] == "keep")
kept = open(sys.argv[1], "w")
said = {"number": kept.fileno(), "read": sys.stdin.read() if sys.argv[3] == "read" else ""}
try:
    print("out", flush=True)
except OSError as error:
    said["error"] = error.strerror
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
print("err", file=sys.stderr, flush=True)
child = os.system("true")
json.dump({**said, "child": child}, kept)
"""


def _started(path: Path, redirections: str, *args: str) -> dict[str, object]:
    line = f'exec "$0" "$@" {redirections}'
    command = ["sh", "-c", line, sys.executable, "-c", _PROGRAM, str(path), *args]
    subprocess.run(command, check=True, timeout=60, stdin=subprocess.DEVNULL)
    return json.loads(path.read_text())  # type: ignore[no-any-return]


@pytest.mark.parametrize("redirections", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_no_file_takes_the_place_of_a_closed_stream(redirections: str, tmp_path: Path) -> None:
    said = _started(tmp_path / "kept", redirections, "drop", "read")
    assert int(str(said["number"])) > 2
    assert (said["read"], said["child"]) == ("", 0)
    assert "error" not in said


def test_output_that_is_to_be_kept_cannot_be_written_to_a_closed_stream(tmp_path: Path) -> None:
    assert _started(tmp_path / "kept", ">&-", "keep", "-")["error"] == "Bad file descriptor"
