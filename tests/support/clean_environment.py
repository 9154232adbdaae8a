"""What a user's environment and home would change in our programs, kept away from all tests.

A test that is about such a variable or file gives it itself; programs it starts inherit the rest.
"""

from __future__ import annotations

import atexit
import contextlib
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Final

from bkctl.commands.export.spark.session import scratch_directory
from tests.interop.peers.jars import JARS_VARIABLE, default_directory

_OF_A_USER: Final = re.compile(
    r"BKCTL_(?!CI_|TEST_|SIM_).*|BK_.*|BOOKIE_.*|CLI_CONF|LOCALBOOKIES_.*"  # Ours, and Java's.
    r"|TERM|TTY_.*|COLUMNS|LINES|NO_COLOR|FORCE_COLOR"
    r"|PAGER|EDITOR|VISUAL|NOTIFY_SOCKET|WATCHDOG_.*"
    r"|SPARK_(?!HOME$|LOCAL_).*|PYSPARK_.*|HADOOP_CONF_DIR"
)
"""Variables that our programs or Spark heed; those that tests themselves heed are left out."""

_PLAIN: Final = re.compile(r"[\w./-]{1,40}", re.ASCII)
"""A place for temporary files that can be typed at a shell, and is short enough for sockets."""

_TMPDIR_OF_TESTS: Final = "BKCTL_TEST_TMPDIR"

_PLACES: Final = {"XDG_CONFIG_HOME": "config", "XDG_CACHE_HOME": "cache", "XDG_STATE_HOME": "state"}


def temporary_home() -> Path:
    """Make a directory that is gone when this process ends.

    If this process is killed, the next one removes it.
    """
    until_the_end = contextlib.ExitStack()
    atexit.register(until_the_end.close)
    home = until_the_end.enter_context(scratch_directory("bkctl-test-home-"))
    (home / "tmp").mkdir()
    return home


def keep_away(
    environ: MutableMapping[str, str], make_home: Callable[[], Path] = temporary_home
) -> None:
    """Take away what is the user's, for this process and all that it starts."""
    for name in filter(_OF_A_USER.fullmatch, [*environ]):
        del environ[name]
    if "PYTEST_XDIST_WORKER" in environ:
        tempfile.tempdir = environ.get(_TMPDIR_OF_TESTS)
        return  # All the rest is as the process that started this one has left it.
    if not _PLAIN.fullmatch(tempfile.gettempdir()):
        tempfile.tempdir = "/tmp"
    # What is fetched once for a user stays where it is.
    jars = default_directory(environ)
    environ.setdefault(JARS_VARIABLE, str(jars))
    environ.setdefault("MPLCONFIGDIR", str(jars.with_name("matplotlib")))
    if "PYTHONPYCACHEPREFIX" not in environ and environ.pop("PYTHONDONTWRITEBYTECODE", None):
        # Else each process compiles its modules again: that is half of the CPU time of a start.
        compiled = jars.with_name("bytecode")
        environ["PYTHONPYCACHEPREFIX"] = str(compiled)
        # What earlier runs compiled of their temporary files is of no use again.
        shutil.rmtree(f"{compiled}{tempfile.gettempdir()}", ignore_errors=True)
        sys.pycache_prefix, sys.dont_write_bytecode = environ["PYTHONPYCACHEPREFIX"], False
    home = make_home()
    environ.setdefault("HOME", str(home))
    environ.update({name: str(home / place) for name, place in _PLACES.items()})
    # Programs under test may be killed: what they leave goes with the home.
    environ.update({_TMPDIR_OF_TESTS: tempfile.gettempdir(), "TMPDIR": str(home / "tmp")})
