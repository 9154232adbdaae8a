"""Golden vectors' inputs as our values."""

from __future__ import annotations

from typing import Any

from tests.wire.vectors import wire_vectors
from wire.codes import (
    RETURN_CODE_BY_V2,
    AddFlag,
    BookieInfoFlag,
    DigestType,
    Operation,
    ReadFlag,
    ReturnCode,
    V2Flag,
)
from wire.digest import digester, master_key
from wire.frames.entry_packets import Packets
from wire.messages import (
    AddRequest,
    AddResponse,
    AuthRequest,
    AuthResponse,
    BatchReadRequest,
    BatchReadResponse,
    BookieInfoRequest,
    BookieInfoResponse,
    ErrorResponse,
    ForceLedgerRequest,
    ForceLedgerResponse,
    ListEntriesRequest,
    ListEntriesResponse,
    ReadLacRequest,
    ReadLacResponse,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
    StartTlsRequest,
    StartTlsResponse,
    WriteLacRequest,
    WriteLacResponse,
)

Inputs = dict[str, Any]


def unhex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def digest_type(name: str) -> DigestType:
    return DigestType.MAC if name == "HMAC" else DigestType[name]


def packet(i: Inputs, payload: bytes | None = None) -> bytes:
    payload = bytes.fromhex(i["payload"]) if payload is None else payload
    return digester(digest_type(i["digest_type"]), bytes.fromhex(i["password"])).package(
        i["ledger_id"], i["entry_id"], i["last_add_confirmed"], i["length"], payload
    )


def v2_request(i: Inputs, payload: bytes | None = None) -> Request:
    flags = V2Flag(i["flags"])
    if i["opcode"] == 1:
        found = AddFlag.RECOVERY if flags & V2Flag.RECOVERY_ADD else AddFlag.NONE
        found |= AddFlag.HIGH_PRIORITY if flags & V2Flag.HIGH_PRIORITY else AddFlag.NONE
        key = master_key(bytes.fromhex(i["password"]))
        assert key.hex() == i["master_key"]
        return AddRequest(i["ledger_id"], i["entry_id"], key, packet(i, payload), found)
    if i["opcode"] == 3:
        return AuthRequest(i["auth_plugin_name"], bytes.fromhex(i["auth_payload"]))
    read = ReadFlag.FENCE if flags & V2Flag.DO_FENCING else ReadFlag.NONE
    read |= ReadFlag.HIGH_PRIORITY if flags & V2Flag.HIGH_PRIORITY else ReadFlag.NONE
    key = unhex(i["master_key"])
    if i["opcode"] == 2:
        return ReadRequest(i["ledger_id"], i["entry_id"], read, key)
    return BatchReadRequest(
        i["ledger_id"], i["entry_id"], i["request_id"], i["max_count"], i["max_size"], read, key
    )


def v2_response(i: Inputs) -> Response:
    if i["opcode"] == 3:
        return AuthResponse(ReturnCode.EOK, i["auth_plugin_name"], bytes.fromhex(i["auth_payload"]))
    rc = RETURN_CODE_BY_V2[i["error_code"]]
    ids = (i["ledger_id"], i["entry_id"])
    if i["opcode"] == 1:
        return AddResponse(rc, *ids)
    if i["opcode"] == 2:
        return ReadResponse(rc, *ids, unhex(i["data"]) if rc is ReturnCode.EOK else None)
    entries = Packets.join(bytes.fromhex(e) for e in i["entries"])
    return BatchReadResponse(rc, *ids, i["request_id"], entries)


def v3_request(i: Inputs) -> Request:
    urgent = i.get("priority", 0) > 0
    ledger, entry, key = i.get("ledger_id"), i.get("entry_id"), unhex(i.get("master_key"))
    if i["op"] == "ADD_ENTRY":
        flags = AddFlag.HIGH_PRIORITY if urgent else AddFlag.NONE
        flags |= AddFlag.RECOVERY if "flag" in i else AddFlag.NONE
        flags |= AddFlag.DEFERRED_SYNC if i.get("write_flags") else AddFlag.NONE
        return AddRequest(ledger, entry, key, unhex(i["body"]), flags)
    if i["op"] == "READ_ENTRY":
        read = ReadFlag.HIGH_PRIORITY if urgent else ReadFlag.NONE
        read |= {None: ReadFlag.NONE, 1: ReadFlag.FENCE, 2: ReadFlag.PIGGYBACK}[i.get("flag")]
        return ReadRequest(ledger, entry, read, key, i.get("previous_lac"), i.get("timeout_ms"))
    return {
        "AUTH": lambda: AuthRequest(i["auth_plugin_name"], unhex(i["auth_payload"])),
        "WRITE_LAC": lambda: WriteLacRequest(ledger, i["lac"], key, unhex(i["body"])),
        "READ_LAC": lambda: ReadLacRequest(ledger),
        "GET_BOOKIE_INFO": lambda: BookieInfoRequest(BookieInfoFlag(i["requested"])),
        "START_TLS": StartTlsRequest,
        "FORCE_LEDGER": lambda: ForceLedgerRequest(ledger),
        "GET_LIST_OF_ENTRIES_OF_LEDGER": lambda: ListEntriesRequest(ledger),
    }[i["op"]]()


def v3_response(name: str, i: Inputs) -> Response:
    rc, ledger = ReturnCode(i["status"]), i.get("ledger_id")
    if name in ("v3/unauthenticated_response", "v3/start_tls_response/not_configured"):
        return ErrorResponse(rc)
    return {
        "ADD_ENTRY": lambda: AddResponse(rc, ledger, i["entry_id"]),
        "READ_ENTRY": lambda: ReadResponse(
            rc,
            ledger,
            i["entry_id"],
            unhex(i.get("body")),
            i.get("max_lac"),
            i.get("lac_update_timestamp"),
        ),
        "AUTH": lambda: AuthResponse(rc, i["auth_plugin_name"], unhex(i["auth_payload"])),
        "WRITE_LAC": lambda: WriteLacResponse(rc, ledger),
        "READ_LAC": lambda: ReadLacResponse(
            rc, ledger, unhex(i.get("lac_body")), unhex(i.get("last_entry_body"))
        ),
        "GET_BOOKIE_INFO": lambda: BookieInfoResponse(
            rc, i["total_disk_capacity"], i["free_disk_space"]
        ),
        "START_TLS": lambda: StartTlsResponse(rc),
        "FORCE_LEDGER": lambda: ForceLedgerResponse(rc, ledger),
        "GET_LIST_OF_ENTRIES_OF_LEDGER": lambda: ListEntriesResponse(
            rc, ledger, unhex(i.get("availability"))
        ),
    }[i["op"]]()


def v2_operation(i: Inputs) -> Operation:
    return {
        1: Operation.ADD_ENTRY,
        2: Operation.READ_ENTRY,
        3: Operation.AUTH,
        7: Operation.BATCH_READ_ENTRY,
    }[i["opcode"]]


__all__ = ["wire_vectors"]
