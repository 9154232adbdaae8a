"""``/api/v1``: requests about the bookie itself."""
# ruff: noqa: D103 -- the table in ``endpoints`` says what each is for

from __future__ import annotations

import json
from typing import Any, Final

from bookied.admin.control.disks import INDEXES, JOURNALS, LOGS
from bookied.admin.control.operations import Control
from bookied.admin.http.requests_and_replies import (
    BAD_REQUEST,
    INTERNAL_ERROR,
    UNAVAILABLE,
    BadHttpRequestError,
    HttpReply,
    HttpRequest,
)
from bookied.admin.monitoring.prometheus_text import CONTENT_TYPE
from bookied.admin.v1.reply import OK, in_json, refusal, text
from bookied.admin.v2.handlers import TEST_ENTRIES
from bookied.config.reload import SettingsRefusedError
from bookied.errors import ChangeRefusedError, NotServingError
from bookied.storage.garbage.status import CollectorStatus
from wire.errors import BookKeeperError

COMPACT: Final = "entryLocationRocksDBCompact"
NO_OBJECT: Final = "Failed to deserialize Object from Json string"
NO_PAIRS: Final = "Request body not found. should contains k-v pairs"


async def server_config(control: Control, _asked: HttpRequest) -> HttpReply:
    return in_json(control.settings())


async def set_server_config(control: Control, asked: HttpRequest) -> HttpReply:
    if not asked.body:
        return refusal(NO_PAIRS)
    try:
        control.change_settings(asked.object)
    except SettingsRefusedError as error:
        return refusal(str(error), BAD_REQUEST)
    return text("Success set server config.")


async def bookie_info(control: Control, _asked: HttpRequest) -> HttpReply:
    total_bytes, free_bytes = await control.disks.sizes()
    return in_json({"freeSpace": free_bytes, "totalSpace": total_bytes})


async def last_log_mark(control: Control, _asked: HttpRequest) -> HttpReply:
    try:
        marks = await control.disks.last_marks()
    except (BookKeeperError, OSError) as error:
        return refusal(f"ERROR handling request: {error}")
    return in_json(
        {
            f"LastLogMark: Journal Id - {journal}({journal:x}.txn)": f"Pos - {offset}"
            for journal, offset in marks
        }
    )


async def list_disk_file(control: Control, asked: HttpRequest) -> HttpReply:
    kinds = {"journal": JOURNALS, "entrylog": LOGS, "index": INDEXES}
    wanted = asked.query.get("file_type", "")
    chosen = {wanted: kinds[wanted]} if wanted in kinds else kinds
    return in_json(
        {
            f"{name} files": "".join(f"{one}\t" for one in await control.disks.files(kind))
            for name, kind in chosen.items()
        }
    )


async def expand_storage(control: Control, _asked: HttpRequest) -> HttpReply:
    try:
        await control.expand_storage()
    except ChangeRefusedError:
        return refusal("Exception while updating cookie for storage expansion", INTERNAL_ERROR)
    return text("Success expand storage")


async def state(control: Control, _asked: HttpRequest) -> HttpReply:
    found = control.summary()
    return in_json(
        {
            "running": found.running,
            "readOnly": found.read_only,
            "shuttingDown": found.shutting_down,
            "availableForHighPriorityWrites": found.takes_high_priority_writes,
        }
    )


async def sanity(control: Control, _asked: HttpRequest) -> HttpReply:
    found = await control.test(TEST_ENTRIES)
    forced = found.read_only and found.error is None and not found.passed
    return in_json({"passed": found.passed, "readOnly": forced})


async def read_only(control: Control, _asked: HttpRequest) -> HttpReply:
    return in_json({"readOnly": control.is_read_only})


async def set_read_only(control: Control, asked: HttpRequest) -> HttpReply:
    wanted = _wanted_mode(asked)
    if wanted != control.is_read_only:
        try:
            await control.set_read_only(read_only=wanted)
        except ChangeRefusedError:
            return refusal(_mode_refusal(wanted=wanted), BAD_REQUEST)
    return in_json({"readOnly": control.is_read_only})


def _wanted_mode(asked: HttpRequest) -> bool:
    body = asked.object
    wanted = body.get("readOnly", False)
    if body.keys() - {"readOnly"} or json.dumps(wanted).strip('"') not in {"true", "false"}:
        raise BadHttpRequestError(
            'readOnly is not a boolean; send {"readOnly": true} or {"readOnly": false}'
        )
    return wanted in {True, "true"}


def _mode_refusal(*, wanted: bool) -> str:
    if wanted:
        return "Bookie is disabled ReadOnly mode, cannot transit to readOnly mode"
    return "Bookie is in forceReadOnly mode, cannot transit to writable mode"


async def is_ready(control: Control, _asked: HttpRequest) -> HttpReply:
    if control.is_ready:
        return text("OK")
    return refusal("Bookie is not fully started yet", UNAVAILABLE)


async def gc(control: Control, _asked: HttpRequest) -> HttpReply:
    forced = any(one.is_running and one.is_forced for one in control.garbage.collections())
    return in_json({"is_in_force_gc": _boolean(forced)})


