"""One connection: matching, time-outs, loss, and what must not be mistaken for what."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionLost
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from bkclient.concurrency import KeyedTimers
from bkclient.config.client import ClientConfig
from bkclient.connection.channel import BookieChannel, ChannelSettings
from bkclient.errors import (
    BookieUnavailableError,
    ClientClosedError,
    ClientError,
    ClientLedgerFencedError,
    ClientUnauthorizedError,
    RequestTimeoutError,
    SecurityError,
    WriteFailedError,
)
from wire.codes import Operation, ProtocolVersion, ReturnCode
from wire.frames import v2, v3
from wire.frames.entry_packets import Packets
from wire.frames.varint import encode_varint
from wire.ids import NO_ENTRY, BookieId, EntryId, LedgerId
from wire.messages import (
    AddRequest,
    AddResponse,
    BatchReadRequest,
    BatchReadResponse,
    ErrorResponse,
    ReadLacRequest,
    ReadLacResponse,
    ReadRequest,
    ReadResponse,
    ReplyTo,
    Response,
    StartTlsRequest,
    StartTlsResponse,
)

L = LedgerId(7)


class Transport(StringTransport):
    """A transport in memory that a channel may close."""

    aborted = False

    def registerProducer(self, producer: Any, streaming: bool) -> None:  # noqa: FBT001, N802
        self.producer = producer

    def unregisterProducer(self) -> None:  # noqa: N802
        pass

    def abortConnection(self) -> None:  # noqa: N802
        self.aborted = True

    def loseConnection(self) -> None:  # noqa: N802
        self.aborted = True


def v3_reply(txn_id: int, response: Response, operation: Operation) -> bytes:
    return v3.encode_response(response, ReplyTo(ProtocolVersion.V3, operation, 3, txn_id))


def v2_reply(response: Response, operation: Operation) -> bytes:
    return v2.encode_response(response, ReplyTo(ProtocolVersion.V2, operation, 2))


def entry(entry_id: int, rc: ReturnCode = ReturnCode.EOK) -> ReadResponse:
    return ReadResponse(rc, L, EntryId(entry_id), None if rc else b"packet %d" % entry_id)


class Stage(SynchronousTestCase):
    protocol = ProtocolVersion.V3

    def setUp(self) -> None:
        self.clock, self.transport = Clock(), Transport()
        self.channel = self.make(self.protocol)

    def make(self, protocol: ProtocolVersion) -> BookieChannel:
        channel = BookieChannel(self.clock, BookieId("b1"), protocol=protocol)
        channel.makeConnection(self.transport)  # type: ignore[arg-type]
        return channel


def test_the_largest_messages_of_pulsar_arrive_without_a_setting() -> None:
    """Pulsar's bookies take frames of 5 MiB and 10 KiB by default, and so do its brokers."""
    for size, is_read in ((5 * 1024 * 1024 + 9000, True), (5 * 1024 * 1024 + 10240, False)):
        settings = ChannelSettings.of(ClientConfig())
        channel = BookieChannel(Clock(), BookieId("b1"), settings=settings)
        channel.makeConnection(Transport())  # type: ignore[arg-type]
        found = list[object]()
        channel.request(ReadRequest(L, EntryId(0))).addBoth(found.append)
        answer = ReadResponse(ReturnCode.EOK, L, EntryId(0), bytes(size))
        channel.dataReceived(v3_reply(1, answer, Operation.READ_ENTRY))
        if is_read:
            assert found == [answer]
        else:
            assert "nettyMaxFrameSizeBytes" in str(found)


def test_what_comes_in_clear_with_the_answer_to_start_tls_is_no_answer_in_tls() -> None:
    """An attacker on the way could begin an answer there, which TLS would then complete."""
    for behind in (b"\0", v3_reply(9, ErrorResponse(ReturnCode.ENOENTRY), Operation.READ_ENTRY)):
        channel, failures = BookieChannel(Clock(), BookieId("b1")), list[Failure]()
        channel.makeConnection(Transport())  # type: ignore[arg-type]
        asked = channel.request(StartTlsRequest())
        asked.addCallback(lambda _, of=channel: of.start_tls(None)).addErrback(failures.append)
        answer = v3_reply(1, StartTlsResponse(ReturnCode.EOK), Operation.START_TLS)
        channel.dataReceived(answer + behind)
        assert [type(one.value) for one in failures] == [SecurityError]


