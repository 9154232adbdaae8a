"""Exports of ledgers to Parquet: plan, copy, verify, and move into place.

By default each ledger becomes ``DIR/ledger=<id>/part-*.parquet``. Tasks write below a hidden name.
Their files are compared with the plan and with the files' footers. Then one commit moves all files
into place and records the run: see ``target.commit``. A later export copies new entries.
"""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from bkclient.client import Client
from bkclient.config.client import ClientConfig
from bkclient.errors import NoSuchLedgerError
from bkctl.commands.export.engines import LocalEngine, SparkEngine, copy_readable
from bkctl.commands.export.errors import (
    ArrowMissingError,
    EarlierFilesError,
    ExportBusyError,
    ExportReadError,
    ExportVerifyError,
    ExportWriteError,
    ForeignFilesError,
)
from bkctl.commands.export.interrupts import uninterrupted
from bkctl.commands.export.outcome import ExportedLedger, ExportReport, UnreadableLedger
from bkctl.commands.export.spark.session import spark_session
from bkctl.commands.export.target import manifest, new_since_last
from bkctl.commands.export.target.delta_table import check_library, check_table, listed_files
from bkctl.commands.export.target.export_commit import (
    COMMIT_PATH,
    Commit,
    commit,
    gather,
    load_tree,
    moves_of,
    staging,
    sweep_staging,
)
from bkctl.commands.export.target.file_systems import TargetFiles, open_files
from bkctl.commands.export.target.manifest import ManifestError, TargetTree
from bkctl.commands.export.target.new_since_last import ExportChange
from bkctl.commands.export.target.verify_files import (
    check_footers,
    check_ranges,
    damaged_files,
    verify_files,
)
from bkctl.commands.export.task.copy import ReadTotals, open_listener
from bkctl.commands.export.task.ledger_ends import (
    check_offloaded,
    chosen_extents,
    read_extents,
    stored_ledgers,
)
from bkctl.commands.export.task.ledger_selection import LedgerChoice
from bkctl.commands.export.task.parquet_file import CopyJob, WrittenFile
from bkctl.commands.export.task.partitions import LedgerExtent, cut
from bkctl.output.units import counted
from bkctl.output.views import evolve
from bkctl.session.safety_checks import NAMED_MAX, some_names
from wire.codes import LedgerState
from wire.ids import LedgerId

if TYPE_CHECKING:
    from bkclient.blocking import BlockingClient

LOCAL_BYTES_MAX: Final = 4 * 1024 * 1024 * 1024
"""Largest number of payload bytes that an export without a master copies without Spark."""

Progress = Callable[[ReadTotals, "int", "int"], None]
"""A function that gets the progress and the totals of entries and bytes, a few times a second."""


@attrs.frozen(kw_only=True)
class ExportOptions:
    """The options of an export.

    ``layout`` is one of ``LAYOUTS``, ``table_format`` one of ``TABLE_FORMATS``; None means the
    value of earlier exports to the target, or ``ledger`` and Parquet in a new target. ``engine`` is
    ``local``, ``spark`` or None. None means Spark for a ``master`` and for more than
    ``LOCAL_BYTES_MAX``. With ``again``, unchanged ledgers are written again, too. ``verify`` reads
    all new files before they are moved into place. With ``verify_earlier`` it then reads the files
    of earlier exports of the selected ledgers, and replaces no damaged files. ``skip_unreadable``
    omits unreadable ledgers, and reports them; the next export tries them again. ``since_last``
    uses the choice of earlier exports if the options choose nothing, and else stores the choice for
    later exports.
    """

    layout: str | None = None
    table_format: str | None = None
    compression: str = "zstd"
    engine: str | None = None
    master: str | None = None
    recover: bool = False
    again: bool = False
    verify: bool = False
    verify_earlier: bool = True
    skip_unreadable: bool = False
    since_last: bool = False
    spark_options: Mapping[str, str] = attrs.field(factory=dict)