async def collect(control: Control, asked: HttpRequest) -> HttpReply:
    try:
        body = asked.object if asked.body.strip() else {}
        major, minor = (_parsed(body.get(key, True)) for key in ("forceMajor", "forceMinor"))
        control.garbage.collect(major=major, minor=minor)
    except (BadHttpRequestError, NotServingError) as error:
        return refusal(f"Failed to handle the request, exception: {error}", BAD_REQUEST)
    return in_json(f"Triggered GC on BookieServer: {control.bookie_id}")


def _parsed(value: Any) -> bool:
    """Return the result of ``Boolean.parseBoolean`` for the text of a value."""
    if value is None:
        raise BadHttpRequestError("null")
    return str(value).lower() == "true"


def _boolean(value: object) -> str:
    return "true" if value else "false"


async def gc_details(control: Control, _asked: HttpRequest) -> HttpReply:
    return in_json([_gc_status(one, control.began_ms) for one in control.garbage.collections()])


def _gc_status(status: CollectorStatus, began_ms: int) -> dict[str, object]:
    compacting = status.compacting.value if status.compacting is not None else ""
    return {
        "forceCompacting": status.is_running and status.is_forced,
        "majorCompacting": compacting == "major",
        "minorCompacting": compacting == "minor",
        "lastMajorCompactionTime": _time_ms(status.last_major_s, began_ms),
        "lastMinorCompactionTime": _time_ms(status.last_minor_s, began_ms),
        "lastEntryLocationCompactionTime": began_ms,
        "majorCompactionCounter": status.major_compactions,
        "minorCompactionCounter": status.minor_compactions,
        "entryLocationCompactionCounter": 0,
    }


def _time_ms(seconds: float | None, otherwise_ms: int) -> int:
    return otherwise_ms if seconds is None else int(seconds * 1000)


async def suspended(control: Control, _asked: HttpRequest) -> HttpReply:
    now = control.garbage.suspended
    return in_json(
        {"isMinorGcSuspended": _boolean(now.minor), "isMajorGcSuspended": _boolean(now.major)}
    )


async def suspend_compaction(control: Control, asked: HttpRequest) -> HttpReply:
    return _switch(control, asked, "suspend")


async def resume_compaction(control: Control, asked: HttpRequest) -> HttpReply:
    return _switch(control, asked, "resume")


def _switch(control: Control, asked: HttpRequest, word: str) -> HttpReply:
    if not asked.body:
        return refusal("Empty request body", BAD_REQUEST)
    body = asked.object
    major, minor = body.get(f"{word}Major"), body.get(f"{word}Minor")
    if major is None and minor is None:
        return refusal(f"No {word}Major or {word}Minor params found", BAD_REQUEST)
    if any(one is not None and not isinstance(one, bool) for one in (major, minor)):
        raise BadHttpRequestError(
            f"{word}Major and {word}Minor are not both booleans; give true or false"
        )
    suspended = word == "suspend"
    control.garbage.suspend(
        minor=suspended if minor else None,
        major=suspended if major else None,
    )
    server = f"Bookie Server listening on {control.bookie_id} with id {control.bookie_id}"
    name = word.capitalize()
    output = f"{name} majorGC on BookieServer: {server}" if major else ""
    output += f", {name} minorGC on BookieServer: {server}" if minor else ""
    return in_json(output)


async def locations(control: Control, _asked: HttpRequest) -> HttpReply:
    return in_json(control.garbage.locations())


async def compact_locations(control: Control, asked: HttpRequest) -> HttpReply:
    if not asked.body.strip():
        return refusal("Empty request body", BAD_REQUEST)
    try:
        body = asked.object
    except BadHttpRequestError:
        return in_json(NO_OBJECT, BAD_REQUEST)
    wanted, named = body.get(COMPACT, False), body.get("entryLocations", "")
    if not isinstance(wanted, bool) or not isinstance(named, (str, type(None))):
        raise BadHttpRequestError(
            f"{COMPACT} is not a boolean, or entryLocations is not a string; "
            "give true and a list of paths with commas"
        )
    if not wanted:
        return text("Not trigger Entry Location RocksDB compact.")
    there = list(control.garbage.locations())
    paths = there if named is None or not named.strip() else named.strip().split(",")
    if not set(paths) <= set(there):
        invalid = f"Specified trigger compact entryLocations: {named} is invalid."
        known = f"Bookie entry location RocksDB path: [{', '.join(there)}]."
        return in_json(f"{invalid} {known}", BAD_REQUEST)
    control.garbage.compact_locations(paths)
    if paths is there:
        return in_json(f"Triggered entry Location RocksDB compact on bookie:{control.bookie_id}")
    where = f"{named} compact on bookie:{control.bookie_id}"
    return in_json(f"Triggered entry Location RocksDB: {where}.")


async def heartbeat(_control: Control, _asked: HttpRequest) -> HttpReply:
    return text("OK\n")


async def metrics(control: Control, _asked: HttpRequest) -> HttpReply:
    return HttpReply(OK, control.metrics(), CONTENT_TYPE)
