"""The real Java client, wrapped in what tests ask of it."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from tests.interop.peers.jvm import JavaError, JavaVM
from tests.support.waiting import TIMEOUT_S

if TYPE_CHECKING:
    from typing_extensions import Self

API: Final = "org.apache.bookkeeper.client.api"
_WAIT_S: Final = TIMEOUT_S
"""Longest wait for an answer: some calls of the Java client never end, and a test must."""

PATIENT: Final = {
    "readTimeout": 30,
    "getBookieInfoTimeoutSecs": 30,
    "zkTimeout": 30_000,
    "zkRetryBackoffStartMs": 100,
    "zkRetryBackoffMaxMs": 1000,
}
"""For those that are not to take a slow machine for a loss.

Java's take a bookie for dead after 5 seconds; what ZooKeeper did not answer they ask again after a
whole session time-out, and so a bookie whose session has expired may be away for long.
"""

_CHUNK_BYTES: Final = 4 << 20
"""Payloads that cross to the JVM in one call."""


@attrs.frozen
class JavaLedgerMetadata:
    """A ledger's metadata as the Java client reads it. ``last_entry_id`` is -1 until closed."""

    ledger_id: int
    state: str
    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    last_entry_id: int
    length: int
    ensembles: Mapping[int, tuple[str, ...]]
    digest: str | None
    password: bytes | None
    ctime_ms: int
    custom: Mapping[str, bytes]
    format_version: int


@attrs.frozen
class JavaEntry:
    """An entry as the Java client reads it; ``length`` counts the ledger's bytes up to it."""

    ledger_id: int
    entry_id: int
    length: int
    payload: bytes


@attrs.frozen
class LoadResult:
    """What a load run measured. Latencies run from the call to its callback."""

    adds: int
    entry_bytes: int
    window: int
    seconds: float
    p50_ms: float
    p99_ms: float
    max_ms: float

    @property
    def adds_per_s(self) -> float:
        return self.adds / self.seconds


class JavaFuture:
    """A call that runs in the JVM while Python goes on."""

    def __init__(self, vm: JavaVM, future: Any) -> None:
        self._vm, self._future = vm, future

    @property
    def done(self) -> bool:
        return bool(self._future.isDone())

    def result(self, timeout_s: float = 60.0) -> Any:
        """Wait for the value.

        Raises:
            JavaError: the call failed, or did not end in time (``TimeoutException``).
        """
        unit = self._vm.once(_milliseconds)
        return self._vm.call(self._future.get, int(timeout_s * 1000), unit)


