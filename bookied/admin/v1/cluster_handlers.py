"""``/api/v1``: requests about ledgers, bookies and repair of the cluster."""
# ruff: noqa: D103 -- the table in ``endpoints`` says what each is for

from __future__ import annotations

import base64
import re
from contextlib import aclosing
from decimal import ROUND_DOWN, Decimal
from typing import Final

import attrs

from bkclient.config.declaration import MASKED
from bookied.admin.control.operations import Control
from bookied.admin.http.requests_and_replies import (
    BAD_REQUEST,
    JSON,
    BadHttpRequestError,
    HttpReply,
    HttpRequest,
    check_delay,
)
from bookied.admin.jobs import JobRefusedError
from bookied.admin.v1.reply import OK, in_json, refusal, text
from bookied.errors import TooMuchError
from wire.errors import BookKeeperError
from wire.ids import BookieId, LedgerId
from wire.ledger_metadata import LedgerMetadata, encode_metadata

ONLY_GET: Final = "Not found method. Should be GET method"
ONLY_PUT: Final = "Not found method. Should be PUT method"
NO_LEDGER: Final = "Not found method. Should be GET method, with ledger_id provided"

LEDGERS_OF_PAGE: Final = 100
ENTRIES_OF_PAGE: Final = 1000
PROBLEM: Final = "X-Problem"
PROBLEMS_SHOWN: Final = 10
KILO: Final = 1000
_LONG: Final = re.compile(r"[+-]?[0-9]{1,19}")
_LONG_LIMIT: Final = 2**63
UNITS: Final = ("", "KB", "MB", "GB", "TB")


async def delete_ledger(control: Control, asked: HttpRequest) -> HttpReply:
    if "ledger_id" not in asked.query:
        return refusal("Not ledger found. Should provide ledger_id=<id>")
    ledger_id = LedgerId(_long(asked.query["ledger_id"]))
    # A missing ledger is not an error, as in Java.
    await control.cluster.store.remove_ledger(ledger_id)
    return in_json(f"Deleted ledger: {ledger_id}")


async def list_ledgers(control: Control, asked: HttpRequest) -> HttpReply:
    if asked.query.get("print_metadata") != "true":
        lines = [f'  "{ledger_id}" : null' async for ledger_id in control.cluster.ledger_ids()]
        return HttpReply(OK, "{\n" + ",\n".join(lines) + "\n}" if lines else "{ }", JSON)
    page = _long(asked.query.get("page", "-1"))
    decode = asked.query.get("decode_meta") == "true"
    ids = [ledger_id async for ledger_id in control.cluster.ledger_ids()]
    if page > 0:
        ids = [one for number, one in enumerate(ids, 1) if _is_on_page(number, page)]
    found: dict[str, object] = {}
    problems: list[str] = []
    async with aclosing(control.cluster.store.read_ledgers(ids)) as read:
        async for some in read:
            for one in some:
                shown = None
                if one.metadata is None:
                    problems.append(f"ledger {one.ledger_id}: {one.error}")
                else:
                    shown = _metadata(one.ledger_id, one.metadata) if decode else _raw(one.metadata)
                found[str(one.ledger_id)] = shown
    return _with_problems(in_json(found), problems)


def _with_problems(reply: HttpReply, problems: list[str]) -> HttpReply:
    """The bookie whose replicas are copied; its cookie is deleted afterwards if requested."""
    if not problems:
        return reply
    return attrs.evolve(reply, headers={PROBLEM: "; ".join(problems[:PROBLEMS_SHOWN])})


def _long(text: str) -> int:
    """Return the result of ``Long.parseLong``.

    Raises:
        BadHttpRequestError: the text is not a 64-bit number.
    """
    found = int(text) if _LONG.fullmatch(text) else _LONG_LIMIT
    if not -_LONG_LIMIT <= found < _LONG_LIMIT:
        raise BadHttpRequestError(f"{text[:40]!r} is not a whole number of 64 bits")
    return found


def _is_on_page(number: int, page: int) -> bool:
    """Return whether a ledger is on a page, as in Java: the first page has one ledger less."""
    return (page - 1) * LEDGERS_OF_PAGE <= number <= page * LEDGERS_OF_PAGE - 1


async def ledger_metadata(control: Control, asked: HttpRequest) -> HttpReply:
    if "ledger_id" not in asked.query:
        return refusal(ONLY_GET)
    ledger_id = LedgerId(_long(asked.query["ledger_id"]))
    return in_json(
        {str(ledger_id): _metadata(ledger_id, await control.cluster.metadata(ledger_id))}
    )