class NeverInsideTheCallTests(Stage):
    """A callback never runs inside the call that sent the request, also where nothing is sent."""

    def test_what_is_asked_of_a_lost_v2_connection_fails_afterwards(self) -> None:
        self._ask_a_lost_connection(ProtocolVersion.V2)

    def test_what_is_asked_of_a_lost_v3_connection_fails_afterwards(self) -> None:
        self._ask_a_lost_connection(ProtocolVersion.V3)

    def _ask_a_lost_connection(self, protocol: ProtocolVersion) -> None:
        channel, failed = self.make(protocol), list[int]()
        stream = channel.open_stream(L, failed.extend, lambda entries, _: failed.extend(entries))
        channel.connectionLost(Failure(ConnectionLost()))
        read = channel.request(ReadRequest(L, EntryId(0)))
        stream.send(b"frame", (b"1",), (3,))
        self.assertNoResult(read)
        self.assertEqual(failed, [])
        self.clock.advance(0)
        self.failureResultOf(read, BookieUnavailableError)
        self.assertEqual(failed, [3])

    def test_reading_nothing_is_done_afterwards_too(self) -> None:
        bulk = self.make(ProtocolVersion.V2).read_many(L, [], 1.0)
        self.assertNoResult(bulk)
        self.clock.advance(0)
        self.assertEqual(self.successResultOf(bulk), {})


