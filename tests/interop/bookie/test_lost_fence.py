"""A fence that a Java bookie loses, and ours on its directories knows of all the same."""

from __future__ import annotations

import struct

from tests.interop.bookie.test_bookied_under_fire import V2, Connection
from tests.interop.peers.our_bookie import OurBookie
from tests.interop.peers.peers import JavaBookie, Peers
from wire.codes import ReturnCode
from wire.digest import master_key
from wire.ids import EntryId, LedgerId
from wire.messages import AddRequest, AddResponse

CONF = {"gcWaitTime": 3_600_000, "flushInterval": 3_600_000}


def add(port: int, ledger_id: int, entry_id: int) -> ReturnCode:
    """Add as a writer that has not heard of the recovery: the master key is all it needs."""
    entry = struct.pack(">qqqqi", ledger_id, entry_id, entry_id - 1, 5 * entry_id, 0) + b"later"
    connection = Connection(port, V2)
    try:
        request = AddRequest(LedgerId(ledger_id), EntryId(entry_id), master_key(b"pw"), entry)
        answer = connection.call(request)
        assert isinstance(answer, AddResponse)
        return answer.rc
    finally:
        connection.close()


def test_a_fence_lost_by_java_is_made_good_before_an_add_is_taken(peers: Peers) -> None:
    uri, directory = peers.metadata_uri(), peers.new_directory("shared")
    java = JavaBookie(uri, directory, **CONF)
    peers.on_close(java.kill)
    port = java.start().port
    client = peers.java_client(uri)
    fenced, still_open = (client.create_ledger(1, 1, 1, password=b"pw").ledger_id for _ in range(2))
    # Recovery fences a ledger of which this bookie has no entry: that is in the journal without the
    # ledger's key, and replay drops it (storage.md section 17, D1).
    client.fence(fenced, password=b"pw")
    assert client.metadata(fenced).state == "CLOSED"
    java.kill()
    java.start()
    assert add(port, fenced, 0) is ReturnCode.EOK, "Java keeps the fence: this test shows nothing"
    assert add(port, still_open, 0) is ReturnCode.EOK
    java.stop()

    with OurBookie(uri, directory, port, **CONF):
        assert add(port, fenced, 1) is ReturnCode.EFENCED
        assert add(port, still_open, 1) is ReturnCode.EOK
    # It is known for good, be the journals since all of ours.
    with OurBookie(uri, directory, port, **CONF):
        assert add(port, fenced, 1) is ReturnCode.EFENCED
        assert add(port, still_open, 2) is ReturnCode.EOK