def _metadata(ledger_id: LedgerId, metadata: LedgerMetadata) -> dict[str, object]:
    digest = metadata.digest_type
    return {
        "ledgerId": ledger_id,
        "metadataFormatVersion": metadata.format_version,
        "ensembleSize": metadata.ensemble_size,
        "writeQuorumSize": metadata.write_quorum,
        "ackQuorumSize": metadata.ack_quorum,
        "state": metadata.state.name,
        "length": metadata.length,
        "lastEntryId": -1 if metadata.last_entry_id is None else metadata.last_entry_id,
        "ctime": -1 if metadata.ctime_ms is None else metadata.ctime_ms,
        "digestType": None if digest is None else digest.name,
        "password": MASKED if metadata.password else "",
        "customMetadata": {name: _base64(value) for name, value in metadata.custom.items()},
        "closed": metadata.is_closed,
        "allEnsembles": {
            str(one.first_entry_id): [{"id": bookie} for bookie in one.ensemble]
            for one in metadata.fragments
        },
        "ctoken": metadata.creator_token,
    }


def _raw(metadata: LedgerMetadata) -> str:
    if metadata.password:
        metadata = attrs.evolve(metadata, password=b"")
    return encode_metadata(metadata).decode("utf-8", "replace")


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


async def read_ledger(control: Control, asked: HttpRequest) -> HttpReply:
    query = asked.query
    if "ledger_id" not in query:
        return refusal(NO_LEDGER)
    ledger_id = LedgerId(_long(query["ledger_id"]))
    first, last = _long(query.get("start_entry_id", "0")), _long(query.get("end_entry_id", "-1"))
    page = _long(query.get("page", "-1"))
    found: dict[str, str] = {}
    if page > 0:
        page_first = (page - 1) * ENTRIES_OF_PAGE
        page_last = page_first + ENTRIES_OF_PAGE - 1
        first = max(first, page_first)
        last = page_last if last == -1 else min(last, page_last)
        found["Entries for page: "] = str(page)
    if last != -1 and first > last:
        return refusal(
            f"parameter for start_entry_id: {first} and end_entry_id: {last} "
            f"conflict with page={page}",
            BAD_REQUEST,
        )
    try:
        entries = await control.cluster.entries(ledger_id, first, None if last == -1 else last)
    except TooMuchError as error:
        return refusal(str(error), BAD_REQUEST)
    found |= {str(one.entry_id): one.payload.decode("ascii", "replace") for one in entries}
    return in_json(found)


async def list_bookies(control: Control, asked: HttpRequest) -> HttpReply:
    wanted = "read-only" if asked.query.get("type") == "ro" else "writable"
    with_hosts = asked.query.get("print_hostnames") == "true"
    found = await control.cluster.bookies()
    return in_json(
        {one: host if with_hosts else None for one, state, host in found if state == wanted}
    )


async def list_bookie_info(control: Control, _asked: HttpRequest) -> HttpReply:
    found = await control.cluster.bookie_sizes()
    if not found:
        return refusal("Not found any Bookie info.")
    lines = {str(one): f": {{{_sizes(*sizes)}}}," for one, sizes in found.items()}
    total, free = (sum(sizes) for sizes in zip(*found.values(), strict=True))
    return in_json({**lines, "ClusterInfo: ": f"{{{_sizes(total, free)}}}"})


def _sizes(total_bytes: int, free_bytes: int) -> str:
    return (
        f"Free: {free_bytes}{_readable(free_bytes)}, Total: {total_bytes}{_readable(total_bytes)}"
    )


def _readable(size_bytes: int) -> str:
    value, unit = Decimal(size_bytes), 0
    while value >= KILO and unit < len(UNITS) - 1:
        value, unit = value / KILO, unit + 1
    if not unit:
        return ""
    shown = value.quantize(Decimal("0.001"), ROUND_DOWN).normalize()
    return f"({shown:f}{UNITS[unit]})"


async def cluster_info(control: Control, _asked: HttpRequest) -> HttpReply:
    found = await control.cluster.summary()
    return in_json(
        {
            "auditorElected": found.auditor is not None,
            "auditorId": found.auditor or "",
            "clusterUnderReplicated": found.has_underreplicated,
            "ledgerReplicationEnabled": found.replication_enabled,
            "totalBookiesCount": found.bookies,
            "writableBookiesCount": found.writable,
            "readonlyBookiesCount": found.read_only,
            "unavailableBookiesCount": found.down,
        }
    )


