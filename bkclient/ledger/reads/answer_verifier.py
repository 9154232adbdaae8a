"""AnswerVerifier: checks a bookie's answer to a read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bkclient.connection.requests import BulkAnswer
from bkclient.errors import ClientDigestMismatchError, ReadFailedError, refusal
from bkclient.quorum.read_rules import KnownLac, LongPollAnswer
from wire.codes import ReturnCode
from wire.digest import Digester, Entry, VerifiedById, VerifiedEntries, header
from wire.errors import DigestMismatchError
from wire.ids import BookieId, EntryId, LedgerId
from wire.messages import BatchReadResponse, ReadLacResponse, ReadResponse, Response

LAC_MAX: Final = 1 << 50
"""No writer reaches this LAC: a million entries a second for 35 years."""


class AnswerVerifier:
    """A check of the codes and digests of answers to one ledger's reads.

    ``on_lac`` is called with the bookie's highest known LAC in an answer with an entry, and with
    the LAC in the last entry of a batch.
    """

    def __init__(self, ledger_id: LedgerId, digester: Digester) -> None:
        self._ledger_id, self._digester = ledger_id, digester
        self.on_lac: Callable[[int], None] = lambda _lac: None

    def entry(self, bookie: BookieId, response: Response, entry_id: EntryId | None) -> Entry:
        """Return the entry in an answer; ``entry_id`` ``None`` accepts any id.

        Raises:
            ClientError: a refusal, or bytes that fail their digest.
        """
        assert isinstance(response, ReadResponse) or response.rc is not ReturnCode.EOK
        packet = getattr(response, "entry", None)
        if response.rc is not ReturnCode.EOK:
            raise refusal(response.rc, ReadFailedError, self._what(bookie, entry_id))
        if packet is None:
            raise ReadFailedError(f"{self._what(bookie, entry_id)}: an answer without the entry")
        max_lac = getattr(response, "max_lac", None)
        entry = self.packet(bookie, packet, entry_id)
        if max_lac is not None:
            self.on_lac(max_lac)
        return entry

    def packet(self, bookie: BookieId, packet: bytes, entry_id: EntryId | None) -> Entry:
        """Return the entry in its bytes; ``entry_id`` ``None`` accepts any id.

        Raises:
            ClientDigestMismatchError: the bytes fail their digest, or are of another entry.
        """
        try:
            entry = self._digester.verify(self._ledger_id, entry_id, packet)
        except DigestMismatchError as error:
            raise ClientDigestMismatchError(f"{self._what(bookie, entry_id)}: {error}") from error
        # A stranger can compute a CRC; such values must not close a ledger.
        if entry.length < 0 or entry.lac > LAC_MAX:
            what = self._what(bookie, entry_id)
            text = f"{what}: it has length {entry.length} and last add confirmed {entry.lac}"
            raise ClientDigestMismatchError(text)
        return entry

    def batch(self, bookie: BookieId, response: Response, ids: range) -> VerifiedEntries:
        """Return the verified entries at the begin of a batch, at least one.

        Raises:
            ClientError: a refusal, or a first entry that fails its digest: ask another bookie.
        """
        first = EntryId(ids[0])
        if response.rc is not ReturnCode.EOK:
            raise refusal(response.rc, ReadFailedError, self._what(bookie, first))
        assert isinstance(response, BatchReadResponse)
        if response.stride != ids.step:
            ids = ids[:1]  # The other entries in the answer were not requested.
        found = self._digester.verify_run(self._ledger_id, ids, response.entries)
        if not found.payloads:
            bad = next(iter(response.entries), None)
            if bad is None:
                raise ReadFailedError(f"{self._what(bookie, first)}: an empty batch")
            # Raises the error that describes the damage.
            return VerifiedEntries.of([self.packet(bookie, bad, first)])
        self.on_lac(header(found.headers[-1]).lac)
        return found

    def bulk(self, answers: dict[int, BulkAnswer]) -> VerifiedById:
        """Return the intact entries of a bulk read."""
        packets = {entry_id: one for entry_id, one in answers.items() if isinstance(one, bytes)}
        found = self._digester.verify_many(self._ledger_id, packets)
        if found:
            self.on_lac(header(found[max(found)][0]).lac)
        return found

    def lac(self, bookie: BookieId, response: Response) -> KnownLac | None:
        """Return the LAC in an answer; ``None`` if the bookie knows none.

        Raises:
            ClientError: a refusal, or bytes that fail their digest.
        """
        if response.rc is not ReturnCode.EOK:
            raise refusal(response.rc, ReadFailedError, f"bookie {bookie}, LAC")
        assert isinstance(response, ReadLacResponse)
        known: list[int] = []
        if response.last_entry is not None:
            known.append(self.packet(bookie, response.last_entry, None).lac)
        if response.lac_body is not None:
            known.append(self._explicit_lac(bookie, response.lac_body))
        return KnownLac(max(known)) if known else None

    def _explicit_lac(self, bookie: BookieId, packet: bytes) -> int:
        try:
            return self._digester.verify_lac(self._ledger_id, packet)
        except DigestMismatchError as error:
            text = f"bookie {bookie}, LAC of ledger {self._ledger_id}: {error}"
            raise ClientDigestMismatchError(text) from error

    def poll(
        self, bookie: BookieId, response: Response, previous_lac: int
    ) -> LongPollAnswer[Entry]:
        """Return the LAC in the answer to a long poll, and the next entry if it is included.

        Raises:
            ClientError: a refusal, or an entry that fails its digest.
        """
        if response.rc is not ReturnCode.EOK:
            raise refusal(response.rc, ReadFailedError, f"bookie {bookie}, long poll")
        assert isinstance(response, ReadResponse)
        lac = previous_lac if response.max_lac is None else response.max_lac
        if response.entry is None or response.entry_id != previous_lac + 1:
            return LongPollAnswer(lac)
        entry = self.packet(bookie, response.entry, EntryId(previous_lac + 1))
        return LongPollAnswer(max(lac, entry.lac), entry)

    def _what(self, bookie: BookieId, entry_id: EntryId | None) -> str:
        if entry_id is None:
            return f"bookie {bookie}, last entry of ledger {self._ledger_id}"
        return f"bookie {bookie}"