class JavaClient:
    """A BookKeeper client of its own in ``vm``: own configuration, session and connections.

    ``conf`` takes the Java names: ``explicitLacInterval=100``; it wins over ``PATIENT``, and over
    no ``throttle``, for where nothing is said Java sends 5,000 requests a second. Digests are
    CRC32, CRC32C, MAC and DUMMY. Every call raises ``JavaError`` where Java throws.
    """

    def __init__(self, vm: JavaVM, uri: str, *, v2: bool = False, **conf: object) -> None:
        self.vm = vm
        configuration = vm.bookkeeper.conf.ClientConfiguration()
        configuration.setMetadataServiceUri(uri)
        configuration.setUseV2WireProtocol(v2)
        for key, value in {"throttle": 0, **PATIENT, **conf}.items():
            configuration.setProperty(key, value)
        self._configuration = configuration
        self._client = vm.call(vm.bookkeeper.client.BookKeeper, configuration)
        self._open = True

    def create_ledger(
        self,
        ensemble_size: int = 3,
        write_quorum: int = 2,
        ack_quorum: int = 2,
        *,
        digest: str = "CRC32C",
        password: bytes = b"",
        ledger_id: int | None = None,
        custom: Mapping[str, bytes] | None = None,
        deferred_sync: bool = False,
    ) -> JavaLedger:
        """Create a ledger. One with a ``ledger_id`` is "advanced": its entry ids are given too."""
        flags = self.vm.bookkeeper.client.api.WriteFlag
        enum_set = self.vm.java.util.EnumSet
        builder = (
            self._client.newCreateLedgerOp()
            .withEnsembleSize(ensemble_size)
            .withWriteQuorumSize(write_quorum)
            .withAckQuorumSize(ack_quorum)
            .withDigestType(self._digest(digest))
            .withPassword(password)
            .withCustomMetadata(dict(custom or {}))
        )
        if deferred_sync:
            builder = builder.withWriteFlags(enum_set.of(flags.DEFERRED_SYNC))
        if ledger_id is not None:
            builder = builder.makeAdv().withLedgerId(ledger_id)
        return JavaLedger(self.vm, _wait(self.vm, builder.execute()))

    def open_ledger(
        self,
        ledger_id: int,
        *,
        digest: str = "CRC32C",
        password: bytes = b"",
        recover: bool = True,
    ) -> JavaLedger:
        """Open a ledger to read it; ``recover`` fences it and closes it where it ended."""
        how = {"digest": digest, "password": password, "recover": recover}
        return self.opened(self.open_async(ledger_id, **how))

    def open_async(
        self,
        ledger_id: int,
        *,
        digest: str = "CRC32C",
        password: bytes = b"",
        recover: bool = True,
    ) -> JavaFuture:
        """Begin to open a ledger; give what it returns to ``opened``."""
        builder = (
            self._client.newOpenLedgerOp()
            .withLedgerId(ledger_id)
            .withDigestType(self._digest(digest))
            .withPassword(password)
            .withRecovery(recover)
        )
        return JavaFuture(self.vm, builder.execute())

    def opened(self, opening: JavaFuture, timeout_s: float = _WAIT_S) -> JavaLedger:
        """Return the handle of a ledger that was opened."""
        return JavaLedger(self.vm, opening.result(timeout_s))

    def fence(self, ledger_id: int, *, digest: str = "CRC32C", password: bytes = b"") -> None:
        """Fence, recover and close a ledger whose writer may still be at work."""
        self.open_ledger(ledger_id, digest=digest, password=password).close()

    def delete_ledger(self, ledger_id: int) -> None:
        builder = self._client.newDeleteLedgerOp().withLedgerId(ledger_id)
        _wait(self.vm, builder.execute())

    def metadata(self, ledger_id: int) -> JavaLedgerMetadata:
        """Read a ledger's metadata from the store."""
        read = self._client.getLedgerManager().readLedgerMetadata(ledger_id)
        return _metadata(self.vm, _wait(self.vm, read).getValue())

    def recover_bookie(self, ledger_id: int, bookie_id: str) -> None:
        """Copy what a bookie has of a ledger to others, and put these in its place."""
        admin = self.vm.bookkeeper.client.BookKeeperAdmin(self._configuration)
        bookies = self.vm.java.util.HashSet()
        bookies.add(self.vm.bookkeeper.net.BookieId.parse(bookie_id))
        try:
            self.vm.call(admin.recoverBookieData, ledger_id, bookies, False, False)
        finally:
            admin.close()

    def list_ledgers(self) -> list[int]:
        """Return the ids of all ledgers, in order."""
        with_ids = _wait(self.vm, self._client.newListLedgersOp().execute())
        try:
            ids = with_ids.toIterable().iterator()
            found = []
            while ids.hasNext():
                found.append(int(ids.next()))
            return sorted(found)
        finally:
            with_ids.close()

    def close(self) -> None:
        """Close the client and its connections, not its ledgers. A second call does nothing."""
        if self._open:
            self._open = False
            self._forget_what_is_scheduled()
            self.vm.call(self._client.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _forget_what_is_scheduled(self) -> None:
        """Else closing waits for every speculative read, of entries that were read long ago."""
        scheduler = self.vm.field(self._client, "scheduler")
        self.vm.call(scheduler.forceShutdown, 0, self.vm.once(_milliseconds))

    def _digest(self, name: str) -> Any:
        return self.vm.bookkeeper.client.api.DigestType.valueOf(name)


class JavaLedger:
    """A handle of the Java client on one ledger: the writer's, or a reader's."""

    def __init__(self, vm: JavaVM, handle: Any) -> None:
        self.vm, self.handle = vm, handle
        self.ledger_id = int(handle.getId())

    def add(self, payload: bytes, *, entry_id: int | None = None) -> int:
        """Add one entry and wait until it is confirmed. ``entry_id`` for an advanced ledger."""
        if entry_id is None:
            return int(self.add_async(payload).result(_WAIT_S))
        buffer = self.vm.netty.buffer.Unpooled.wrappedBuffer(payload)
        return int(_wait(self.vm, self.handle.writeAsync(entry_id, buffer)))

    def add_async(self, payload: bytes) -> JavaFuture:
        """Send one entry; the result is its entry id."""
        return JavaFuture(self.vm, self.vm.call(self.handle.appendAsync, payload))

    def add_many(self, payloads: Iterable[bytes]) -> list[int]:
        """Add entries with all of a chunk in flight at once; return their ids.

        Raises:
            JavaError: one of them failed.
        """
        ids: list[int] = []
        for chunk in _chunks(payloads):
            ids += self._add_chunk(chunk)
        return ids

    def read(self, first: int, last: int) -> list[bytes]:
        """Return the payloads of a range, which must not go past the last add confirmed."""
        return self._payloads(_wait(self.vm, self.handle.readAsync(first, last)))

    def read_unconfirmed(self, first: int, last: int) -> list[bytes]:
        """As ``read``, past the last add confirmed as well."""
        return self._payloads(_wait(self.vm, self.handle.readUnconfirmedAsync(first, last)))

    def batch_read(self, first: int, count_max: int, bytes_max: int = 1 << 20) -> list[bytes]:
        """Read from ``first`` on with the batch request, which only a V2 client can send.

        Java asks so only where ensemble and write quorum are equal, else it reads one by one. With
        a V3 client on such a ledger the call never ends (seen; 4.18.0): ``TimeoutException``.
        """
        return self._payloads(
            _wait(self.vm, self.handle.batchReadAsync(first, count_max, bytes_max))
        )

    def entry(self, entry_id: int) -> JavaEntry:
        """Read one entry with all that Java knows about it."""
        entries = _wait(self.vm, self.handle.readAsync(entry_id, entry_id))
        try:
            return _entry(entries.getEntry(entry_id))
        finally:
            entries.close()

    @property
    def last_add_confirmed(self) -> int:
        """What this handle knows, without asking."""
        return int(self.handle.getLastAddConfirmed())

    @property
    def last_add_pushed(self) -> int:
        return int(self.handle.getLastAddPushed())

    @property
    def length(self) -> int:
        return int(self.handle.getLength())

    @property
    def is_closed(self) -> bool:
        return bool(self.handle.isClosed())

    def read_last_confirmed(self) -> int:
        """Ask a quorum of bookies for the last add confirmed."""
        return int(_wait(self.vm, self.handle.readLastAddConfirmedAsync()))

    def try_read_last_confirmed(self) -> int:
        """Ask all bookies and take the first answers that improve on what is known."""
        return int(_wait(self.vm, self.handle.tryReadLastAddConfirmedAsync()))

    def read_explicit_last_confirmed(self) -> int:
        """Ask for the explicit LAC that a writer with ``explicitLacInterval`` leaves."""
        return int(self.vm.call(self.handle.readExplicitLastConfirmed))

    def poll_last_confirmed(
        self, entry_id: int, *, wait_ms: int = 5000, parallel: bool = False
    ) -> tuple[int, JavaEntry | None]:
        """Long poll: wait until entry ``entry_id`` is confirmed, at most ``wait_ms``."""
        return self.poll_result(self.poll_async(entry_id, wait_ms=wait_ms, parallel=parallel))

    def poll_async(
        self, entry_id: int, *, wait_ms: int = 5000, parallel: bool = False
    ) -> JavaFuture:
        """Start a long poll; give what it returns to ``poll_result``."""
        read = self.handle.readLastAddConfirmedAndEntryAsync
        return JavaFuture(self.vm, self.vm.call(read, entry_id, wait_ms, parallel))

    def poll_result(
        self, poll: JavaFuture, timeout_s: float = 60.0
    ) -> tuple[int, JavaEntry | None]:
        """Return the last add confirmed, and the entry asked for if it came along."""
        answer = poll.result(timeout_s)
        try:
            entry = _entry(answer.getEntry()) if answer.hasEntry() else None
            return int(answer.getLastAddConfirmed()), entry
        finally:
            answer.close()

    def force(self) -> None:
        """Have all entries added so far synced (for a ledger with deferred sync)."""
        _wait(self.vm, self.handle.force())

    def close(self) -> None:
        """Close the handle; the writer's closes the ledger."""
        self.vm.call(self.handle.close)

    def metadata(self) -> JavaLedgerMetadata:
        """Return the metadata this handle works with, without asking the store."""
        return _metadata(self.vm, self.handle.getLedgerMetadata())

    def load(self, adds: int, entry_bytes: int, window: int) -> LoadResult:
        """Add ``adds`` entries as fast as confirmations allow, ``window`` in flight.

        The loop and its callbacks run inside the JVM. The ledger must be new: entry ids count the
        latencies.

        Raises:
            JavaError: an add failed.
        """
        assert self.last_add_pushed == -1, "a load needs a ledger of its own"
        return _Load(self.vm, self.handle, adds, entry_bytes, window).run()

    def _add_chunk(self, payloads: Sequence[bytes]) -> list[int]:
        vm = self.vm
        # The MIME decoder skips the dot, and splitting skips no empty part at the end.
        text = ",".join("." + b64encode(payload).decode("ascii") for payload in payloads)
        futures = (
            vm.once(_comma)
            .splitAsStream(text)
            .map(vm.once(_decoded))
            .map(vm.function(vm.once(_append).bindTo(self.handle)))
            .collect(vm.once(_to_list))
        )
        # Adds end in order. To join them has no time limit, and Java may forget one for ever.
        try:
            _wait(vm, futures.get(futures.size() - 1))
        except JavaError as error:
            if error.name == "TimeoutException":
                raise  # Else the one that failed first tells why.
        ids = futures.stream().map(vm.once(_joined_future))
        return [int(entry_id) for entry_id in self._joined(ids).split(",")]

    def _payloads(self, entries: Any) -> list[bytes]:
        vm = self.vm
        try:
            found = vm.once(_spliterator)(entries.iterator(), 0)
            texts = vm.once(_stream)(found, False)
            texts = texts.map(vm.once(_payload)).map(vm.once(_encoded))
            return [
                b64decode(part) for part in self._joined(texts).replace(",", "").split(".")[:-1]
            ]
        finally:
            entries.close()

    def _joined(self, stream: Any) -> str:
        """Return the values of a stream as one text, so that one call brings all of them over."""
        texts = stream.map(self.vm.once(_as_text))
        joined: str = self.vm.call(texts.collect, self.vm.once(_joining))
        return joined


def _milliseconds(vm: JavaVM) -> Any:
    return vm.java.util.concurrent.TimeUnit.MILLISECONDS


# Functions for streams in the JVM

_TEXT: Final = "java.lang.String"


def _comma(vm: JavaVM) -> Any:
    return vm.java.util.regex.Pattern.compile(",")


def _append(vm: JavaVM) -> Any:
    future = "java.util.concurrent.CompletableFuture"
    return vm.virtual(f"{API}.WriteHandle", "appendAsync", future, "byte[]")


def _to_list(vm: JavaVM) -> Any:
    return vm.java.util.stream.Collectors.toList()


def _decoded(vm: JavaVM) -> Any:
    """Base64 to bytes."""
    decode = vm.virtual("java.util.Base64$Decoder", "decode", "byte[]", _TEXT)
    return vm.function(decode.bindTo(vm.java.util.Base64.getMimeDecoder()))


def _encoded(vm: JavaVM) -> Any:
    """Bytes to Base64 and a dot: else no entry and one empty entry would come over as the same."""
    encode = vm.virtual("java.util.Base64$Encoder", "encodeToString", _TEXT, "byte[]")
    concat = vm.virtual(_TEXT, "concat", _TEXT, _TEXT)
    handles = vm.java.lang.invoke.MethodHandles
    ended = handles.insertArguments(concat, 1, vm.array(vm.java.lang.Object, ["."]))
    encoder = encode.bindTo(vm.java.util.Base64.getEncoder())
    return vm.function(handles.filterReturnValue(encoder, ended))


def _payload(vm: JavaVM) -> Any:
    return vm.function(vm.virtual(f"{API}.LedgerEntry", "getEntryBytes", "byte[]"))


def _joined_future(vm: JavaVM) -> Any:
    future = "java.util.concurrent.CompletableFuture"
    return vm.function(vm.virtual(future, "join", "java.lang.Object"))


def _spliterator(vm: JavaVM) -> Any:
    return vm.java.util.Spliterators.spliteratorUnknownSize


def _stream(vm: JavaVM) -> Any:
    return vm.java.util.stream.StreamSupport.stream


def _joining(vm: JavaVM) -> Any:
    return vm.java.util.stream.Collectors.joining(",")


def _as_text(vm: JavaVM) -> Any:
    return vm.function(vm.static(_TEXT, "valueOf", _TEXT, "java.lang.Object"))


class _Load:
    """The loop of a load run, as method handles: what a dozen lines of Java would say."""

    def __init__(self, vm: JavaVM, handle: Any, adds: int, entry_bytes: int, window: int) -> None:
        self._vm = vm
        self._handles = vm.java.lang.invoke.MethodHandles
        self._adds, self._entry_bytes, self._window = adds, entry_bytes, window
        self._latencies = vm.gateway.new_array(vm.gateway.jvm.long, adds)
        self._permits = vm.java.util.concurrent.Semaphore(window)
        self._codes = vm.java.util.concurrent.ConcurrentHashMap.newKeySet()
        self._loop = self._make_loop(handle)

    def run(self) -> LoadResult:
        vm, system = self._vm, self._vm.java.lang.System
        begin_ns = system.nanoTime()
        vm.call(self._loop.invokeWithArguments, vm.java.util.ArrayList())
        self._permits.acquire(self._window)
        seconds = (system.nanoTime() - begin_ns) / 1e9
        if failures := [code for code in self._codes if code != 0]:
            raise vm.error(vm.bookkeeper.client.BKException.create(min(failures)))
        vm.java.util.Arrays.sort(self._latencies)
        return LoadResult(
            adds=self._adds,
            entry_bytes=self._entry_bytes,
            window=self._window,
            seconds=seconds,
            p50_ms=self._percentile_ms(0.5),
            p99_ms=self._percentile_ms(0.99),
            max_ms=self._percentile_ms(1.0),
        )

    def _percentile_ms(self, part: float) -> float:
        index = min(int(self._adds * part), self._adds - 1)
        return float(self._latencies[index]) / 1e6

    def _make_loop(self, handle: Any) -> Any:
        """For each of ``adds``: take a permit, note the time, send."""
        vm, handles = self._vm, self._handles
        send = vm.virtual(
            "org.apache.bookkeeper.client.LedgerHandle",
            "asyncAddEntry",
            "void",
            "byte[]",
            "org.apache.bookkeeper.client.AsyncCallback$AddCallback",
            "java.lang.Object",
        )
        payload = vm.gateway.new_array(vm.gateway.jvm.byte, self._entry_bytes)
        send = self._bind(send, handle, payload, self._make_callback())
        boxed = self._retyped(self._now(), "java.lang.Object")
        send_at = handles.collectArguments(send, 0, boxed)
        acquire = vm.virtual("java.util.concurrent.Semaphore", "acquire", "void")
        body = handles.foldArguments(send_at, acquire.bindTo(self._permits))
        body = handles.dropArguments(body, 0, self._types("int"))
        count = handles.constant(vm.type("int"), self._adds)
        return handles.countedLoop(count, None, body)

    def _make_callback(self) -> Any:
        """An AddCallback: store the latency under the entry id, keep the code, give a permit."""
        vm, handles = self._vm, self._handles
        ledger, anything = "org.apache.bookkeeper.client.LedgerHandle", "java.lang.Object"
        release = vm.virtual("java.util.concurrent.Semaphore", "release", "void")
        release = release.bindTo(self._permits)
        keep = vm.virtual("java.util.Set", "add", "boolean", anything).bindTo(self._codes)
        keep = self._retyped(keep, "void", "int")
        # (rc, ledger, entry id, begin): folds are made from the inside out.
        arguments = self._types("int", ledger, "long", anything)
        callback = handles.foldArguments(handles.dropArguments(release, 0, arguments), keep)
        store = handles.dropArguments(self._make_store(), 0, self._types("int", ledger))
        callback = handles.foldArguments(callback, store)
        return vm.function(callback, "org.apache.bookkeeper.client.AsyncCallback$AddCallback")

    def _make_store(self) -> Any:
        """(entry id, begin): store the time since ``begin`` under the entry id."""
        vm, handles = self._vm, self._handles
        elapsed = vm.static("java.lang.Math", "subtractExact", "long", "long", "long")
        elapsed = handles.collectArguments(elapsed, 0, self._now())
        store = handles.arrayElementSetter(vm.type("long[]")).bindTo(self._latencies)
        store = handles.collectArguments(store, 1, elapsed)
        # A refused add comes back as entry -1; nothing may be thrown for it, the loop would hang.
        at_least = vm.static("java.lang.Math", "max", "int", "int", "int")
        not_negative = handles.insertArguments(at_least, 1, self._objects(0))
        store = handles.filterArguments(store, 0, self._handle_array(not_negative))
        types = self._types("long", "java.lang.Object")
        wanted = vm.java.lang.invoke.MethodType.methodType(vm.type("void"), types)
        return handles.explicitCastArguments(store, wanted)

    def _now(self) -> Any:
        return self._vm.static("java.lang.System", "nanoTime", "long")

    def _bind(self, method: Any, *values: Any) -> Any:
        for value in values:
            method = method.bindTo(value)
        return method

    def _retyped(self, method: Any, result: str, *parameters: str) -> Any:
        invoke = self._vm.java.lang.invoke.MethodType
        return method.asType(invoke.methodType(self._vm.type(result), self._types(*parameters)))

    def _types(self, *names: str) -> Any:
        vm = self._vm
        return vm.array(vm.java.lang.Class, [vm.type(name) for name in names])

    def _handle_array(self, *handles: Any) -> Any:
        return self._vm.array(self._vm.java.lang.invoke.MethodHandle, handles)

    def _objects(self, *values: Any) -> Any:
        return self._vm.array(self._vm.java.lang.Object, values)


def java_load(
    vm: JavaVM,
    uri: str,
    *,
    adds: int,
    entry_bytes: int,
    window: int,
    v2: bool = False,
    ensemble_size: int = 3,
    write_quorum: int = 3,
    ack_quorum: int = 2,
    digest: str = "CRC32C",
    warm_up: int = 0,
    **conf: object,
) -> LoadResult:
    """Run a load through a Java client of its own, on a new ledger that is deleted afterwards.

    ``warm_up`` adds go to another ledger before, so that the compilers have done their work; a
    ``vm`` to measure with is made without ``FAST_JVM``.
    """
    with JavaClient(vm, uri, v2=v2, **conf) as client:
        for count in (warm_up, adds) if warm_up else (adds,):
            ledger = client.create_ledger(ensemble_size, write_quorum, ack_quorum, digest=digest)
            result = ledger.load(count, entry_bytes, window)
            ledger.close()
            client.delete_ledger(ledger.ledger_id)
    return result


def _wait(vm: JavaVM, future: Any) -> Any:
    # py4j finds no method that an interface gives by default when numbers must be widened or the
    # class is not public, and the blocking calls are of that kind: so the asynchronous ones serve.
    return JavaFuture(vm, future).result(_WAIT_S)


def _chunks(payloads: Iterable[bytes]) -> Iterator[list[bytes]]:
    chunk: list[bytes] = []
    size = 0
    for payload in payloads:
        chunk.append(payload)
        size += len(payload)
        if size >= _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _entry(entry: Any) -> JavaEntry:
    return JavaEntry(
        ledger_id=int(entry.getLedgerId()),
        entry_id=int(entry.getEntryId()),
        length=int(entry.getLength()),
        payload=bytes(entry.getEntryBytes()),
    )


def _metadata(vm: JavaVM, found: Any) -> JavaLedgerMetadata:
    stores_digest = found.hasPassword()
    return JavaLedgerMetadata(
        ledger_id=int(found.getLedgerId()),
        state=str(found.getState().name()),
        ensemble_size=int(found.getEnsembleSize()),
        write_quorum=int(found.getWriteQuorumSize()),
        ack_quorum=int(found.getAckQuorumSize()),
        last_entry_id=int(found.getLastEntryId()),
        length=int(found.getLength()),
        ensembles={
            int(first): tuple(str(bookie.getId()) for bookie in bookies)
            for first, bookies in _items(found.getAllEnsembles())
        },
        digest=str(found.getDigestType().name()) if stores_digest else None,
        password=bytes(found.getPassword()) if stores_digest else None,
        ctime_ms=int(found.getCtime()),
        custom={str(k): bytes(v) for k, v in _items(found.getCustomMetadata())},
        format_version=int(found.getMetadataFormatVersion()),
    )


def _items(java_map: Any) -> Iterator[tuple[Any, Any]]:
    # Not by key: a small number goes back as an Integer, and is not a key where Longs are.
    for item in java_map.entrySet():
        yield item.getKey(), item.getValue()