async def autorecovery(control: Control, _asked: HttpRequest) -> HttpReply:
    return in_json({"enabled": await control.cluster.store.replication_enabled()})


async def set_autorecovery(control: Control, asked: HttpRequest) -> HttpReply:
    enabled = asked.query.get("enabled")
    if enabled is None:
        shown = ", ".join(f"{name}={value}" for name, value in asked.query.items())
        return refusal(f"Param 'enabled' not found in {{{shown}}}", BAD_REQUEST)
    await control.cluster.set_replication_enabled(enabled=enabled.lower() == "true")
    return await autorecovery(control, asked)


async def list_underreplicated(control: Control, asked: HttpRequest) -> HttpReply:
    wanted = asked.query.get("missingreplica", "").strip()
    unwanted = asked.query.get("excludingmissingreplica", "").strip()
    marked = await control.cluster.underreplicated()
    found = {
        ledger_id: mark.missing
        for ledger_id, mark in marked.items()
        if mark.problem is None or not (wanted or unwanted)
        if (not wanted or wanted in mark.missing) and (not unwanted or unwanted not in mark.missing)
    }
    if not found:
        reply = refusal("No under replicated ledgers found")
    elif "printmissingreplica" in asked.query:
        reply = in_json({str(ledger_id): missing for ledger_id, missing in found.items()})
    else:
        reply = in_json(list(found))
    problems = [mark.problem for mark in marked.values() if mark.problem is not None]
    return _with_problems(reply, problems)


async def who_is_auditor(control: Control, _asked: HttpRequest) -> HttpReply:
    auditor = await control.cluster.store.current_auditor()
    return refusal("No auditor elected") if auditor is None else text(f"Auditor: {auditor}")


async def delay(control: Control, _asked: HttpRequest) -> HttpReply:
    delay_s = await control.cluster.store.lost_bookie_recovery_delay()
    if delay_s is None:
        return refusal("Exception when get lostBookieRecoveryDelay.It was never set")
    return text(f"lostBookieRecoveryDelay value: {delay_s}")


async def set_delay(control: Control, asked: HttpRequest) -> HttpReply:
    if not asked.body:
        return refusal("Null request body for lostBookieRecoveryDelay.")
    wanted_s = asked.object.get("delay_seconds")
    if wanted_s is None:
        return refusal("Request body not contains lostBookieRecoveryDelay.")
    if type(wanted_s) is not int:
        raise BadHttpRequestError("delay_seconds is not a whole number; give seconds")
    check_delay(wanted_s, "delay_seconds")
    await control.cluster.store.set_lost_bookie_recovery_delay(wanted_s)
    return text(f"Success set lostBookieRecoveryDelay to {wanted_s}")


async def trigger_audit(control: Control, _asked: HttpRequest) -> HttpReply:
    try:
        await control.cluster.trigger_audit()
    except BookKeeperError as error:
        return refusal(f"Exception when do operation.{error}")
    return text("Success trigger audit.")


async def recover(control: Control, asked: HttpRequest) -> HttpReply:
    if not asked.body:
        return refusal("No request body provide.")
    try:
        body = asked.object
    except BadHttpRequestError as error:
        return refusal(f"ERROR parameters: {error}")
    bookies = body.get("bookie_src")
    if not isinstance(bookies, list):
        raise BadHttpRequestError('bookie_src is not a list; give ["HOST:PORT"]')
    if not bookies:
        return refusal(ONLY_PUT)
    # Only the first one, as in Java.
    control.repairs.recover(
        BookieId(str(bookies[0])), skip_open=False, delete_cookie=body.get("delete_cookie") is True
    )
    return text("Success send recovery request command.")


async def decommission(control: Control, asked: HttpRequest) -> HttpReply:
    if not asked.body:
        return refusal("Null request body for DecommissionService.")
    bookie = asked.object.get("bookie_src")
    if bookie is None:
        return refusal("Request body not contains bookie_src.")
    try:
        control.repairs.decommission(BookieId(str(bookie)), keep_cookie=False)
    except JobRefusedError as error:
        return refusal(f"Exception when send decommission command.{error}")
    return text(f"Success send decommission Bookie command {bookie}")
