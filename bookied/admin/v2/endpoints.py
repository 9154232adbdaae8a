"""The one table of ``/api/v2``: its endpoints, what they take and return.

The OpenAPI file is made of it: ``python -m bookied.admin.v2.endpoints > docs/openapi.json``.
"""

from __future__ import annotations

import json
import sys
import typing
from collections.abc import Callable
from typing import Any, Final

import attrs

from bookied.admin.exchange import (
    BAD_REQUEST,
    CONFLICT,
    FORBIDDEN,
    NOT_FOUND,
    UNAUTHORIZED,
    UNAVAILABLE,
)
from bookied.admin.v2 import handlers, values

PREFIX: Final = "/api/v2"

_CHANGING: Final = {
    UNAUTHORIZED: "No token, or a wrong one.",
    FORBIDDEN: "The bookie has no token, and so takes no changes.",
}
_BAD: Final = {BAD_REQUEST: "The request says something that cannot be meant."}
_NOT_SERVING: Final = {UNAVAILABLE: "The bookie does not serve yet, or stops."}


@attrs.frozen(kw_only=True)
class Parameter:
    """A parameter of the path or the query."""

    name: str
    doc: str
    in_path: bool = False
    least: int = 0


@attrs.frozen(kw_only=True)
class V2Endpoint:
    """One method of one path. What ``call`` returns, or awaits, is of the type ``gives``."""

    method: str
    path: str
    call: Callable[..., Any]
    doc: str
    gives: Any
    takes: Any = None
    parameters: tuple[Parameter, ...] = ()
    status: int = 200
    errors: dict[int, str] = attrs.field(factory=dict)
    may_be_unready: bool = False
    """Whether the answer comes with status 503 while the bookie does not serve."""

    @property
    def changes(self) -> bool:
        return self.method != "GET"


_LIMIT: Final = Parameter(
    name="limit",
    doc=f"How many at most; {handlers.LIMIT} unless given, {handlers.LIMIT_MAX} at most.",
    least=1,
)

_JOB: Final = Parameter(name="job_id", doc="Which job.", in_path=True)