class V3Tests(Stage):
    def test_answers_are_matched_by_transaction_whatever_their_order(self) -> None:
        reads = [self.channel.request(ReadRequest(L, EntryId(n))) for n in range(3)]
        for txn_id in (3, 1, 2):
            self.assertNoResult(reads[txn_id - 1])
            reply = v3_reply(txn_id, entry(txn_id - 1), Operation.READ_ENTRY)
            self.channel.dataReceived(reply)
            self.assertEqual(self.successResultOf(reads[txn_id - 1]), entry(txn_id - 1))

    def test_an_answer_may_come_in_any_pieces(self) -> None:
        read = self.channel.request(ReadRequest(L, EntryId(0)))
        for byte in v3_reply(1, entry(0), Operation.READ_ENTRY):
            self.assertNoResult(read)
            self.channel.dataReceived(bytes((byte,)))
        self.assertEqual(self.successResultOf(read), entry(0))

    def test_an_answer_to_something_else_is_dropped(self) -> None:
        read = self.channel.request(ReadRequest(L, EntryId(0)))
        self.channel.dataReceived(v3_reply(9, entry(0), Operation.READ_ENTRY))
        lac = ReadLacResponse(ReturnCode.EOK, L)
        self.channel.dataReceived(v3_reply(1, lac, Operation.READ_LAC))
        self.assertNoResult(read)
        self.clock.advance(5)
        self.failureResultOf(read, RequestTimeoutError)

    def test_a_silent_bookie_times_out_and_its_late_answer_is_dropped(self) -> None:
        read = self.channel.request(ReadRequest(L, EntryId(0)))
        self.clock.advance(4.9)
        self.assertNoResult(read)
        self.clock.advance(0.1)
        self.failureResultOf(read, RequestTimeoutError)
        self.channel.dataReceived(v3_reply(1, entry(0), Operation.READ_ENTRY))
        self.assertEqual(self.channel.in_flight, 0)
        self.assertFalse(self.transport.aborted)

    def test_a_request_may_have_a_time_out_of_its_own(self) -> None:
        short = self.channel.request(ReadLacRequest(L), timeout_s=1)
        long = self.channel.request(ReadLacRequest(L), timeout_s=30)
        usual = self.channel.request(ReadLacRequest(L))
        self.clock.advance(1)
        self.failureResultOf(short, RequestTimeoutError)
        self.clock.advance(4)
        self.failureResultOf(usual, RequestTimeoutError)
        self.assertNoResult(long)
        self.clock.advance(25)
        self.failureResultOf(long, RequestTimeoutError)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_losing_the_connection_fails_everything_in_flight(self) -> None:
        failed: list[tuple[list[int], ClientError]] = []
        read = self.channel.request(ReadRequest(L, EntryId(0)))
        stream = self.channel.open_stream(L, lambda _: None, lambda *what: failed.append(what))
        stream.send(b"frames", [encode_varint(8), encode_varint(9)], [0, 1])
        self.channel.connectionLost(Failure(ConnectionLost()))
        self.failureResultOf(read, BookieUnavailableError)
        assert [entries for entries, _ in failed] == [[0, 1]]
        assert isinstance(failed[0][1], BookieUnavailableError)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_what_is_sent_after_the_loss_fails_later_never_at_once(self) -> None:
        self.channel.connectionLost(Failure(ConnectionLost()))
        failed: list[object] = []
        read = self.channel.request(ReadRequest(L, EntryId(0)))
        stream = self.channel.open_stream(L, lambda _: None, lambda *what: failed.append(what))
        stream.send(b"frames", [encode_varint(8)], [0])
        self.assertNoResult(read)
        self.assertEqual(failed, [])
        self.clock.advance(0)
        self.failureResultOf(read, BookieUnavailableError)
        self.assertEqual(len(failed), 1)

    def test_bytes_that_are_no_answer_end_the_connection(self) -> None:
        for junk in (b"\xff\xff\xff\xff", b"\x00\x00\x00\x02\x01\x02", b"\x7f\xff\xff\xff"):
            with self.subTest(junk=junk):
                self.transport = Transport()
                channel = self.make(ProtocolVersion.V3)
                read = channel.request(ReadRequest(L, EntryId(0)))
                channel.dataReceived(junk)
                self.failureResultOf(read, BookieUnavailableError)
                self.assertTrue(self.transport.aborted)

    def test_closing_says_so(self) -> None:
        read = self.channel.request(ReadRequest(L, EntryId(0)))
        self.channel.close(ClientClosedError("closed"))
        self.failureResultOf(read, ClientClosedError)
        self.assertTrue(self.transport.aborted)

    def test_adds_are_acked_in_lists_and_refused_one_by_one(self) -> None:
        acked: list[list[int]] = []
        failed: list[tuple[list[int], ClientError]] = []
        stream = self.channel.open_stream(L, acked.append, lambda *what: failed.append(what))
        stream.send(b"frames", [encode_varint(100 + n) for n in range(6)], list(range(6)))
        reply = b"".join(
            v3_reply(100 + n, AddResponse(rc, L, EntryId(n)), Operation.ADD_ENTRY)
            for n, rc in enumerate(
                [ReturnCode.EOK, ReturnCode.EOK, ReturnCode.EFENCED, ReturnCode.EOK]
            )
        )
        self.channel.dataReceived(reply)
        self.channel.dataReceived(v3_reply(104, ErrorResponse(ReturnCode.EUA), Operation.ADD_ENTRY))
        refused = AddResponse(ReturnCode.EIO, L, EntryId(5))
        self.channel.dataReceived(v3_reply(105, refused, Operation.ADD_ENTRY))
        self.assertEqual(acked, [[0, 1], [3]])
        self.assertEqual([entries for entries, _ in failed], [[2], [4], [5]])
        self.assertEqual(
            [type(error) for _, error in failed],
            [ClientLedgerFencedError, ClientUnauthorizedError, WriteFailedError],
        )
        self.assertEqual(stream.outstanding, {})

    def test_an_add_may_be_a_request_beside_those_of_a_writer(self) -> None:
        acked: list[int] = []
        stream = self.channel.open_stream(L, acked.extend, lambda _entries, _error: None)
        key = encode_varint(self.channel.next_txn_id())
        stream.send(b"frame", [key], [300])
        requests = [AddRequest(L, EntryId(n), b"k" * 20, b"p") for n in (700, 800)]
        adds = [self.channel.request(request) for request in requests]
        for txn_id, entry_id in ((2, 700), (1, 300), (3, 800)):
            ack = AddResponse(ReturnCode.EOK, L, EntryId(entry_id))
            self.channel.dataReceived(v3_reply(txn_id, ack, Operation.ADD_ENTRY))
        answers = [self.successResultOf(add) for add in adds]
        self.assertEqual([(one.rc, one.entry_id) for one in answers], [(0, 700), (0, 800)])
        self.assertEqual(acked, [300])

    def test_two_writers_of_one_ledger_hear_of_their_own_adds_only(self) -> None:
        heard: list[tuple[str, list[int]]] = []
        first = self.channel.open_stream(L, lambda e: heard.append(("1", e)), lambda *_: None)
        second = self.channel.open_stream(L, lambda e: heard.append(("2", e)), lambda *_: None)
        first.send(b"", [encode_varint(200)], [5])
        second.send(b"", [encode_varint(201)], [5])
        ack = AddResponse(ReturnCode.EOK, L, EntryId(5))
        self.channel.dataReceived(v3_reply(201, ack, Operation.ADD_ENTRY))
        self.assertEqual(heard, [("2", [5])])

    def test_adds_that_are_not_answered_time_out_with_their_write(self) -> None:
        acked: list[list[int]] = []
        failed: list[list[int]] = []
        stream = self.channel.open_stream(L, acked.append, lambda e, _: failed.append(e))
        stream.send(b"", [encode_varint(1), encode_varint(2)], [0, 1])
        self.clock.advance(3)
        stream.send(b"", [encode_varint(3)], [2])
        ack = AddResponse(ReturnCode.EOK, L, EntryId(0))
        self.channel.dataReceived(v3_reply(1, ack, Operation.ADD_ENTRY))
        self.clock.advance(2)
        self.assertEqual((acked, failed), ([[0]], [[1]]))
        self.clock.advance(3)
        self.assertEqual(failed, [[1], [2]])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_a_full_transport_can_be_waited_for(self) -> None:
        self.transport.producer.pauseProducing()
        self.assertFalse(self.channel.writability.is_writable)
        waiting = self.channel.writability.when_writable()
        given_up = self.channel.writability.when_writable()
        given_up.addErrback(lambda _failure: None)
        given_up.cancel()
        self.assertNoResult(waiting)
        self.transport.producer.resumeProducing()
        self.successResultOf(waiting)