def export_ledgers(
    uri: str,
    ledger_ids: Sequence[int] | LedgerChoice | None,
    target: str,
    *,
    options: ExportOptions | None = None,
    progress: Progress | None = None,
    spark: Any = None,
    config: ClientConfig | None = None,
    **more: Any,
) -> ExportReport:
    """Export ledgers to Parquet under ``target``, a directory or a URI that pyarrow can write.

    Exports ledgers that are new or have grown since the last export to ``target``; with ``again``,
    all ledgers. ``ledger_ids`` are ids or a ``LedgerChoice``; None means all ledgers of the
    cluster. Blocks until the export ends, and calls ``progress`` on the calling thread. ``spark``
    is a running session to use; without it, ``options`` choose the engine. ``more`` are fields of
    ``ExportOptions``. ``config`` has the client's settings, for tasks too: the files that it names,
    with keys and passwords, are read on each of Spark's hosts.

    Raises:
        NoSuchLedgerError: one of the ledgers is missing.
        ExportReadError: an entry could not be read (the message names ledger, entry and bookie), or
            a task could not connect (the message names its host).
        ExportWriteError: the target cannot be written.
        ExportVerifyError: the files do not match the plan; nothing was published.
        EarlierFilesError: with ``verify``, files of earlier exports do not match their record; new
            entries were exported.
        ForeignFilesError: the target has files of other programs.
        TableChangedError: the Delta table in the target was changed by other programs.
        ExportBusyError: another export to ``target`` is in progress.
        ArrowMissingError: pyarrow is not installed.
        SparkMissingError: PySpark is not installed, and the export needs it.
        DeltaMissingError: the library for Delta tables is not installed.
    """
    _check_pyarrow()
    from bkclient.blocking import BlockingClient

    options = attrs.evolve(options or ExportOptions(), **more)
    if options.table_format == manifest.DELTA:
        check_library()
    config = config or ClientConfig()
    with BlockingClient(uri, config=config) as client:
        cluster = client.call(lambda client: client.store.instance_id()) or "unknown"
        choice = _choice_of(ledger_ids)
        are_named = _are_named(choice, options)
        # Missing ledgers are reported before any file is made.
        if are_named:
            planned = client.call(_plan, choice, options, TargetTree())
        elif choice.log is not None or choice.topic is not None:
            client.call(choice.find)
        with _opened(target) as (files, tree):
            chosen = _chosen(choice, options, tree)
            if not are_named:
                planned = client.call(_plan, chosen, options, tree)
            run = _ExportRun(client, uri, config, cluster, files, tree, options, chosen)
            report = run.export(planned, progress or (lambda *_: None), spark)
            return report if chosen is choice else evolve(report, choice=shlex.join(chosen.words()))


def _chosen(choice: LedgerChoice, options: ExportOptions, tree: TargetTree) -> LedgerChoice:
    """Return the choice of a run: the caller's, or that of earlier exports."""
    return tree.choice or choice if options.since_last and choice.is_everything else choice


def _is_new(choice: LedgerChoice | None, options: ExportOptions, tree: TargetTree) -> bool:
    """Return whether this run changes the choice of later exports without a choice."""
    return options.since_last and choice != tree.choice


def _plans_all(choice: LedgerChoice, options: ExportOptions) -> bool:
    """Return whether completely exported ledgers are planned, too.

    Named ledgers are always planned, and all ledgers if their earlier files are verified.
    """
    looks_at_all = options.again or (options.verify and options.verify_earlier)
    return looks_at_all or _are_named(choice, options)


def _are_named(choice: LedgerChoice, options: ExportOptions) -> bool:
    return choice.ranges is not None and not options.skip_unreadable


def plan_export(
    uri: str, choice: LedgerChoice, target: str, *, options: ExportOptions, config: ClientConfig
) -> tuple[ExportChange, Mapping[int, str]]:
    """Return the changes that ``export_ledgers`` would make, and unreadable ledgers.

    The ledgers are mapped to the reasons. Nothing is written, and no ledger is recovered: an open
    ledger ends at its current LAC.

    Raises:
        ExportBusyError: an export to ``target`` is in progress, or was interrupted.
        BookKeeperError: as ``export_ledgers``, except for errors that only copying finds.
    """
    _check_pyarrow()
    from bkclient.blocking import BlockingClient

    options = attrs.evolve(options, recover=False)
    if options.table_format == manifest.DELTA:
        check_library()
    try:
        files = open_files(target)
        if files.exists(COMMIT_PATH):
            raise ExportBusyError(f"an export to {target} is in progress, or was interrupted")
        tree = _loaded(files, finish=False)
        with BlockingClient(uri, config=config) as client:
            cluster = client.call(lambda client: client.store.instance_id()) or "unknown"
            choice = _chosen(choice, options, tree)
            planned = client.call(_plan, choice, options, tree)
            run = _ExportRun(client, uri, config, cluster, files, tree, options, choice)
            return run.plan(planned), planned.unreadable
    except OSError as error:
        raise ExportReadError(f"{target} cannot be read: {error}") from error