ENDPOINTS: Final = (
    V2Endpoint(
        method="GET",
        path="/bookie",
        call=handlers.summary,
        doc="What the bookie is doing.",
        gives=values.BookieReport,
    ),
    V2Endpoint(
        method="GET",
        path="/bookie/ready",
        call=handlers.ready,
        doc="Whether it is registered and serves: the probe to use.",
        gives=values.Readiness,
        may_be_unready=True,
    ),
    V2Endpoint(
        method="GET",
        path="/bookie/read-only",
        call=handlers.read_only,
        doc="Whether it is read-only.",
        gives=values.ReadOnly,
    ),
    V2Endpoint(
        method="PUT",
        path="/bookie/read-only",
        call=handlers.set_read_only,
        doc="Make it read-only, or take that back. Full disks keep it so.",
        takes=handlers.SetReadOnly,
        gives=values.ReadOnly,
        errors={**_BAD, CONFLICT: "The settings forbid it.", **_NOT_SERVING},
    ),
    V2Endpoint(
        method="GET",
        path="/bookie/disks",
        call=handlers.disks,
        doc="How full its directories are, as the last look at them saw it.",
        gives=tuple[values.Disk, ...],
    ),
    V2Endpoint(
        method="GET",
        path="/bookie/journals",
        call=handlers.marks,
        doc="Where a replay of each journal would begin, by the marks on disk.",
        gives=tuple[values.JournalMark, ...],
        errors=_NOT_SERVING,
    ),
    V2Endpoint(
        method="GET",
        path="/bookie/gc",
        call=handlers.collections,
        doc="What garbage collection does and has done: one for each storage.",
        gives=tuple[values.Collection, ...],
    ),
    V2Endpoint(
        method="POST",
        path="/bookie/gc",
        call=handlers.collect,
        doc="Collect garbage now, with the compaction that is allowed.",
        takes=handlers.Collect,
        gives=values.AcceptedTask,
        status=202,
        errors={**_BAD, **_NOT_SERVING},
    ),
    V2Endpoint(
        method="GET",
        path="/bookie/compaction",
        call=handlers.compaction,
        doc="Which compactions an operator has suspended.",
        gives=values.Compaction,
    ),
    V2Endpoint(
        method="PUT",
        path="/bookie/compaction",
        call=handlers.set_compaction,
        doc="Suspend compactions, or resume them; it holds until the next start.",
        takes=handlers.SetCompaction,
        gives=values.Compaction,
        errors={**_BAD, **_NOT_SERVING},
    ),
    V2Endpoint(
        method="GET",
        path="/bookie/locations",
        call=handlers.locations,
        doc="The databases of DbLedgerStorage with the places of entries.",
        gives=tuple[values.LocationDatabase, ...],
    ),
    V2Endpoint(
        method="POST",
        path="/bookie/locations",
        call=handlers.compact_locations,
        doc="Rewrite one of them, or all, without what was deleted.",
        takes=handlers.CompactLocations,
        gives=tuple[values.LocationDatabase, ...],
        status=202,
        errors={**_BAD, **_NOT_SERVING},
    ),
    V2Endpoint(
        method="POST",
        path="/bookie/sanity",
        call=handlers.test,
        doc="Write a ledger to this bookie alone, read it back and delete it.",
        gives=values.SanityCheck,
    ),
    V2Endpoint(
        method="POST",
        path="/bookie/expand-storage",
        call=handlers.expand_storage,
        doc="Put the cookie into empty directories that the settings file names anew.",
        gives=values.AddedDirectories,
        errors={CONFLICT: "Cookies and settings do not fit.", **_NOT_SERVING},
    ),
    V2Endpoint(
        method="GET",
        path="/config",
        call=handlers.settings,
        doc="Every setting as text, by its key. Secrets are masked.",
        gives=values.Settings,
    ),
    V2Endpoint(
        method="PUT",
        path="/config",
        call=handlers.set_config,
        doc="Change a setting that takes effect at once; it holds until they are read again.",
        takes=handlers.SetConfig,
        gives=values.Settings,
        errors=_BAD,
    ),
    V2Endpoint(
        method="GET",
        path="/ledgers",
        call=handlers.ledgers,
        doc="The ledgers of the cluster, ascending.",
        parameters=(Parameter(name="after", doc="Only ids above this one."), _LIMIT),
        gives=values.LedgerPage,
        errors=_BAD,
    ),
    V2Endpoint(
        method="GET",
        path="/ledgers/{ledger_id}",
        call=handlers.ledger,
        doc="A ledger's metadata, without its password.",
        parameters=(Parameter(name="ledger_id", doc="Which ledger.", in_path=True),),
        gives=values.Ledger,
        errors={**_BAD, NOT_FOUND: "There is no such ledger."},
    ),
    V2Endpoint(
        method="GET",
        path="/cluster",
        call=handlers.cluster,
        doc="Number of bookies, and the auditor.",
        gives=values.ClusterSummary,
    ),
    V2Endpoint(
        method="GET",
        path="/cluster/bookies",
        call=handlers.bookies,
        doc="Every bookie that is registered or has a cookie.",
        gives=tuple[values.KnownBookie, ...],
    ),
    V2Endpoint(
        method="GET",
        path="/autorecovery",
        call=handlers.autorecovery,
        doc="What the cluster's metadata says about repair.",
        gives=values.Autorecovery,
    ),
    V2Endpoint(
        method="PUT",
        path="/autorecovery",
        call=handlers.set_autorecovery,
        doc="Enable or disable repair in the whole cluster, or set its delay.",
        takes=handlers.SetAutorecovery,
        gives=values.Autorecovery,
        errors=_BAD,
    ),
    V2Endpoint(
        method="GET",
        path="/autorecovery/underreplicated",
        call=handlers.underreplicated,
        doc="The ledgers that wait for repair.",
        parameters=(_LIMIT,),
        gives=tuple[values.UnderreplicatedLedger, ...],
        errors=_BAD,
    ),
    V2Endpoint(
        method="GET",
        path="/autorecovery/failures",
        call=handlers.failures,
        doc="The ledgers that the worker of this process could not repair, oldest first.",
        gives=tuple[values.RepairFailure, ...],
    ),
    V2Endpoint(
        method="POST",
        path="/autorecovery/audit",
        call=handlers.audit,
        doc="Start an audit for lost bookies now.",
        gives=values.AuditAsked,
        status=202,
        errors={CONFLICT: "Repair is disabled, or there is no auditor."},
    ),
    V2Endpoint(
        method="POST",
        path="/autorecovery/recover",
        call=handlers.recover,
        doc="Move what is on a bookie to others, from here; a job.",
        takes=handlers.Recover,
        gives=values.Job,
        status=202,
        errors={**_BAD, CONFLICT: "The same job runs already, or the bookie runs."},
    ),
    V2Endpoint(
        method="POST",
        path="/autorecovery/decommission",
        call=handlers.decommission,
        doc="Take a stopped bookie out, with the help of the cluster's workers; a job.",
        takes=handlers.Decommission,
        gives=values.Job,
        status=202,
        errors={**_BAD, CONFLICT: "The same job runs already, or the bookie runs."},
    ),
    V2Endpoint(
        method="GET",
        path="/jobs",
        call=handlers.jobs,
        doc="Jobs of this process, running or ended; the newest first.",
        gives=tuple[values.Job, ...],
    ),
    V2Endpoint(
        method="GET",
        path="/jobs/{job_id}",
        call=handlers.job,
        doc="How one job stands.",
        parameters=(_JOB,),
        gives=values.Job,
        errors={**_BAD, NOT_FOUND: "There is no such job."},
    ),
    V2Endpoint(
        method="DELETE",
        path="/jobs/{job_id}",
        call=handlers.cancel_job,
        doc="Stop a job where that is safe.",
        parameters=(_JOB,),
        gives=values.Job,
        errors={**_BAD, NOT_FOUND: "There is no such job."},
    ),
)


