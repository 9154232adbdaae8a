"""What the fields of the values are that show a cluster's metadata, and copies of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bkctl.commands.cluster.backup import BackupWritten, ClusterRestored
from bkctl.commands.cluster.nodes import MetadataNode, plain, summary
from bkctl.commands.cluster.watch import ClusterEvent
from bkctl.output.emit import NEVER, WIDE, Field, Kind, View
from bkctl.output.units import counted, human_bytes, human_duration, human_time


def _decoded(v: MetadataNode) -> Any:
    """Return what a node says; where its bytes are held back, so are the passwords in them."""
    value = plain(v.known.value, secrets=v.raw is not None)
    return value if value is None or isinstance(value, dict) else {"value": value}


def _decoded_cell(v: MetadataNode) -> str:
    return "\n".join(f"{key}: {value}" for key, value in (_decoded(v) or {}).items()) or "-"


_NODE: Final = (
    Field("path", "Where it is, below the root.", lambda v: v.path),
    Field("kind", "What it is.", lambda v: v.known.kind),
    Field("summary", "The same in a few words.", summary, rank=1),
    Field("version", "How often it was changed.", lambda v: v.stored.version, Kind.COUNT, rank=2),
    Field("children", "How many lie right below.", lambda v: v.stored.children, Kind.COUNT, rank=2),
    Field("size", "Bytes of its value.", lambda v: len(v.stored.value), Kind.BYTES, rank=WIDE),
    Field(
        "ephemeral",
        "Whether it goes with a session.",
        lambda v: v.stored.is_ephemeral,
        Kind.FLAG,
        rank=WIDE,
    ),
    Field("decoded", "What it says.", _decoded, Kind.NESTED, rank=NEVER, cell=_decoded_cell),
    Field("problem", "Why it cannot be read.", lambda v: v.known.problem or None, rank=NEVER),
    Field(
        "value_b64",
        "Its bytes in base64, unless they hold a password.",
        lambda v: v.raw,
        Kind.DATA,
        rank=NEVER,
        cell=lambda v: (v.raw or b"").decode(errors="backslashreplace"),
    ),
)


def _written(v: BackupWritten) -> str:
    has = ", ".join(v.info.lines()) or "no ledger"
    return (
        f"wrote {counted(v.info.nodes, 'node')} ({has}) to {v.file}:"
        f" {human_bytes(v.file_bytes)} in {human_duration(v.seconds)}"
    )


def _restored(v: ClusterRestored) -> str:
    has = ", ".join(v.info.lines()) or "no ledger"
    return f"restored cluster {v.info.instance_id} to {v.uri}: {has}"


def _of_info(name: str, doc: str, kind: Kind = Kind.TEXT) -> Field:
    return Field(name, doc, lambda v: getattr(v.info, name), kind)


def _number(name: str) -> Field:
    return Field(f"{name}s", f"How many {name}s.", lambda v: v.info.kinds.get(name, 0), Kind.COUNT)


_INFO: Final = (
    _of_info("instance_id", "The cluster's id."),
    _of_info("layout", "Layout of the metadata."),
    _of_info("nodes", "How many nodes.", Kind.COUNT),
    *map(_number, ("ledger", "cookie", "mark", "log")),
    Field("time", "When it was backed up.", lambda v: v.info.time_ms, Kind.TIME_MS),
)


def _event(v: ClusterEvent) -> str:
    who = f"bookie {v.bookie_id}" if v.bookie_id else v.event
    was = "" if v.was is None else f" (was {v.was})"
    return f"{human_time(v.time_ms, utc=False)}  {who}: {v.now}{was}"


CLUSTER_METADATA_VIEWS: Final[Mapping[type, View]] = {
    MetadataNode: View("nodes", _NODE, "path"),
    BackupWritten: View(
        "backups",
        (
            Field("file", "Where it is.", lambda v: v.file),
            Field("file_bytes", "How large.", lambda v: v.file_bytes, Kind.BYTES),
            Field("seconds", "How long it took.", lambda v: v.seconds, Kind.SECONDS),
            *_INFO,
        ),
        "file",
        sentence=_written,
    ),
    ClusterRestored: View(
        "clusters",
        (
            Field("uri", "The metadata service.", lambda v: v.uri),
            *_INFO,
            Field(
                "kept",
                "Nodes that were there with another value, and stay.",
                lambda v: list(v.kept),
                Kind.NESTED,
            ),
        ),
        "instance_id",
        sentence=_restored,
    ),
    ClusterEvent: View(
        "events",
        (
            Field("time", "When it was seen.", lambda v: v.time_ms, Kind.TIME_MS),
            Field(
                "event",
                "bookie, auditor, autorecovery, under-replicated or metadata.",
                lambda v: v.event,
            ),
            Field("bookie_id", "Which bookie.", lambda v: v.bookie_id, header="BOOKIE"),
            Field("now", "What it is now.", lambda v: v.now, Kind.STATE),
            Field("was", "What it was before.", lambda v: v.was),
        ),
        "event",
        sentence=_event,
    ),
}
