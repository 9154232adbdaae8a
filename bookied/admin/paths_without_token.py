"""The HTTP requests that need no token or certificate, with the reason for each.

docs/http.md has the same table. None of these requests writes, and none returns entries.
"""

from __future__ import annotations

from typing import Final

_PROBE: Final = "probes have no token; the answer has no more than the state"
_MONITORING: Final = "monitoring has no token; counts and states, no data of users"
_OPERATION: Final = "the state of the bookie: sizes, times, names of its own files"
_METADATA: Final = "the cluster's metadata without passwords, as Java has it; no entries"

OPEN: Final = {
    "/heartbeat": _PROBE,
    "/metrics": _MONITORING,
    "/api/v1/bookie/is_ready": _PROBE,
    "/api/v1/bookie/state": _PROBE,
    "/api/v1/bookie/state/readonly": _PROBE,
    "/api/v1/bookie/info": _MONITORING,
    "/api/v1/bookie/last_log_mark": _OPERATION,
    "/api/v1/bookie/list_disk_file": _OPERATION,
    "/api/v1/bookie/gc": _OPERATION,
    "/api/v1/bookie/gc_details": _OPERATION,
    "/api/v1/bookie/gc/suspend_compaction": _OPERATION,
    "/api/v1/bookie/entry_location_compact": _OPERATION,
    "/api/v1/config/server_config": "settings, with secrets masked",
    "/api/v1/bookie/list_bookies": _METADATA,
    "/api/v1/bookie/list_bookie_info": _MONITORING,
    "/api/v1/bookie/cluster_info": _MONITORING,
    "/api/v1/ledger/list": _METADATA,
    "/api/v1/ledger/metadata": _METADATA,
    "/api/v1/autorecovery/status": _METADATA,
    "/api/v1/autorecovery/list_under_replicated_ledger": _METADATA,
    "/api/v1/autorecovery/who_is_auditor": _METADATA,
    "/api/v1/autorecovery/lost_bookie_recovery_delay": _METADATA,
    "/api/v2/openapi.json": "the description of this API",
    "/api/v2/metrics": _MONITORING,
    "/api/v2/bookie": _OPERATION,
    "/api/v2/bookie/ready": _PROBE,
    "/api/v2/bookie/read-only": _PROBE,
    "/api/v2/bookie/disks": _MONITORING,
    "/api/v2/bookie/journals": _OPERATION,
    "/api/v2/bookie/gc": _OPERATION,
    "/api/v2/bookie/compaction": _OPERATION,
    "/api/v2/bookie/locations": _OPERATION,
    "/api/v2/config": "settings, with secrets masked",
    "/api/v2/config/origins": "where settings come from, without their values",
    "/api/v2/ledgers": _METADATA,
    "/api/v2/ledgers/{ledger_id}": _METADATA,
    "/api/v2/cluster": _MONITORING,
    "/api/v2/cluster/bookies": _METADATA,
    "/api/v2/autorecovery": _METADATA,
    "/api/v2/autorecovery/underreplicated": _METADATA,
    "/api/v2/autorecovery/failures": _OPERATION,
    "/api/v2/jobs": _OPERATION,
    "/api/v2/jobs/{job_id}": _OPERATION,
}
"""GET only; ``/heartbeat`` answers every method, as Java's."""