def openapi() -> dict[str, Any]:
    """Return the description of the table, as OpenAPI 3.1 has it."""
    classes: dict[str, Any] = {}
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in ENDPOINTS:
        operations = paths.setdefault(PREFIX + endpoint.path, {})
        operations[endpoint.method.lower()] = _operation(endpoint, classes)
    values.schema_of(values.ErrorAnswer, classes)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "bookied admin API",
            "version": "2",
            "description": "One bookie, for its operator. What changes something needs a token.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": dict(sorted(classes.items())),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(endpoint: V2Endpoint, classes: dict[str, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": endpoint.call.__name__,
        "summary": endpoint.doc,
        "responses": _responses(endpoint, classes),
    }
    if endpoint.parameters:
        described["parameters"] = [_parameter(one) for one in endpoint.parameters]
    if endpoint.takes is not None:
        described["requestBody"] = {
            "required": any(one.default is attrs.NOTHING for one in attrs.fields(endpoint.takes)),
            "content": {"application/json": {"schema": _body_schema(endpoint.takes)}},
        }
    if endpoint.changes:
        described["security"] = [{"token": []}]
    return described


def _responses(endpoint: V2Endpoint, classes: dict[str, Any]) -> dict[str, Any]:
    answer = _content(values.schema_of(endpoint.gives, classes))
    found = {str(endpoint.status): {"description": endpoint.doc, **answer}}
    if endpoint.may_be_unready:
        found[str(UNAVAILABLE)] = {"description": _NOT_SERVING[UNAVAILABLE], **answer}
    errors = {**endpoint.errors, **(_CHANGING if endpoint.changes else {})}
    failed = _content(values.schema_of(values.ErrorAnswer, classes))
    found |= {str(status): {"description": doc, **failed} for status, doc in errors.items()}
    return dict(sorted(found.items()))


def _content(schema: dict[str, Any]) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema}}}


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": "path" if parameter.in_path else "query",
        "required": parameter.in_path,
        "description": parameter.doc,
        "schema": {"type": "integer", "format": "int64", "minimum": parameter.least},
    }


def _body_schema(kind: Any) -> dict[str, Any]:
    """Return the schema of a body: what has a default may be left out."""
    hints = typing.get_type_hints(kind)
    properties = {
        one.name: values.schema_of((typing.get_args(hints[one.name]) or (hints[one.name],))[0], {})
        for one in attrs.fields(kind)
    }
    return {
        "type": "object",
        "description": (kind.__doc__ or "").strip(),
        "properties": properties,
        "required": [one.name for one in attrs.fields(kind) if one.default is attrs.NOTHING],
        "additionalProperties": False,
    }


def openapi_text() -> str:
    """Return the file."""
    return json.dumps(openapi(), indent=2) + "\n"


if __name__ == "__main__":
    sys.stdout.write(openapi_text())