def _check_pyarrow() -> None:
    try:
        import pyarrow as pa  # noqa: F401
    except ImportError as error:
        raise ArrowMissingError("export needs pyarrow, which is not installed here") from error


def _choice_of(ledger_ids: Sequence[int] | LedgerChoice | None) -> LedgerChoice:
    if isinstance(ledger_ids, LedgerChoice):
        return ledger_ids
    if ledger_ids is None:
        return LedgerChoice()
    return LedgerChoice(ranges=tuple((number, number) for number in ledger_ids))


@attrs.frozen
class _Plan:
    """The extents of ledgers, and the omitted ledgers with the reasons.

    ``deleted`` are ledgers of earlier exports that were open then, and are deleted now.
    """

    extents: list[LedgerExtent]
    unreadable: dict[int, str]
    deleted: list[LedgerExtent]


async def _plan(
    client: Client, choice: LedgerChoice, options: ExportOptions, tree: TargetTree
) -> _Plan:
    """Return the ledgers of a choice, without completely exported ledgers."""
    unreadable: dict[int, str] = {}
    noted = unreadable if options.skip_unreadable else None
    complete = {number for number, extent in tree.ledgers.items() if extent.is_closed}
    await check_offloaded(client, choice, complete, noted)
    done = set[int]() if _plans_all(choice, options) else complete
    extents = await chosen_extents(
        client,
        choice,
        done,
        recover=options.recover,
        unreadable=noted,
        unchanged=lambda one: one.ledger_id in done and not new_since_last.is_another(tree, one),
    )
    if choice.ranges and not extents and not options.skip_unreadable:
        raise NoSuchLedgerError(choice.nothing_found())
    deleted: list[LedgerExtent] = []
    if options.since_last:
        deleted = await _deleted(client, tree, {*unreadable, *(one.ledger_id for one in extents)})
        unreadable |= {one.ledger_id: new_since_last.deleted_early(one) for one in deleted}
    return _Plan(extents, unreadable, deleted)


async def _deleted(
    client: Client, tree: TargetTree, looked_at: Container[int]
) -> list[LedgerExtent]:
    """Return the ledgers that were open when they were exported, and do not exist any more."""
    left = {
        LedgerId(number): extent
        for number, extent in tree.ledgers.items()
        if not extent.is_closed and number not in looked_at
    }
    async for stored in stored_ledgers(client, list(left)):
        del left[stored.ledger_id]
    return list(left.values())


def _loaded(files: TargetFiles, *, finish: bool = True) -> TargetTree:
    """Return the tree of ``load_tree``.

    Raises:
        ManifestError: the files do not have each entry of their ledgers once: a record was edited.
    """
    tree = load_tree(files, finish=finish)
    try:
        check_ranges(tree.ledgers.values(), tree.files.values())
    except ExportVerifyError as error:
        where = f"{files.uri}/{manifest.FOLDER}"
        raise ManifestError(f"the records in {where} contradict each other: {error}") from error
    return tree


def _as_closed(extent: LedgerExtent) -> LedgerExtent:
    """Return the extent of a deleted ledger as it is recorded: nothing more will be exported."""
    return attrs.evolve(extent, state=LedgerState.CLOSED.name)


@contextlib.contextmanager
def _opened(target: str) -> Iterator[tuple[TargetFiles, TargetTree]]:
    """Lock the target, clean up after killed runs, and yield its files and its tree."""
    try:
        files = open_files(target)
        files.make_root()
        with contextlib.ExitStack() as stack:
            with _not_busy(files):
                stack.enter_context(files.locked())
            with uninterrupted():
                tree = _loaded(files)
                sweep_staging(files)
            yield files, tree
    except OSError as error:
        raise ExportWriteError(f"{target} cannot be written: {error}") from error


