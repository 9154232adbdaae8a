"""Loops and allocations whose length is not a constant, and why no peer or file can grow them.

``test_sizes.py`` finds them in all packages and holds this list against what it finds. What stands
here was looked at; what is new has to be, before it comes here.
"""

from __future__ import annotations

from typing import Final

_BUFFER = "copies bytes that are in memory"
_BUFFER_PARTS = "at most one for four bytes that are in memory"
_LAZY = "lazy, and each step waits for a bookie or a disk; the caller ends it"
_OURS = "a number of ours, counted up by what we sent"
_QUORUM = "a quorum or an ensemble: as many as the metadata lists bookies"
_SETTING = "a setting or an option of who runs it"
_FILE = "the size of a file that is read through anyway"
_SCREEN = "the size of the screen or of a column"
_ITEMS = "as many as there are in memory"
_BLOCK = "less than one block of a file format"

REVIEWED: Final = {
    # wire
    "take_acks_v2: bytes(buffer[:RUN_BYTES_MAX])": _BUFFER,
    "take_acks_v3: bytes(buffer[:RUN_BYTES_MAX])": _BUFFER,
    "FrameBuffer.next_payload: bytes(view[_PREFIX_BYTES:end])": _BUFFER,
    "_Digester.verify: bytes(payload)": _BUFFER,
    "_spans: range(packets.count)": "Packets.split has counted them in the bytes",
    "_spans: range(LENGTH.size, len(sized), step)": _BUFFER_PARTS,
    "_spans: range(step, len(sized) + 1, step)": _BUFFER_PARTS,
    "EntryBatch.entry_ids: range(self.first_entry_id, self.first_entry_id + len(self))": _ITEMS,
    "Packets.__iter__: range(self.count)": "Packets.split has counted them in the bytes",
    "EntryList.__iter__: range(first, last + 1, period or 1)": (
        "lazy, and for tests: bkclient.quorum.replica_counts uses runs and EntrySet"
    ),
    "EntryList.__iter__: range(start, start + size)": "as above",
    "StoredEntryReads.runs_by_page: bytes(map(bool, page))": "a page in memory, 1,024 slots",
    "decode_entry_list: range(count)": "checked against the bytes before",
    "decode_request: bytes(payload)": _BUFFER,
    "decode_response: bytes(payload)": _BUFFER,
    "encode_varint: bytes((value,))": "one byte",
    "encode_varint: bytes((value & 127 | 128, value >> 7))": "two bytes",
    "encode_varint: bytes((value & 127 | 128, value >> 7 & 127 | 128, value >> 14))": "three bytes",
    "encode_varint: bytes(out)": _BUFFER,
    # bkclient
    "read_at_most: bytes(data)": _BUFFER,
    "Records._walk: bytes(data[at:at + HEAD_BYTES - len(head)])": "at most HEAD_BYTES",
    "PendingAdds.push_many: range(self._next, self._next + count)": _OURS,
    "PendingAdds._confirm: range(first, head)": _OURS,
    "AddQuorum._stored_change: range(self._size)": _QUORUM,
    "_Search.__init__: range(size)": _QUORUM,
    "Coverage.covered: range(size)": _QUORUM,
    "_write_set: range(write_quorum)": _QUORUM,
    "_short: range(first, last + 1, period)": "fewer than PERIOD_RUNS_MIN runs",
    "write_sets_of: range(ensemble_size)": _QUORUM,
    "LedgerFragment.entries_at_any: range(self.first, self.last + 1)": _LAZY,
    "_striped: range(max(first, fragment.first), min(last, fragment.last) + 1)": _LAZY,
    "LedgerFragment.count_at: range(self.last - rest + 1, self.last + 1)": _QUORUM,
    "LedgerFragment.write_sets: range(self.first, min(self.last, self.first + size - 1) + 1)": (
        _QUORUM
    ),
    "LedgerFragment.ends_at: "
    "range(self.first, min(self.last, self.first + len(self.ensemble) - 1) + 1)": _QUORUM,
    "LedgerFragment.ends_at: "
    "range(self.last, max(self.first, self.last - len(self.ensemble) + 1) - 1, -1)": _QUORUM,
    "read_regular: bytes(data)": _BUFFER,
    "samples: range(first + 1, last)": _LAZY,
    "_one_of_each_part: range(first, last - size - 1, size)": _LAZY,
    "WeightedDraw.__call__: range(count)": _QUORUM,
    "runs: range(first, last + 1, period or last - first + 1)": "RUNS_MAX is checked before",
    "count_at: range(last - rest + 1, last + 1)": _QUORUM,
    "LogRecord.indexes: range(self.trimmed, self.next_index)": _ITEMS,
    "LedgerList.append_ledger: range(tries)": "a constant of the caller's",
    "TreeLedgerIds.skip_ledger_ids: range(0, missing, _SKIPPED_AT_ONCE)": (
        "_SKIPPED_MAX, or _FLAT_SKIPPED_MAX; asynchronous"
    ),
    "TreeLedgerIds.skip_ledger_ids: range(count)": "_SKIPPED_AT_ONCE at most",
    "answers_together: range(count)": "TOGETHER at most: the caller's number",
    "names_of: range(count)": "each takes 4 bytes of the answer at least, or it ends",
    "Digits.last_below: '9' * digits_below": "digits of a path: 19 at most",
    "AddPipeline._confirm: range(command.first, last + 1)": _OURS,
    "BookiePool.txn_ids: range(first, first + count)": _OURS,
    "BookiePool.pending: range(self.config.channels_per_bookie)": _SETTING,
    "read_range: range(following, end + 1)": "a chunk; lazy beside",
    "AnyLac.__init__: range(ensemble_size)": _QUORUM,
    "_write_and_read: range(entries)": "a constant, or an option of who runs it",
    "spread: combinations(range(len(ensemble)), count)": "ensembles to be rearranged are small",
    "spread: permutations(free, count)": "the first that fits ends it; as above",
    "Topology.learn: range(0, len(wanted), self._arguments_max)": _ITEMS,
    "check_cluster: range(entries)": _SETTING,
    "RackAwarePlacement._arrange: range(needed - 1, 0, -1)": _QUORUM,
    "ZoneAwarePlacement._arrange: range(most, least - 1, -1)": _QUORUM,
    # bookied
    "_Row.__init__: [_LENGTH.pack(packet_bytes), b''] * width": "one of WIDTHS",
    "require_enough_threads: range(THREADS_MIN + config.read_threads)": _SETTING,
    "_run_v2: range(first, entry_id, step)": _ITEMS,
    "_run_v3: range(entry_id, entry_id + len(requests) * step, step)": _ITEMS,
    ": bytes([0] * 128 + [1] * 128)": "256 bytes",
    "count_replicas: range(fragment.first, fragment.last + 1, STEP_ENTRIES)": (
        "metadata; lazy, and the reactor has its turn after each step"
    ),
    "_counted: range(fragment.first, fragment.last + 1)": "STEP_ENTRIES at most",
    "AnswerBody.resumeProducing: bytes(chunk)": _BUFFER,
    "cut_rows: range(begin, last, step)": "at most ALIKE_MAX records that are in memory",
    "DirectAppendFile.write: bytes(self._view[:fill])": _BUFFER,
    "DirectAppendFile.flush: bytes(BLOCK_BYTES - self._fill)": _BLOCK,
    "_Replay.cut_torn_ends: file.truncate(end)": "less than the file has",
    "LogFile.give_up: cutting.truncate(kept)": "what a file of ours has had",
    ": bytes((v3.FIRST_BYTE,))": "one byte",
    "copy_file: range(0, source.size(), COPY_BYTES)": _FILE,
    "EntryLogReader.read_rows_now: bytearray(max(0, size))": "the room of an answer",
    "EntryLogReader.read_now: bytes(self._one[begin:begin + size])": _BUFFER,
    "EntryLogReader._copy: bytes(target[end:at + min(needed, count)])": _BUFFER,
    "FastReads._answer_stored: bytes(sheet[:place])": _BUFFER,
    "write_change: file.truncate(size)": "what the file has had",
    "_grow_one: file.truncate(max(file.size(), _end(write.change)))": "pages that are in memory",
    "copy_index: copy.truncate(layout.page_offset(page_count))": "a hole, as the original has it",
    "LedgerPages.take: range(0, max(1, len(numbers)), pages_max)": _ITEMS,
    "changed_slots: range(begin, end)": "64 slots of a page",
    "header: HEADER.pack(MAGIC, version).ljust(HEADER_BYTES[version], b'\\x00')": "512 bytes",
    "padding: bytes(size)": _BLOCK,
    "inner_bytes: bytes(body[_INNER_AT:_INNER_AT + size])": _BUFFER,
    "_lacking: range(first, last + 1)": "each is a record of a journal that was read",
    "GroupReader._chunks: range(0, size, CHUNK_BYTES)": "inside the file: checked before",
    "file_start: (checked + crc32c(checked).to_bytes(4, 'big')).ljust(size, b'\\x00')": _BLOCK,
    "group_head: bytes(fill)": _BLOCK,
    "OfflineBookie.marks: range(journals_count)": _SETTING,
    "journal_entry: bytes(content)": _BUFFER,
    "marks: range(journals_count)": _SETTING,
    "JournalMarks.read: range(journals)": _SETTING,
    # bkctl and shell
    "_JournalBench.write: range(total)": _SETTING,
    "payloads: os.urandom(size)": _SETTING,
    "Canvas.fitted: ' ' * (width - display_width(text))": _SCREEN,
    "Canvas.bar: '█' * whole": _SCREEN,
    "Canvas.bar: '░' * (width - len(filled))": _SCREEN,
    "Canvas.bar: '#' * round(share * width)": _SCREEN,
    "Canvas.bar: '.' * (width - len(filled))": _SCREEN,
    "Canvas.sparkline: ''.join(map(level, shown)).rjust(width)": _SCREEN,
    "Canvas.chart: range(height)": _SCREEN,
    "Canvas.chart: [''] * (height - 2)": _SCREEN,
    "Canvas.chart: text.rjust(room)": _SCREEN,
    "Canvas.chart: ' ' * (room + 1)": _SCREEN,
    "Canvas.chart: ' ' * (room + 2)": _SCREEN,
    "Canvas.chart: right.rjust(columns - display_width(left))": _SCREEN,
    "Canvas._braille: [0] * columns": _SCREEN,
    "Canvas._braille: range(height)": _SCREEN,
    "Canvas._braille: "
    "range(min(y, y if before is None else before), max(y, before or y) + 1)": _SCREEN,
    "_stars: [' '] * columns": _SCREEN,
    "_stars: range(height)": _SCREEN,
    "_resampled: [None] * count": _SCREEN,
    "_resampled: range(count)": _SCREEN,
    "_rows: ' ' * (room - 2 - names - 1 - _STATE_WIDTH - 1 - width)": _SCREEN,
    "MetadataContents.lines: [f\"{counted(self.marks, 'mark')} of ledgers that lack replicas\"]"
    " * bool(self.marks)": "one or none",
    "_read_next_v2: range(at, last_start + 1, _READ.size)": "inside what was received",
    "_repeated: pa.repeat(pa.scalar(value, kind), len(batch))": _ITEMS,
    "_extremes: range(footer.num_row_groups)": "the footer of a file that was just written",
    "_verify_rows: range(r.first, r.last + 1)": "lazy, and each step is a row of a file",
    "read_ranges: range(_ready(ahead))": _ITEMS,
    "_log_ledgers: range(at, min(at + ahead, record.next_index))": "ledgers that the record lists",
    "Sink._value: bytes(value)": "the value of a binary column",
    "_LengthPrefixed.feed: bytes(self._buffer[at - size:at])": _BUFFER,
    "_WholeInput.end: bytes(self._buffer)": _BUFFER,
    "_Chunks.feed: range(0, whole, self._size)": _ITEMS,
    "CopiesOfBookie.entries: range(first, last + 1)": _LAZY,
    "print_compared.found: range(first, last + 1)": _LAZY,
    "_pieces: range(0, len(ids), size)": _ITEMS,
    "labels: itertools.product(string.ascii_uppercase, repeat=size)": _ITEMS,
    "_cells: range(0, len(bookies), at_once)": _ITEMS,
    "_cell: ' ' * (width - 1)": _SCREEN,
    "bookie_ports: range(base, 65536)": "ports",
    "_GlobalOption.words: (name,) * int(value)": _SETTING,
    "free_port: range(_FIRST_PORT, _first_outgoing_port())": "ports",
    "free_port: range(_TRIES if ports else 0)": "a constant or none",
    "Page.synopsis: ['.br'] * (number > 0)": "one or none",
    "_pieces: range(count + 1)": "at most PIECES_MAX",
    "Table._line: ' ' * (width - display_width(text))": _SCREEN,
    "TopState.lines: [''] * (height - 1 - len(body))": _SCREEN,
    "bar_text: f' {text}'[:columns].ljust(columns)": _SCREEN,
    "_to_first_column: ' ' * (columns - 1)": _SCREEN,
    "_batch: range(count)": "checked against the bytes of the batch's payload",
    "_batch: range(first_index, first_index + count)": "lazy, and as many as the batch has values",
    "_rows: range(found.numMessagesInBatch)": "checked against the bytes of the batch's payload",
    "joined_messages: range(count)": "checked against the bytes of the batches' payloads",
    "usual_batch: range(count)": "checked against the bytes of the batch's payload",
    "usual_batch: range(number)": "below count",
    "EvenNumbers.__iter__: range(self.size)": "at most 8, by the pattern of the metadata",
    "Moves.pieces: range(0, len(self._words), size)": _ITEMS,
    "_even_numbers: range(numbers.size)": "at most 8, by the pattern of the metadata",
    "_even_numbers: pa.repeat(pa.scalar(0, pa.int64()), len(numbers))": _ITEMS,
    "EvenNumbers.is_even: range(self.size)": "at most 8, by the pattern of the metadata",
    "uniform_batch: range(id_at)": "at most 10, by the pattern of the metadata",
    ": bytes(range(128, 256))": "a constant",
    "_each: [one.common.get(name, DEFAULTS[name])] * one.count": _ITEMS,
    "EntryMessages.messages: range(self.count)": _ITEMS,
    "EntryMessages.column: [self.common.get(name, DEFAULTS[name])] * self.count": _ITEMS,
    "_cramjam.decode: bytearray(size)": "decompress refuses sizes above MESSAGE_BYTES_MAX",
    "_cramjam.decode: bytes(out)": "a copy of what was unpacked",
    "_cramjam.decode: bytes(out[:filled])": "a copy of what was unpacked",
    "parts_of: range(count)": "decode_partitions refuses more than PARTITIONS_MAX",
    "add_bookies: range(len(known.ports) + 1, len(known.ports) + 1 + bookies - had)": (
        "bookies: an option, at most 100"
    ),
}
"""By function and expression, as ``ast.unparse`` writes it."""
