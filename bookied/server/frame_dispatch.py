"""The frames of one client, and their dispatch to the parts that answer them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from bookied.server.access.access_check import AccessCheck
from bookied.server.answer_buffer import WRITE_BYTES, AnswerBuffer
from bookied.server.answer_order import Replies, Reply
from bookied.server.limits.handshake_turns import HandshakeTurns
from bookied.server.limits.large_add_turns import LARGE_FRAME_BYTES, LargeAddTurns
from bookied.server.limits.memory import ClientMemory
from bookied.server.limits.request_turns import SLICE_REQUESTS, Turns
from bookied.server.limits.timeouts import WaitTimes
from bookied.server.reads.reads_from_memory import AnswerLimits, FastReadResult
from bookied.server.rules.long_poll import Cancel
from bookied.server.shared_by_connections import ServerContext
from bookied.server.tls_and_login import Admission
from wire.codes import ReturnCode
from wire.errors import RemoteProtocolError
from wire.framing import ServerConnection
from wire.messages import ReceivedRequest, StartTlsRequest, StartTlsResponse
from wire.other_protocols import TLS_BEGIN

_LENGTH: Final = struct.Struct(">i")

READS_IN_ONE: Final = 8
"""Reads handled in bulk that count as one request: together they take about as long."""

PAGES_IN_ONE: Final = 8
"""New index pages of adds that count as one request; 1,000 ledgers may need a page at once."""

READ_REQUEST_BYTES: Final = 128 * 1024
"""Bytes of entries read that count as one request: reading and sending takes about as long."""

CHECKED_BYTES: Final = 64 * 1024
"""Received bytes of a frame after which its first bytes are checked for too many fields."""


class FrameDispatch:
    """The decoder of a client's frames, in order: adds and reads in bulk, the others one by one.

    The undecoded rest is the start of a frame. It contains complete frames while the client does
    not read its answers, while too many reads wait (``is_stopped``) or until the next turn
    (``is_waiting``). Both kinds of rest are limited over all connections.
    """

    def __init__(
        self,
        shared: ServerContext,
        client: ClientMemory,
        framing: ServerConnection,
        *,
        admission: Admission,
        answers: AnswerBuffer,
        replies: Replies,
        close: Callable[[], object],
    ) -> None:
        self._shared, self._client, self._framing = shared, client, framing
        self._admission, self._answers, self._replies = admission, answers, replies
        self._close = close
        self._fast_adds, self._fast_reads = shared.fast_adds, shared.fast_reads
        self._must_queue = replies.lanes.is_waiting
        self._rest: list[bytes] = []
        self._rest_at = self._rest_bytes = self._frame_bytes = 0
        self._plain_bytes = 0  # Bytes of the rest that the bulk decoders have rejected.
        self.is_stopped = False
        """Whether no frame is handled until disk reads have ended."""
        self.is_waiting = False
        """Whether no frame is handled until the connection's next turn."""
        self.is_handshake_next = self.is_large_next = False
        """Whether the next turn is one for TLS handshakes, or one for large adds."""
        self.requests_taken = 0
        """Number of requests that the last ``take`` handled, as ``take`` counts them."""
        self.waiting = WaitTimes(shared.clock.seconds())
        """The times since which the client keeps the bookie waiting."""

    @property
    def has_rest(self) -> bool:
        """True if received bytes are left."""
        return bool(self._rest_bytes)

    @property
    def has_frames(self) -> bool:
        """True if the rest may contain a complete frame."""
        return bool(self._rest) and self._rest_bytes >= self._frame_bytes

    @property
    def is_stopped_for_nothing(self) -> bool:
        """True if the dispatch is stopped, but disk reads have ended and more may be handled."""
        return self.is_stopped and not (self._replies.lanes.is_full or self._answers.is_stalled)

    @property
    def turns(self) -> Turns | HandshakeTurns | LargeAddTurns:
        """The queue of the connection's next turn, if the dispatch is waiting."""
        if self.is_handshake_next:
            return self._shared.handshakes
        return self._shared.backpressure.large_adds if self.is_large_next else self._shared.turns

    def drop(self) -> None:
        """Drop the rest."""
        self._rest = []

    def hold(self, data: bytes) -> bool:
        """Keep ``data`` until the connection's turn; return False if that is not possible."""
        if self._rest or self._answers.is_held:
            return False
        self._rest, self._rest_bytes, self.is_waiting = [data], len(data), True
        return True

    @property
    def holds_few(self) -> bool:
        """True if the rest is at most one slice, if all frames are as long as the first."""
        data = self._rest[0]
        frame_bytes = _LENGTH.size + int.from_bytes(data[: _LENGTH.size], "big")
        return len(data) <= SLICE_REQUESTS * READS_IN_ONE * frame_bytes

    def take(self, data: bytes = b"", *, requests_max: int = SLICE_REQUESTS) -> None:
        """Handle the frames that are complete with ``data``, at most ``requests_max`` of them.

        Adds in bulk do not count, except that ``PAGES_IN_ONE`` new index pages count as one
        request. ``READS_IN_ONE`` reads count as one, as do ``READ_REQUEST_BYTES`` of their entries
        and each ledger that is loaded into memory. A TLS handshake always waits for its turn.

        Raises:
            RemoteProtocolError: the framing is broken, or a request is invalid.
            TlsOrderError: a request arrived where only TLS is allowed.
        """
        self.requests_taken = 0
        if self._admission.check is not None:
            requests_max = 1  # Not authenticated: other clients are first.
        at, is_turn = 0, self.is_handshake_next and not data
        if self._rest:
            if data:
                self._rest.append(data)
                self._rest_bytes += len(data)
            if self.is_waiting:
                self._client.update_reading()
                return
            if self._rest_bytes < self._frame_bytes:
                self._note_half(len(data))
                return
            if data and self._is_held_back():
                return
            data = self._rest[0] if len(self._rest) == 1 else b"".join(self._rest)
            at = self._rest_at
        self.is_large_next = False
        is_new, plain_until, end = False, at + self._plain_bytes, len(data)
        answers, lanes, admission = self._answers, self._replies.lanes, self._admission
        if self._frame_bytes:
            self._frame_bytes = 0
            self._shared.half_frames.release(self._client)
        while not (answers.is_stalled or answers.is_closed or lanes.is_full):
            if self.requests_taken >= requests_max:
                self.is_waiting = at < end
                break
            begin = at
            if answers.is_held:  # The client has started TLS.
                if data.startswith(TLS_BEGIN[:1], at):
                    self.is_waiting = self.is_handshake_next = not is_turn
                    if not is_turn:
                        break
                    self._rest, self._rest_bytes = [], 0
                    self._client.update_reading()  # Before ``startTLS`` replaces the transport.
                    admission.begin_handshake(data[at:])
                    return
            elif admission.check is None and at >= plain_until:
                pages_max = (requests_max - self.requests_taken) * PAGES_IN_ONE
                at = self._fast_adds.take(data, at, self._replies, pages_max)
                self.requests_taken += -(-self._fast_adds.new_pages // PAGES_IN_ONE)
                is_new = is_new or at > begin
                if at == end:
                    break
                if self.requests_taken >= requests_max:
                    continue  # The rest waits for a later turn.
                taken = self._take_reads(data, at, requests_max)
                at, is_new = taken.end, is_new or taken.end > begin
                if taken.left:
                    data, at, plain_until = taken.left + data[at:], 0, len(taken.left)
                    end = len(data)
                    continue
            if end - at < _LENGTH.size:
                break
            frame_bytes = _LENGTH.size + _LENGTH.unpack_from(data, at)[0]
            if end - at < frame_bytes <= self._framing.frame_bytes_max:
                self._frame_bytes = frame_bytes
                break
            if at > begin:
                continue  # The next frame may be plain too, but of another kind or journal.
            self._handle(self._request(data, at, frame_bytes), frame_bytes)
            self.requests_taken += 1
            at, is_new = at + frame_bytes, True
        self.is_stopped = lanes.is_full
        self._keep(data, at, end, plain_until)
        self._note_rest(is_new=is_new)
        if self._frame_bytes:
            self._note_half(self._rest_bytes)
        if self.is_stopped or self.is_waiting:
            self._client.update_reading()

    def _is_held_back(self) -> bool:
        """Return whether a complete frame is large and must wait for its turn."""
        self.is_large_next = (
            self._frame_bytes >= LARGE_FRAME_BYTES
            and self._shared.backpressure.large_adds.must_wait()
        )
        if self.is_large_next:
            self.is_waiting, self.waiting.frame_s = True, None
            self._client.update_reading()
        return self.is_large_next

    def _keep(self, data: bytes, at: int, end: int, plain_until: int) -> None:
        """Keep the bytes from ``at`` on: as a copy, unless most of them would be copied again."""
        self._rest_at = at if 2 * at < end else 0
        rest = data if self._rest_at else data[at:]
        self._rest = [rest] if at < end else []
        self._rest_bytes = end - at
        self._plain_bytes = max(0, plain_until - at)

    def _note_half(self, new_bytes: int) -> None:
        """Count the received bytes of a frame.

        Check its first bytes once ``CHECKED_BYTES`` are received.
        """
        self._shared.half_frames.note(self._client, self._rest_bytes)
        if self._rest_bytes - new_bytes < CHECKED_BYTES <= self._rest_bytes:
            begin = b"".join(self._rest)[self._rest_at + _LENGTH.size :]
            self._framing.require_quick_to_parse(begin)

    def _note_rest(self, *, is_new: bool) -> None:
        """Count the rest: complete frames behind unread answers, or the start of a frame."""
        waiting, is_stalled = self.waiting, self._answers.is_stalled
        if not self._rest_bytes or is_stalled or self.is_stopped or self.is_waiting:
            waiting.frame_s = None
            if self._rest_bytes and is_stalled:
                self._shared.unsent.add(self._client, self._rest_bytes)
        elif is_new or waiting.frame_s is None:
            waiting.frame_s = waiting.heard_s

    def _take_reads(self, data: bytes, at: int, requests_max: int) -> FastReadResult:
        requests = requests_max - self.requests_taken
        self._fast_adds.store()
        most = AnswerLimits(WRITE_BYTES, requests * READS_IN_ONE, requests)
        taken = self._fast_reads.take(data, at, self._must_queue, most)
        if taken.answers:
            self._answers.put(taken.answers, taken.reads)
        self.requests_taken += -(-taken.reads // READS_IN_ONE) + taken.loads
        self.requests_taken += taken.size_bytes // READ_REQUEST_BYTES
        return taken

    def _request(self, data: bytes, at: int, frame_bytes: int) -> ReceivedRequest:
        """Return the request in the frame at ``at``: complete, unless its length is invalid."""
        framing, begin = self._framing, at + _LENGTH.size
        if _LENGTH.size < frame_bytes <= framing.frame_bytes_max:
            return framing.decode(data[begin : at + frame_bytes])
        framing.receive_data(data[at:begin])
        framing.next_event()
        raise RemoteProtocolError("a malformed frame")  # Not reached: the length is refused.

    def _handle(self, received: ReceivedRequest, frame_bytes: int) -> None:
        self._fast_adds.store()
        self._admission.require_allowed(received.request)
        reply = self._replies.begin(received, frame_bytes)
        try:
            cancel = self._answer(received, reply)
        except BaseException:
            if not reply.is_given:
                # No other code settles it: the connection will be closed.
                self._replies.settle(reply)
            raise
        if cancel is not None and not reply.is_given:
            self._replies.keep_poll(reply, cancel)

    def _answer(self, received: ReceivedRequest, reply: Reply) -> Cancel | None:
        request, stats, check = received.request, self._shared.stats, self._admission.check
        begins_tls = isinstance(request, StartTlsRequest)
        if begins_tls and self._shared.access.tls is not None:
            stats.packets_received += 1
            self._begin_tls(reply)
            return None
        if check is not None and not begins_tls:
            stats.packets_received += 1
            return self._check_access(check, received, reply)
        refused_before = stats.keys_refused
        cancel = self._shared.bookie.handle(
            request, received.reply_to, reply, self._admission.address
        )
        stats.handled(request, reply.began_ns)
        if stats.keys_refused != refused_before:
            self._admission.refuse_key(getattr(request, "ledger_id", -1))
        return cancel

    def _begin_tls(self, reply: Reply) -> None:
        """Accept START_TLS, in clear; no other answer is sent before the handshake has ended."""
        self._admission.require_first()
        self._replies.send(reply, StartTlsResponse(ReturnCode.EOK))
        self._answers.flush()
        self._admission.upgrade()
        self._answers.is_held = True

    def _check_access(
        self, check: AccessCheck, received: ReceivedRequest, reply: Reply
    ) -> Cancel | None:
        """Answer a client that has not authenticated.

        Wait first if its address guesses passwords.
        """
        wait_s = check.wait_s(received.request)
        if not wait_s:
            self._answer_of_check(check, received, reply)
            return None
        late = self._shared.clock.callLater(wait_s, self._answer_late, check, received, reply)
        return late.cancel

    def _answer_late(self, check: AccessCheck, received: ReceivedRequest, reply: Reply) -> None:
        self._replies.forget_poll(reply)
        self._answer_of_check(check, received, reply)
        self._answers.flush()

    def _answer_of_check(self, check: AccessCheck, received: ReceivedRequest, reply: Reply) -> None:
        verdict = check.judge(received.request, received.reply_to)
        self._admission.pass_if_open()
        if verdict.response is None:
            self._replies.settle(reply)
        else:
            self._replies.send(reply, verdict.response)
        if verdict.closes:
            self._close()
