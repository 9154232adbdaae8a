"""An S3 server of this host's: moto's, in a process of its own."""

from __future__ import annotations

import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bkctl.commands.local.child_process import ChildProcess
from tests.support.child_processes import until_child

BUCKET = "bucket"
_PROGRAM = """
import signal
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print("port", server.get_host_and_port()[1], flush=True)
signal.pause()
"""


@contextmanager
def s3_server(directory: Path) -> Iterator[dict[str, str]]:
    """Run a server with one empty bucket; give the environment that clients need."""
    process = ChildProcess([sys.executable, "-u", "-c", _PROGRAM], directory / "s3.log")
    try:
        until_child(process, lambda: "port " in process.log_tail())
        port = int(process.log_tail().split("port ")[1].split()[0])
        endpoint = f"http://127.0.0.1:{port}"
        request = urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT")
        urllib.request.urlopen(request, timeout=30).close()
        yield {
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_REGION": "us-east-1",
        }
    finally:
        process.stop(30)
