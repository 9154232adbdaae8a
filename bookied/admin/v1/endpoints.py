"""The table of ``/api/v1``: Java's endpoints with forms, codes, texts and quirks of 4.18.0.

Deliberate differences: a request that changes something needs a token, secrets and passwords are
masked, and answers have a Content-Type.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Final

import attrs

from bookied.admin.control.operations import Control
from bookied.admin.http.requests_and_replies import (
    FORBIDDEN,
    METHOD_NOT_ALLOWED,
    NOT_FOUND,
    HttpReply,
    HttpRequest,
)
from bookied.admin.paths_without_token import OPEN
from bookied.admin.v1 import bookie_handlers as v1_bookie
from bookied.admin.v1 import cluster_handlers as v1_cluster

Handler = Callable[[Control, HttpRequest], Awaitable[HttpReply]]

METHODS: Final = ("GET", "PUT", "POST", "DELETE")
"""The methods that Java routes to its handlers."""

HEARTBEAT: Final = "/heartbeat"

_ONLY_GET: Final = v1_cluster.ONLY_GET
_ONLY_PUT: Final = v1_cluster.ONLY_PUT


@attrs.frozen
class V1Endpoint:
    """One of Java's paths: the handler of each method, and the answer to other methods."""

    path: str
    handlers: Mapping[str, Handler]
    otherwise: str = _ONLY_GET
    status: int = NOT_FOUND

    reads_entries: bool = False
    """True if the answer contains entries."""
    is_heavy: bool = False
    """True if the answer grows with the number of ledgers or the size of entries."""

    def is_guarded(self, method: str) -> bool:
        """Return whether a request needs the token or a certificate."""
        is_open = self.path == HEARTBEAT or (method == "GET" and self.path in OPEN)
        return method in self.handlers and not is_open

    async def answer(self, control: Control, asked: HttpRequest) -> HttpReply:
        """Return the answer.

        Raises:
            BookKeeperError: for any error; Java answers 500.
        """
        handler = self.handlers.get(asked.method)
        if handler is not None:
            return await handler(control, asked)
        return HttpReply(self.status, self.otherwise.format(method=asked.method))


def _endpoints() -> Iterator[V1Endpoint]:
    yield V1Endpoint(HEARTBEAT, dict.fromkeys(METHODS, v1_bookie.heartbeat))
    only_get = "{method} is forbidden. Should be GET method"
    yield V1Endpoint("/metrics", {"GET": v1_bookie.metrics}, only_get, FORBIDDEN)
    yield from _ledger("/api/v1/ledger/")
    yield from _bookie("/api/v1/bookie/")
    yield from _compaction("/api/v1/bookie/")
    yield from _cluster("/api/v1/bookie/")
    yield from _autorecovery("/api/v1/autorecovery/")


def _ledger(at: str) -> Iterator[V1Endpoint]:
    does = v1_cluster
    delete = "Not found method. Should be DELETE method"
    yield V1Endpoint(f"{at}delete", {"DELETE": does.delete_ledger}, delete)
    yield V1Endpoint(f"{at}list", {"GET": does.list_ledgers}, is_heavy=True)
    yield V1Endpoint(f"{at}metadata", {"GET": does.ledger_metadata})
    yield V1Endpoint(
        f"{at}read", {"GET": does.read_ledger}, does.NO_LEDGER, reads_entries=True, is_heavy=True
    )


def _bookie(at: str) -> Iterator[V1Endpoint]:
    does = v1_bookie
    yield V1Endpoint(
        "/api/v1/config/server_config",
        {"GET": does.server_config, "PUT": does.set_server_config},
        does.NO_PAIRS,
    )
    yield V1Endpoint(f"{at}info", {"GET": does.bookie_info}, "Only GET is supported.")
    yield V1Endpoint(f"{at}last_log_mark", {"GET": does.last_log_mark})
    yield V1Endpoint(f"{at}list_disk_file", {"GET": does.list_disk_file})
    yield V1Endpoint(f"{at}expand_storage", {"PUT": does.expand_storage}, _ONLY_PUT)
    state = "Only support GET method to retrieve bookie state."
    yield V1Endpoint(f"{at}state", {"GET": does.state}, state)
    sanity = "Only support GET method to retrieve bookie sanity state."
    yield V1Endpoint(f"{at}sanity", {"GET": does.sanity}, sanity)
    ready = "Only support GET method check if bookie is ready."
    yield V1Endpoint(f"{at}is_ready", {"GET": does.is_ready}, ready)
    yield V1Endpoint(
        f"{at}state/readonly",
        {"GET": does.read_only, "PUT": does.set_read_only},
        "Unsupported method. Should be GET or PUT method",
    )


def _compaction(at: str) -> Iterator[V1Endpoint]:
    does = v1_bookie
    yield V1Endpoint(
        f"{at}gc",
        {"GET": does.gc, "PUT": does.collect},
        "Not allowed method. Should be PUT to trigger GC, Or GET to get Force GC state.",
        METHOD_NOT_ALLOWED,
    )
    yield V1Endpoint(
        f"{at}gc_details",
        {"GET": does.gc_details},
        "Only support GET method to retrieve GC details. "
        "If you want to trigger gc, send a POST to gc endpoint.",
    )
    yield V1Endpoint(
        f"{at}gc/suspend_compaction",
        {"GET": does.suspended, "PUT": does.suspend_compaction},
        _switch("suspend"),
    )
    resume = _switch("resume")
    yield V1Endpoint(f"{at}gc/resume_compaction", {"PUT": does.resume_compaction}, resume)
    yield V1Endpoint(
        f"{at}entry_location_compact",
        {"GET": does.locations, "PUT": does.compact_locations},
        "Not found method. Should be PUT to trigger entry location compact, "
        "Or GET to get entry location compact state.",
        METHOD_NOT_ALLOWED,
    )


def _switch(word: str) -> str:
    return (
        f"Not found method. Should be PUT to {word} major or minor compaction, "
        "Or GET to get compaction state."
    )


def _cluster(at: str) -> Iterator[V1Endpoint]:
    does = v1_cluster
    yield V1Endpoint(f"{at}list_bookies", {"GET": does.list_bookies})
    yield V1Endpoint(f"{at}list_bookie_info", {"GET": does.list_bookie_info})
    yield V1Endpoint(f"{at}cluster_info", {"GET": does.cluster_info}, "Only GET is supported.")


def _autorecovery(at: str) -> Iterator[V1Endpoint]:
    does = v1_cluster
    yield V1Endpoint(
        f"{at}status",
        {"GET": does.autorecovery, "PUT": does.set_autorecovery},
        "Not found method. Should be GET or PUT method",
    )
    yield V1Endpoint(
        f"{at}list_under_replicated_ledger", {"GET": does.list_underreplicated}, is_heavy=True
    )
    yield V1Endpoint(f"{at}who_is_auditor", {"GET": does.who_is_auditor})
    yield V1Endpoint(
        f"{at}lost_bookie_recovery_delay", {"GET": does.delay, "PUT": does.set_delay}, _ONLY_PUT
    )
    yield V1Endpoint(f"{at}bookie", {"PUT": does.recover}, "No request body provide.")
    yield V1Endpoint(f"{at}trigger_audit", {"PUT": does.trigger_audit}, _ONLY_PUT)
    yield V1Endpoint(f"{at}decommission", {"PUT": does.decommission}, _ONLY_PUT)


ENDPOINTS: Final = tuple(_endpoints())