@contextlib.contextmanager
def _not_busy(files: TargetFiles) -> Iterator[None]:
    try:
        yield
    except BlockingIOError as error:
        # The kernel's error does not name the holder.
        who = f": {error}" if error.errno is None else ""
        raise ExportBusyError(f"another export writes to {files.uri}{who}") from error


def _check_recopied(client: BlockingClient, tree: TargetTree, change: ExportChange) -> None:
    """Check that ledgers in replaced shared files are still the exported ledgers.

    Raises:
        ExportReadError: a ledger was deleted or replaced.
    """
    ids = sorted({part.ledger_id for part in change.recopied})
    reasons: dict[int, str] = {}
    for extent in client.call(read_extents, ids, unreadable=reasons):
        if (reason := new_since_last.contradiction(tree, extent)) is not None:
            reasons[extent.ledger_id] = reason
    if reasons:
        raise ExportReadError(
            f"shared files cannot be copied again without all their ledgers: "
            f"{some_names(reasons.values())}"
        )


class _ExportRun:
    """One export to a locked directory."""

    def __init__(
        self,
        client: BlockingClient,
        uri: str,
        config: ClientConfig,
        cluster: str,
        files: TargetFiles,
        tree: TargetTree,
        options: ExportOptions,
        choice: LedgerChoice,
    ) -> None:
        self._choice = choice if options.since_last or not tree.run else tree.choice
        self._client, self._uri, self._config, self._cluster = client, uri, config, cluster
        self._files, self._tree, self._options = files, tree, options
        self._layout = options.layout or tree.layout or "ledger"
        self._table_format = options.table_format or tree.table_format or manifest.PARQUET
        if self._is_delta:
            check_library()

    def export(self, plan: _Plan, progress: Progress, spark: Any) -> ExportReport:
        unreadable = plan.unreadable
        sizes = self._sizes()
        self._check_target(sizes)
        extents = self._exportable(plan)
        earlier = self._earlier(extents)
        change = self._change(extents, sizes)
        with staging(self._files) as staged:
            written: list[WrittenFile] = []
            if any(part.entries for part in change.parts):
                written = self._copied(change.parts, staged, progress, spark, unreadable)
            if unreadable:
                extents = [one for one in extents if one.ledger_id not in unreadable]
                change = self._found_changes(extents, sizes)
            change = attrs.evolve(change, noted=(*change.noted, *map(_as_closed, plan.deleted)))
            self._check(change, written, staged)
            if change.parts or change.noted or _is_new(self._choice, self._options, self._tree):
                self._commit(change, written, staged, sizes)
        damaged = damaged_files(self._files, earlier, sizes)
        report = self._report(extents, change, unreadable, sizes, written, damaged)
        if self._options.verify:
            intact = len(written) + len(earlier) - len(damaged)
            report = evolve(report, verified_files=intact)
        if damaged:
            raise EarlierFilesError(
                f"{counted(len(damaged), 'file')} of earlier exports missing or changed: "
                f"{some_names(damaged.values())}",
                report,
                self._copying_again(list(damaged)[:NAMED_MAX]),
            )
        return report

    def plan(self, plan: _Plan) -> ExportChange:
        """Check that the target belongs to this export, and return the changes to make.

        Raises:
            ForeignFilesError, TableChangedError, ExportVerifyError: the target does not match.
        """
        sizes = self._sizes()
        self._check_target(sizes)
        return self._change(self._exportable(plan), sizes)

    def _exportable(self, plan: _Plan) -> list[LedgerExtent]:
        """Return the ledgers that can be exported; with ``skip_unreadable`` note the others."""
        options = self._options
        if options.skip_unreadable and not options.again:
            for extent in plan.extents:
                if (reason := new_since_last.contradiction(self._tree, extent)) is not None:
                    plan.unreadable[extent.ledger_id] = reason
        return [one for one in plan.extents if one.ledger_id not in plan.unreadable]

    def _check_target(self, sizes: Mapping[str, int]) -> None:
        tree, where = self._tree, self._files.uri
        new_since_last.check_ours(tree, self._cluster, self._layout, self._table_format, where)
        new_since_last.check_strangers(tree, sizes, where)

    def _change(self, extents: Sequence[LedgerExtent], sizes: Mapping[str, int]) -> ExportChange:
        change = self._found_changes(extents, sizes)
        if self._is_delta:
            check_table(self._files, self._tree, change.removed)
        _check_recopied(self._client, self._tree, change)
        return change

    def _found_changes(
        self, extents: Sequence[LedgerExtent], sizes: Mapping[str, int]
    ) -> ExportChange:
        options = self._options
        are_shared_kept = self._layout != "ledger" and options.skip_unreadable
        if options.again and are_shared_kept and self._tree.files:
            raise ForeignFilesError(
                "--since-last writes no shared file again: give the ids of ledgers with --again"
            )
        return new_since_last.find_changes(
            self._tree,
            extents,
            sizes,
            again=options.again,
            replaces_lost=not (options.verify or are_shared_kept),
        )

    @property
    def _is_delta(self) -> bool:
        return self._table_format == manifest.DELTA

    def _sizes(self) -> dict[str, int]:
        """Return the sizes of the files that count for the export, by path.

        A Delta table decides which files count. Other programs may change the table: their files,
        and files of this export that they rewrote and removed, are ignored.
        """
        if self._is_delta and self._tree.run:
            return {file.path: file.size for file in self._tree.files.values()}
        return self._files.sizes()

    def _copied(
        self,
        todo: Sequence[LedgerExtent],
        staged: str,
        progress: Progress,
        spark: Any,
        unreadable: dict[int, str],
    ) -> list[WrittenFile]:
        """Copy all of ``todo`` below ``staged``; note unreadable ledgers."""
        staging_files = self._files.child(staged)
        with self._engine(todo, spark) as engine, open_listener(engine.progress_host) as listener:
            tasks = cut(
                new_since_last.in_order(self._layout, todo), engine.cores, folder_of=self._folder_of
            )
            job = CopyJob(
                self._uri,
                self._config,
                staging_files.uri,
                self._cluster,
                self._options.compression,
                listener.address,
                self._options.skip_unreadable,
            )
            entries, size = sum(e.entries for e in todo), sum(e.length for e in todo)
            return copy_readable(
                lambda some: engine.run(
                    job, some, lambda: progress(listener.done(), entries, size)
                ),
                tasks,
                unreadable,
            )

    def _earlier(self, extents: Sequence[LedgerExtent]) -> list[WrittenFile]:
        """Return the files of earlier exports to verify: files of these ledgers that stay."""
        options, tree = self._options, self._tree
        if options.again or not (options.verify and options.verify_earlier and tree.files):
            return []
        ids = {one.ledger_id for one in extents if not new_since_last.is_another(tree, one)}
        # Other programs may have rewritten a Delta table: files outside the table do not count.
        listed = listed_files(self._files.uri) if self._is_delta else tree.files
        return [
            file
            for file in tree.files.values()
            if file.path in listed and any(r.ledger_id in ids for r in file.ranges)
        ]

    def _copying_again(self, damaged: Sequence[WrittenFile]) -> str:
        """Return the hint with the command that copies the ledgers in these files again."""
        # One ledger of a shared file is enough to copy all its ledgers.
        ids = " ".join(map(str, dict.fromkeys(file.ranges[0].ledger_id for file in damaged)))
        where = shlex.quote(self._files.uri)
        return f"copy again with `bkctl export {ids} --to {where} --again`"

    def _check(self, change: ExportChange, written: Sequence[WrittenFile], staged: str) -> None:
        """Compare the files with the plan, before they are moved into place."""
        staging_files = self._files.child(staged)
        check_ranges(change.parts, written)
        check_footers(staging_files, written)
        if self._options.verify:
            verify_files(staging_files, written)

    def _folder_of(self, extent: LedgerExtent) -> str:
        folder = new_since_last.folder_of(self._layout, extent)
        if self._layout == "ledger":
            return folder
        run = f"run={self._tree.run + 1}"
        return f"{run}/{folder}" if folder else run

    @contextlib.contextmanager
    def _engine(
        self, todo: Sequence[LedgerExtent], spark: Any
    ) -> Iterator[SparkEngine | LocalEngine]:
        options = self._options
        is_large = sum(extent.length for extent in todo) > LOCAL_BYTES_MAX
        name = options.engine or ("spark" if options.master or spark or is_large else "local")
        if name == "local":
            yield LocalEngine()
        elif spark is not None:
            yield SparkEngine(spark)
        else:
            master = options.master or "local[*]"
            with spark_session(master, options=options.spark_options) as session:
                yield SparkEngine(session)

    def _commit(
        self,
        change: ExportChange,
        written: Sequence[WrittenFile],
        staged: str,
        sizes: Mapping[str, int],
    ) -> None:
        tree = self._tree
        record = tree.next_record(
            cluster=self._cluster,
            layout=self._layout,
            now_ms=time.time_ns() // 1_000_000,
            ledgers=[*(new_since_last.whole(tree, part) for part in change.todo), *change.noted],
            files=written,
            removed=change.removed,
            table_format=self._table_format,
            choice=self._choice,
        )
        existing, by_file = frozenset(self._files.names()), self._files.is_object_store
        added = new_since_last.added_paths(
            self._layout, record.run, written, existing, by_file=by_file
        )
        with uninterrupted():
            with _not_busy(self._files):
                self._files.check_locked()
            ready = gather(self._files, staged, [file.path for file in written])
            away = () if self._is_delta else [path for path in change.removed if path in sizes]
            moves = moves_of(staged, ready, added, away)
            paths = tuple(file.path for file in written) if self._is_delta else ()
            with _not_busy(self._files):
                commit(self._files, Commit(staged, moves, record, paths))
        tree.apply(record)

    def _report(
        self,
        extents: Sequence[LedgerExtent],
        change: ExportChange,
        unreadable: Mapping[int, str],
        sizes: Mapping[str, int],
        written: Sequence[WrittenFile],
        damaged: Collection[WrittenFile],
    ) -> ExportReport:
        tree, new = self._tree, {file.path for file in written}
        lost = [
            file
            for file in tree.files.values()
            if file in damaged or (file.path not in new and sizes.get(file.path) != file.size)
        ]
        for file in lost:
            del tree.files[file.path]
        by_ledger = tree.files_of(extent.ledger_id for extent in extents)
        ledgers = tuple(
            self._described(extent, by_ledger.get(extent.ledger_id, []), change)
            for extent in extents
        )
        files = tree.files.values()
        return ExportReport(
            target=self._files.uri,
            ledgers=ledgers,
            entries=sum(file.rows for file in files),
            payload_bytes=sum(file.payload_bytes for file in files),
            files=len(files),
            file_bytes=sum(file.size for file in files),
            copied_entries=sum(part.entries for part in change.parts),
            copied_ledgers=len({part.ledger_id for part in change.parts}),
            read_back=self._read_back(),
            unreadable=tuple(UnreadableLedger(n, why) for n, why in sorted(unreadable.items())),
            damaged_ledgers=change.damaged,
            lost_files=tuple(file.path for file in lost),
            remedy=self._copying_again(lost[:NAMED_MAX]) if lost else "",
        )

    def _read_back(self) -> str | None:
        if not self._tree.files:
            return None
        where = repr(self._files.uri.partition("?")[0])
        if self._is_delta:
            return f'spark.read.format("delta").load({where})'
        return f"spark.read.parquet({where})"

    def _described(
        self, extent: LedgerExtent, files: Sequence[WrittenFile], change: ExportChange
    ) -> ExportedLedger:
        recorded = self._tree.ledgers[extent.ledger_id]
        is_alone = self._layout == "ledger"
        return ExportedLedger(
            ledger_id=extent.ledger_id,
            state=LedgerState[extent.state].word,
            last_entry=recorded.last_entry_id,
            entries=recorded.entries,
            payload_bytes=sum(f.payload_bytes for f in files) if is_alone else recorded.length,
            digest=extent.digest_type.lower(),
            files=len(files),
            file_bytes=sum(file.size for file in files),
            path=f"{self._files.uri}/{new_since_last.folder_of('ledger', extent)}"
            if is_alone
            else self._files.uri,
            unchanged=extent.ledger_id in change.unchanged,
        )