class V2Tests(Stage):
    def setUp(self) -> None:
        super().setUp()
        self.channel = self.make(ProtocolVersion.V2)

    def test_answers_are_matched_by_what_they_echo(self) -> None:
        reads = [self.channel.request(ReadRequest(L, EntryId(n))) for n in range(3)]
        for number in (2, 0, 1):
            self.channel.dataReceived(v2_reply(entry(number), Operation.READ_ENTRY))
            self.assertEqual(self.successResultOf(reads[number]), entry(number))

    def test_the_same_read_twice_goes_out_once_at_a_time(self) -> None:
        first = self.channel.request(ReadRequest(L, NO_ENTRY))
        sent = len(self.transport.value())
        second = self.channel.request(ReadRequest(L, NO_ENTRY))
        self.assertEqual(len(self.transport.value()), sent)
        reply = v2_reply(ReadResponse(ReturnCode.EOK, L, NO_ENTRY, b"x"), Operation.READ_ENTRY)
        self.channel.dataReceived(reply)
        self.successResultOf(first)
        self.assertNoResult(second)
        self.assertEqual(len(self.transport.value()), 2 * sent)
        self.channel.dataReceived(reply)
        self.successResultOf(second)

    def test_a_read_that_waits_for_its_twin_goes_out_after_its_time_out(self) -> None:
        first = self.channel.request(ReadRequest(L, NO_ENTRY))
        self.clock.advance(1)
        second = self.channel.request(ReadRequest(L, NO_ENTRY))
        self.clock.advance(4)
        self.failureResultOf(first, RequestTimeoutError)
        self.assertNoResult(second)
        self.clock.advance(5)
        self.failureResultOf(second, RequestTimeoutError)

    def test_reads_that_wait_for_their_twin_do_not_take_a_time_out_each(self) -> None:
        reads = [self.channel.request(ReadRequest(L, NO_ENTRY)) for _ in range(20)]
        sent = len(self.transport.value())
        self.clock.advance(5)
        for read in reads:
            self.failureResultOf(read, RequestTimeoutError)
        self.assertEqual(len(self.transport.value()), sent)

    def test_nor_where_each_answer_is_late(self) -> None:
        reads = [self.channel.request(ReadRequest(L, EntryId(1))) for _ in range(20)]
        for _ in range(3):
            self.clock.advance(4)
            self.channel.dataReceived(v2_reply(entry(1), Operation.READ_ENTRY))
        for read in reads[:2]:
            self.assertEqual(self.successResultOf(read), entry(1))
        for read in reads[2:]:
            self.failureResultOf(read, RequestTimeoutError)

    def test_a_read_that_waits_is_not_forgotten_for_one_that_an_answer_leads_to(self) -> None:
        request = ReadRequest(L, EntryId(1))
        again: list[Deferred[Any]] = []
        first, waiting = self.channel.request(request), self.channel.request(request)
        first.addCallback(lambda _response: again.append(self.channel.request(request)))
        for _ in range(3):
            self.channel.dataReceived(v2_reply(entry(1), Operation.READ_ENTRY))
        self.assertEqual(self.successResultOf(waiting), entry(1))
        self.assertEqual(self.successResultOf(again[0]), entry(1))

    def test_nor_for_one_that_a_time_out_leads_to(self) -> None:
        request = ReadRequest(L, EntryId(1))
        first = self.channel.request(request)
        self.clock.advance(1)
        waiting = self.channel.request(request)
        first.addErrback(lambda _failure: self.channel.request(request))
        self.clock.advance(4)
        for _ in range(2):
            self.channel.dataReceived(v2_reply(entry(1), Operation.READ_ENTRY))
        self.assertEqual(self.successResultOf(waiting), entry(1))
        self.assertEqual(self.successResultOf(first), entry(1))

    def test_a_batch_read_is_matched_by_its_request_id(self) -> None:
        batches = [
            self.channel.request(BatchReadRequest(L, EntryId(0), request_id, 10, 1000))
            for request_id in (41, 42)
        ]
        for request_id in (42, 41):
            entries = Packets.join([b"a", b"b"])
            response = BatchReadResponse(ReturnCode.EOK, L, EntryId(0), request_id, entries)
            self.channel.dataReceived(v2_reply(response, Operation.BATCH_READ_ENTRY))
            self.assertEqual(self.successResultOf(batches[request_id - 41]), response)

    def test_acks_and_reads_mix(self) -> None:
        acked: list[list[int]] = []
        failed: list[tuple[list[int], ClientError]] = []
        stream = self.channel.open_stream(L, acked.append, lambda *what: failed.append(what))
        stream.send(b"", list(range(6)), list(range(6)))
        read = self.channel.request(ReadRequest(L, EntryId(3)))
        acks = [
            v2_reply(AddResponse(rc, L, EntryId(n)), Operation.ADD_ENTRY)
            for n, rc in enumerate([ReturnCode.EOK] * 4 + [ReturnCode.EFENCED, ReturnCode.EOK])
        ]
        reply = v2_reply(entry(3), Operation.READ_ENTRY)
        self.channel.dataReceived(b"".join([*acks[:2], reply, *acks[2:]]))
        self.assertEqual(self.successResultOf(read), entry(3))
        self.assertEqual(acked, [[0, 1], [2, 3], [5]])
        self.assertEqual([entries for entries, _ in failed], [[4]])

    def test_an_ack_nobody_waits_for_is_dropped(self) -> None:
        acked: list[list[int]] = []
        stream = self.channel.open_stream(L, acked.append, lambda *_: None)
        stream.send(b"", [1], [1])
        ack = v2_reply(AddResponse(ReturnCode.EOK, L, EntryId(1)), Operation.ADD_ENTRY)
        other = v2_reply(AddResponse(ReturnCode.EOK, LedgerId(9), EntryId(1)), Operation.ADD_ENTRY)
        self.channel.dataReceived(other + ack + ack)
        self.assertEqual(acked, [[1]])
        stream.close()
        self.channel.dataReceived(ack)
        self.assertFalse(self.channel.streams.has(L))

    def test_an_unknown_op_code_ends_the_connection(self) -> None:
        read = self.channel.request(ReadRequest(L, EntryId(0)))
        self.channel.dataReceived(b"\x00\x00\x00\x04\x02\x63\x00\x00")
        self.failureResultOf(read, BookieUnavailableError)


