"""The keys for the requests of one ledger, and its adds as frames."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from wire.codes import AddFlag, V2Flag
from wire.digest import Digester, Entry
from wire.frames import v3
from wire.frames.bulk_adds import AddFramesV2, AddFramesV3, Key, Packed
from wire.frames.varint import encode_varint
from wire.ids import EntryId, LedgerId
from wire.messages import AddRequest


@attrs.frozen(kw_only=True)
class LedgerKeys:
    """The ledger id, master key and digester of one ledger's requests."""

    ledger_id: LedgerId
    master_key: bytes = attrs.field(repr=False)
    digester: Digester = attrs.field(repr=False)

    def packet_of(self, entry: Entry) -> bytes:
        """Return the packet of an entry that was read, with its LAC and length."""
        package = self.digester.package
        return package(self.ledger_id, entry.entry_id, entry.lac, entry.length, entry.payload)


class FrameMaker:
    """An encoder of one ledger's adds in either protocol, with the keys of their answers."""

    def __init__(self, keys: LedgerKeys, flags: AddFlag, txn_ids: Callable[[int], range]) -> None:
        self._keys, self._flags, self._txn_ids = keys, flags, txn_ids
        urgent = V2Flag.HIGH_PRIORITY if flags & AddFlag.HIGH_PRIORITY else V2Flag.NONE
        self._v2 = AddFramesV2(keys.master_key, urgent)
        self._v3: AddFramesV3 | None = None
        if flags in {AddFlag.NONE, AddFlag.RECOVERY}:
            is_recovery = flags is AddFlag.RECOVERY
            self._v3 = AddFramesV3(keys.ledger_id, keys.master_key, is_recovery=is_recovery)

    def v2(self, packed: Sequence[Packed]) -> tuple[bytes, Sequence[Key]]:
        """Return the frames; answers are matched by entry id."""
        assert not self._flags & ~AddFlag.HIGH_PRIORITY, "V2 acks could not be distinguished"
        return self._v2.make(packed), [entry_id for entry_id, _ in packed]

    def v3(self, packed: Sequence[Packed]) -> tuple[bytes, Sequence[Key]]:
        """Return the frames; answers are matched by transaction id."""
        txn_ids = self._txn_ids(len(packed))
        keys = [encode_varint(txn_id) for txn_id in txn_ids]
        if self._v3 is not None:
            return self._v3.make(packed, keys), keys
        frames = [
            v3.encode_request(self._request(entry_id, packet), txn_id)
            for (entry_id, packet), txn_id in zip(packed, txn_ids, strict=True)
        ]
        return b"".join(frames), keys

    def _request(self, entry_id: int, packet: bytes) -> AddRequest:
        keys = self._keys
        return AddRequest(keys.ledger_id, EntryId(entry_id), keys.master_key, packet, self._flags)


class AddBatch:
    """Entries that are sent together; frames are made once for each protocol."""

    def __init__(self, packed: Sequence[Packed], frames: FrameMaker) -> None:
        self.packed, self._frames = packed, frames
        self.entries = [entry_id for entry_id, _ in packed]
        self._v2: tuple[bytes, Sequence[Key]] | None = None
        self._v3: tuple[bytes, Sequence[Key]] | None = None

    def v2(self) -> tuple[bytes, Sequence[Key]]:
        """See ``FrameMaker``."""
        self._v2 = self._v2 or self._frames.v2(self.packed)
        return self._v2

    def v3(self) -> tuple[bytes, Sequence[Key]]:
        """See ``FrameMaker``."""
        self._v3 = self._v3 or self._frames.v3(self.packed)
        return self._v3
