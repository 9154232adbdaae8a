"""The table of ``/api/v2``: its endpoints with their parameters and results.

It generates the OpenAPI file: ``python -m bookied.admin.v2.endpoints > docs/openapi.json``.
"""

from __future__ import annotations

import json
import sys
import typing
from collections.abc import Callable
from typing import Any, Final

import attrs

from bookied.admin.http.requests_and_replies import (
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
    FORBIDDEN: "The bookie has no token, so it refuses changes.",
}
_BAD: Final = {BAD_REQUEST: "The request says something that cannot be meant."}
_NOT_SERVING: Final = {UNAVAILABLE: "The bookie does not serve yet, or stops."}
_BAD_OR_EARLY: Final = {**_BAD, **_NOT_SERVING}
_BUSY: Final = {**_BAD, CONFLICT: "The same job runs already, or the bookie runs."}
_NO_JOB: Final = {**_BAD, NOT_FOUND: "There is no such job."}


@attrs.frozen(kw_only=True)
class Parameter:
    """A parameter of the path or the query."""

    name: str
    doc: str
    in_path: bool = False
    least: int = 0


@attrs.frozen
class V2Endpoint:
    """One method of one path; the docstring of ``call`` describes it, and ``call`` returns a value.

    A third parameter of ``call`` is the request's body, as a value of its type.
    """

    method: str
    path: str
    call: Callable[..., Any]
    parameters: tuple[Parameter, ...] = attrs.field(default=(), kw_only=True)
    status: int = attrs.field(default=200, kw_only=True)
    errors: dict[int, str] = attrs.field(factory=dict, kw_only=True)
    may_be_unready: bool = attrs.field(default=False, kw_only=True)
    """True if the answer has status 503 while the bookie does not serve."""

    @property
    def changes(self) -> bool:
        return self.method != "GET"

    @property
    def doc(self) -> str:
        return self.call.__doc__ or ""

    @property
    def gives(self) -> Any:
        """The type of the value that ``call`` returns or awaits."""
        return typing.get_type_hints(self.call)["return"]

    @property
    def takes(self) -> Any:
        """The class of the request's body; None if the body is ignored."""
        return typing.get_type_hints(self.call).get("wanted")


_LIMIT: Final = Parameter(
    name="limit",
    doc=f"How many at most; {handlers.LIMIT} unless given, {handlers.LIMIT_MAX} at most.",
    least=1,
)

_JOB: Final = Parameter(name="job_id", doc="Which job.", in_path=True)

ENDPOINTS: Final = (
    V2Endpoint("GET", "/bookie", handlers.summary),
    V2Endpoint("GET", "/bookie/ready", handlers.ready, may_be_unready=True),
    V2Endpoint("GET", "/bookie/read-only", handlers.read_only),
    V2Endpoint(
        "PUT",
        "/bookie/read-only",
        handlers.set_read_only,
        errors={**_BAD_OR_EARLY, CONFLICT: "The settings forbid it."},
    ),
    V2Endpoint("GET", "/bookie/disks", handlers.disks),
    V2Endpoint("GET", "/bookie/journals", handlers.marks, errors=_NOT_SERVING),
    V2Endpoint("GET", "/bookie/gc", handlers.collections),
    V2Endpoint("POST", "/bookie/gc", handlers.collect, status=202, errors=_BAD_OR_EARLY),
    V2Endpoint("GET", "/bookie/compaction", handlers.compaction),
    V2Endpoint("PUT", "/bookie/compaction", handlers.set_compaction, errors=_BAD_OR_EARLY),
    V2Endpoint("GET", "/bookie/locations", handlers.locations),
    V2Endpoint(
        "POST", "/bookie/locations", handlers.compact_locations, status=202, errors=_BAD_OR_EARLY
    ),
    V2Endpoint("POST", "/bookie/sanity", handlers.test),
    V2Endpoint(
        "POST",
        "/bookie/expand-storage",
        handlers.expand_storage,
        errors={CONFLICT: "Cookies and settings do not fit.", **_NOT_SERVING},
    ),
    V2Endpoint("GET", "/config", handlers.settings),
    V2Endpoint("GET", "/config/origins", handlers.setting_origins),
    V2Endpoint("PUT", "/config", handlers.set_config, errors=_BAD),
    V2Endpoint(
        "GET",
        "/ledgers",
        handlers.ledgers,
        parameters=(Parameter(name="after", doc="Only ids above this one."), _LIMIT),
        errors=_BAD,
    ),
    V2Endpoint(
        "GET",
        "/ledgers/{ledger_id}",
        handlers.ledger,
        parameters=(Parameter(name="ledger_id", doc="Which ledger.", in_path=True),),
        errors={**_BAD, NOT_FOUND: "There is no such ledger."},
    ),
    V2Endpoint("GET", "/cluster", handlers.cluster),
    V2Endpoint("GET", "/cluster/bookies", handlers.bookies),
    V2Endpoint("GET", "/autorecovery", handlers.autorecovery),
    V2Endpoint("PUT", "/autorecovery", handlers.set_autorecovery, errors=_BAD),
    V2Endpoint(
        "GET",
        "/autorecovery/underreplicated",
        handlers.underreplicated,
        parameters=(_LIMIT,),
        errors=_BAD,
    ),
    V2Endpoint("GET", "/autorecovery/failures", handlers.failures),
    V2Endpoint(
        "POST",
        "/autorecovery/audit",
        handlers.audit,
        status=202,
        errors={CONFLICT: "Repair is disabled, or there is no auditor."},
    ),
    V2Endpoint("POST", "/autorecovery/recover", handlers.recover, status=202, errors=_BUSY),
    V2Endpoint(
        "POST", "/autorecovery/decommission", handlers.decommission, status=202, errors=_BUSY
    ),
    V2Endpoint("GET", "/jobs", handlers.jobs),
    V2Endpoint("GET", "/jobs/{job_id}", handlers.job, parameters=(_JOB,), errors=_NO_JOB),
    V2Endpoint("DELETE", "/jobs/{job_id}", handlers.cancel_job, parameters=(_JOB,), errors=_NO_JOB),
)


def openapi() -> dict[str, Any]:
    """Return the table as an OpenAPI 3.1 description."""
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
    """Return the schema of a body: fields with a default are optional."""
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
    """Return the text of the OpenAPI file."""
    return json.dumps(openapi(), indent=2) + "\n"


if __name__ == "__main__":
    sys.stdout.write(openapi_text())