class SilenceTests(Stage):
    """A connection that nothing comes on is given up; one that is slow is kept."""

    def read(self, entry_id: int = 0, timeout_s: float | None = None) -> Deferred[Any]:
        return self.channel.request(ReadRequest(L, EntryId(entry_id)), timeout_s=timeout_s)

    def answer(self, txn_id: int) -> None:
        self.channel.dataReceived(v3_reply(txn_id, entry(txn_id - 1), Operation.READ_ENTRY))

    def test_two_time_outs_in_a_row_end_it_and_all_that_is_in_flight(self) -> None:
        failed: list[tuple[list[int], ClientError]] = []
        stream = self.channel.open_stream(L, lambda _: None, lambda *what: failed.append(what))
        first = self.read()
        self.clock.advance(5)
        self.failureResultOf(first, RequestTimeoutError)
        self.assertFalse(self.transport.aborted)
        second, long = self.read(1), self.read(2, timeout_s=60)
        self.clock.advance(3)
        stream.send(b"frame", [encode_varint(99)], [7])
        self.clock.advance(2)
        for read in (second, long):
            error = self.failureResultOf(read, RequestTimeoutError).value
            self.assertTrue(error.outcome_unknown)
        self.assertEqual([entries for entries, _ in failed], [[7]])
        self.assertIsInstance(failed[0][1], RequestTimeoutError)
        self.assertTrue(self.transport.aborted)
        self.assertIsInstance(self.channel.lost, RequestTimeoutError)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_adds_that_go_out_all_the_time_end_it_too(self) -> None:
        for protocol in ProtocolVersion:
            with self.subTest(protocol=protocol):
                self.transport = Transport()
                channel, failed = self.make(protocol), list[int]()
                stream = channel.open_stream(
                    L, failed.extend, lambda entries, _, failed=failed: failed.extend(entries)
                )
                began_s = self.clock.seconds()
                for number in range(200):
                    stream.send(b"frame", [self.key(protocol, number)], [number])
                    if channel.lost is not None:
                        break
                    self.clock.advance(0.1)
                self.assertTrue(self.transport.aborted)
                self.assertLess(abs(self.clock.seconds() - began_s - 10), 0.3)
                self.clock.advance(0)
                self.assertEqual(sorted(failed), list(range(number + 1)), "each fails, and once")

    def key(self, protocol: ProtocolVersion, number: int) -> int | bytes:
        return number if protocol is ProtocolVersion.V2 else encode_varint(1000 + number)

    def test_bulk_reads_that_nobody_answers_end_it_too(self) -> None:
        channel = self.make(ProtocolVersion.V2)
        for asked_s in (0, 3, 6):
            self.clock.advance(asked_s - self.clock.seconds())
            bulk = channel.read_many(L, [1, 2], 2.0)
            self.clock.advance(2)
            self.assertEqual(self.successResultOf(bulk), {})
            self.assertEqual(self.transport.aborted, asked_s == 6)

    def test_a_bookie_that_answers_anything_at_all_keeps_it(self) -> None:
        for number in range(20):
            read = self.read(number)
            self.clock.advance(4.9)
            if number % 2:
                self.answer(1)  # To what has timed out long ago.
            self.clock.advance(0.1)
            self.failureResultOf(read, RequestTimeoutError)
        self.assertFalse(self.transport.aborted)

    def test_a_part_of_an_answer_shows_that_it_is_slow(self) -> None:
        for number in range(10):
            read = self.read(number)
            self.clock.advance(2)
            self.channel.dataReceived(b"\x00\x4f\xff\xf0" if number == 0 else b"part")
            self.clock.advance(3)
            self.failureResultOf(read, RequestTimeoutError)
        self.assertFalse(self.transport.aborted)

    def test_adds_that_may_take_long_are_not_ended_by_reads_that_may_not(self) -> None:
        self.transport = Transport()
        self.channel = BookieChannel(
            self.clock, BookieId("b1:3181"), settings=ChannelSettings(add_timeout_s=30)
        )
        self.channel.makeConnection(self.transport)
        acked, failed = list[int](), list[int]()
        stream = self.channel.open_stream(L, acked.extend, lambda what, _: failed.extend(what))
        for number in range(4):
            read = self.read(number)
            stream.send(b"frame", [encode_varint(1000 + number)], [number])
            self.clock.advance(5)
            self.failureResultOf(read, RequestTimeoutError)
        stream.take_acks([encode_varint(1000 + number) for number in range(4)])
        self.assertEqual((acked, failed), ([0, 1, 2, 3], []))
        for number in range(10, 14):
            read = self.read(number)
            self.clock.advance(5)
            self.failureResultOf(read, RequestTimeoutError)
        self.assertTrue(self.transport.aborted, "nothing has come for 35 s since the first read")

    def test_answers_that_came_while_we_stood_still_count(self) -> None:
        reads = [self.read(number) for number in range(3)]
        self.clock.rightNow += 600  # Timers come before the socket is read.
        self.clock.advance(0)
        for read in reads:
            self.failureResultOf(read, RequestTimeoutError)
        self.assertFalse(self.transport.aborted)
        self.answer(1)
        self.assertTrue(self.channel.is_usable())

    def test_an_idle_one_is_given_up_when_it_is_wanted_again(self) -> None:
        read = self.read()
        self.clock.advance(5)
        self.failureResultOf(read, RequestTimeoutError)
        self.clock.advance(4)
        self.assertTrue(self.channel.is_usable())
        self.clock.advance(1)
        self.assertFalse(self.transport.aborted)
        self.assertFalse(self.channel.is_usable())
        self.assertTrue(self.transport.aborted)

    def test_an_idle_one_that_answered_late_is_kept(self) -> None:
        read = self.read()
        self.clock.advance(5)
        self.failureResultOf(read, RequestTimeoutError)
        self.clock.advance(4)
        self.answer(1)
        self.clock.advance(600)
        self.assertTrue(self.channel.is_usable())

    def test_nothing_is_failed_by_asking_whether_it_is_usable(self) -> None:
        """Or callbacks would run inside a call that sends something."""
        first, long = self.read(), self.read(1, timeout_s=60)
        self.clock.advance(5)
        self.failureResultOf(first, RequestTimeoutError)
        self.clock.advance(30)
        self.assertTrue(self.channel.is_usable())
        self.assertNoResult(long)

    def test_who_closes_it_at_a_time_out_ends_the_others_that_are_due(self) -> None:
        first, second = self.read(), self.read(1)
        first.addErrback(lambda _failure: self.channel.close(ClientClosedError("closed")))
        self.clock.advance(5)
        self.successResultOf(first)
        self.failureResultOf(second, ClientClosedError)


class BulkReadTests(Stage):
    """Reads by the dozen: whatever does not come in time is simply not in the result."""

    protocol = ProtocolVersion.V2

    def replies(self, *answers: ReadResponse) -> bytes:
        return b"".join(v2_reply(one, Operation.READ_ENTRY) for one in answers)

    def test_answers_come_together_whatever_their_order_and_kind(self) -> None:
        reading = self.channel.read_many(L, [0, 1, 2, 3, 1], 2.0)
        refused = entry(2, ReturnCode.ENOENTRY)
        data = self.replies(entry(3), refused, entry(0), entry(1))
        self.channel.dataReceived(data[:50])
        self.assertNoResult(reading)
        self.channel.dataReceived(data[50:])
        found = self.successResultOf(reading)
        self.assertEqual(found.pop(2), refused)
        self.assertEqual(found, {n: b"packet %d" % n for n in (0, 1, 3)})
        self.assertEqual(self.channel.in_flight, 0)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_what_is_late_is_left_out(self) -> None:
        reading = self.channel.read_many(L, range(3), 2.0)
        self.channel.dataReceived(self.replies(entry(1)))
        self.clock.advance(2.0)
        self.assertEqual(list(self.successResultOf(reading)), [1])
        self.channel.dataReceived(self.replies(entry(0)))
        self.assertEqual(self.channel.in_flight, 0)

    def test_a_lost_connection_ends_it_with_what_has_come(self) -> None:
        reading = self.channel.read_many(L, range(3), 2.0)
        self.channel.dataReceived(self.replies(entry(1)))
        self.channel.connectionLost(Failure(ConnectionLost()))
        self.assertEqual(list(self.successResultOf(reading)), [1])
        late = self.channel.read_many(L, range(3), 2.0)
        self.assertNoResult(late)
        self.clock.advance(0)
        self.assertEqual(self.successResultOf(late), {})

    def test_giving_up_leaves_nothing_behind(self) -> None:
        reading = self.channel.read_many(L, range(3), 2.0)
        reading.addErrback(lambda _failure: None)
        reading.cancel()
        self.assertEqual((self.channel.in_flight, self.clock.getDelayedCalls()), (0, []))

    def test_the_same_read_is_never_out_twice(self) -> None:
        channel = self.channel
        single = channel.request(ReadRequest(L, EntryId(1)))
        bulk = channel.read_many(L, range(3), 2.0)
        twin = channel.request(ReadRequest(L, EntryId(2)))
        sent = len(self.transport.value())
        channel.dataReceived(self.replies(entry(1), entry(0), entry(2)))
        self.assertEqual(self.successResultOf(single), entry(1))
        self.assertEqual(sorted(self.successResultOf(bulk)), [0, 2])
        self.assertGreater(len(self.transport.value()), sent, "now the twin goes out")
        self.assertNoResult(twin)
        channel.dataReceived(self.replies(entry(2)))
        self.assertEqual(self.successResultOf(twin), entry(2))


class AlarmTests(SynchronousTestCase):
    def test_alarms_ring_in_time_unless_dropped_with_one_timer(self) -> None:
        clock, rung = Clock(), list[tuple[float, str]]()
        alarms: KeyedTimers[str] = KeyedTimers(
            clock, lambda key: rung.append((clock.seconds(), key))
        )
        for number in range(5):
            alarms.set(f"slow{number}", 10.0)
            clock.advance(0.5)
        alarms.set("quick", 1.0)
        alarms.drop("slow1", 10.0)
        alarms.drop("unknown", 3.0)
        self.assertEqual(len(clock.getDelayedCalls()), 1)
        clock.pump([0.25] * 60)
        self.assertEqual(
            rung,
            [(3.5, "quick"), (10.0, "slow0"), (11.0, "slow2"), (11.5, "slow3"), (12.0, "slow4")],
        )
        self.assertEqual(clock.getDelayedCalls(), [])

    def test_nothing_rings_after_stop(self) -> None:
        clock, rung = Clock(), list[str]()
        alarms: KeyedTimers[str] = KeyedTimers(clock, rung.append)
        alarms.set("x", 1.0)
        alarms.stop()
        clock.advance(2)
        self.assertEqual((rung, clock.getDelayedCalls()), ([], []))


@pytest.mark.parametrize("count", [1, 1000])
def test_a_thousand_requests_have_one_timer(count: int) -> None:
    clock = Clock()
    channel = BookieChannel(clock, BookieId("b1"))
    channel.makeConnection(Transport())  # type: ignore[arg-type]
    for number in range(count):
        channel.request(ReadRequest(L, EntryId(number))).addErrback(lambda _failure: None)
    assert len(clock.getDelayedCalls()) == 1
    clock.advance(5)
    assert channel.in_flight == 0
