"""Explanations of errors for users: causes, and commands to try, by stable name.

Names, sentences, hints and exit statuses are in the error classes. This module has only the text
that is too long for a class.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

import attrs

from bkctl.environment_and_streams import columns_of_environment
from bkctl.errors import error_message, error_name
from bkctl.exit_status import MEANING, ExitStatus
from bkctl.output.forms.text_width import wrapped
from bkctl.output.views import Column, Kind, field, shown
from bookied.offline.check.start import SALVAGE
from wire.errors import BookKeeperError

MODULES: Final = (
    "bkctl.errors",
    "wire.errors",
    "wire.sasl_digest_md5",
    "bkclient.errors",
    "bkclient.replication.autorecovery_admin",
    "bkclient.admin.bookie_ids",
    "bkclient.config.findings",
    "bkclient.quorum.fragments",
    "bkclient.ledger.handover_state",
    "bkclient.log.errors",
    "bkclient.metadata.errors",
    "bkclient.metadata.tree.nodes",
    "bkclient.config.properties",
    "bkclient.replication.fragment_copy",
    "bkclient.admin.cookies",
    "bkclient.placement.rack_script",
    "bkclient.topic.names",
    "bkctl.commands.cluster.backup.backup_file",
    "bkctl.commands.export.errors",
    "bkctl.commands.export.target.manifest",
    "bkctl.commands.export.task.rows",
    "bkctl.commands.ledger.input_cutting",
    "bkctl.commands.local.java",
    "bkctl.commands.local.zookeeper",
    "bkctl.commands.local.bookie_process",
    "bookied.offline.repair.convert_logs",
    "bookied.errors",
    "bookied.offline.repair.rebuild_db",
    "bookied.offline.repair.upgrade",
)
"""Modules of the errors with which a command can end."""

ALIASES: Final = MappingProxyType(
    {
        "BK-FENCED": "BK-LEDGER-FENCED",
        "BK-COOKIE-MISMATCH": "BK-WRONG-IDENTITY",
        "BK-NO-METADATA": "BK-METADATA-UNAVAILABLE",
    }
)
"""Other names under which users may look for an error."""


@attrs.frozen
class Advice:
    """The cause of an error, and the steps to take, the likeliest first."""

    cause: str
    steps: tuple[str, ...] = ()


def _advice(cause: str, *steps: str) -> Advice:
    return Advice(cause, steps)


_AFTER_LOSS: Final = (
    (
        f"if the files are gone for good, first {SALVAGE}; `bkctl ledger write --length-prefixed "
        "FILE` writes them to a new ledger"
    ),
    (
        "with DbLedgerStorage (`ledgerStorageClass` in the bookie's settings): remove "
        "current/VERSION from the emptied directory, if it is there, and start with "
        "dataIntegrityChecking=true and dataIntegrityStampMissingCookies=true; the bookie copies "
        "missing entries from the other bookies"
    ),
    (
        "otherwise replace the bookie: `bkctl recover BOOKIE` copies its entries to other "
        "bookies, then `bkctl disk format --delete-cookie -c FILE` empties its directories, and "
        "the bookie starts as a new one"
    ),
)
"""Steps after the permanent loss of a bookie's data."""

ADVICE: Final[Mapping[str, Advice]] = MappingProxyType(
    {
        "BK-NO-SUCH-LEDGER": _advice(
            "The metadata has no ledger of this id: it was deleted, never created, or belongs to "
            "another cluster. Ids are decimal unless they begin with 0x.",
            "`bkctl ledger list --limit 10` shows that this is the cluster you mean",
            "`bkctl config show --origin` says which cluster is used, and why",
            "`bkctl explain deleted` says how to get back a ledger that was deleted by mistake",
        ),
        "BK-NO-SUCH-ENTRY-IN-LEDGER": _advice(
            "The ledger ends before this entry, or the ledger is open and the entry is not "
            "confirmed yet.",
            "`bkctl ledger show ID` shows the last entry of the ledger",
            "`bkctl ledger read ID --unconfirmed` also reads unconfirmed entries",
        ),
        "BK-NO-SUCH-LEDGER-ON-BOOKIE": _advice(
            "The bookie has no entry of this ledger: it never got one, its disk was lost, or it "
            "has deleted them, because the ledger was deleted from the metadata.",
            "`bkctl ledger map ID` shows which bookies should have entries, and which have them",
            "`bkctl ledger verify ID` reads every copy of every entry",
        ),
        "BK-LEDGER-FENCED": _advice(
            "Another client opened the ledger with recovery while it was written: a fail-over, an "
            "operator's `ledger recover`, or autorecovery of a bookie that was lost. Entries that "
            "this writer has confirmed are kept. Its other entries may be kept or not.",
            "`bkctl ledger show ID` shows the last entry, once the state is closed",
            "`bkctl ledger recover ID` closes it, if a recovery has not ended",
            "continue in a new ledger: a fenced ledger accepts no more entries",
        ),
        "BK-LEDGER-CLOSED": _advice(
            "A closed ledger never takes entries again.",
            "`bkctl ledger write FILE` writes entries to a new ledger",
            "`bkctl log append NAME` is for a sequence without an end",
        ),
        "BK-LOG-EXISTS": _advice(
            "Each log has a name of its own. The limits of a log are set when it is created.",
            "`bkctl log append NAME` appends to the existing log",
            "`bkctl log show NAME` shows its ledgers and the limits at which a new ledger begins",
        ),
        "BK-NOT-HANDED-OVER": _advice(
            "`bkctl ledger add` needs a ledger that its last writer released: it cannot "
            "distinguish a running writer from a crashed writer.",
            "`bkctl ledger recover ID` closes the ledger, and fences a running writer",
            "`bkctl ledger create` creates a ledger that several processes can add to, one at a "
            "time",
        ),
        "BK-NOT-ENOUGH-BOOKIES": _advice(
            "The ensemble is larger than the number of usable bookies. Read-only bookies, bookies "
            "in quarantine and bookies that the placement policy excludes do not count.",
            "`bkctl bookie list` shows which bookies are writable",
            "start the bookies that are down; then the application can continue",
            "`bkctl ledger create -E 2 -W 2 -A 2` needs only two bookies. `-E 1 -W 1 -A 1` "
            "needs one bookie, and each entry has one copy",
        ),
        "BK-BOOKIE-UNAVAILABLE": _advice(
            "The bookie does not answer, or is not registered: the process is stopped, the "
            "network is cut, or the published address cannot be reached from this host.",
            "`bkctl bookie show ID` shows the address that the bookie publishes",
            "`bkctl bookie list --state down` shows the bookies that are down",
        ),
        "BK-METADATA-UNAVAILABLE": _advice(
            "ZooKeeper (or the SQLite file) cannot be reached, or the connection was lost during "
            "the command. A change in progress may have been stored.",
            "`bkctl config show --origin` says which service is used, and why",
            "`bkctl cluster status --timeout 5` tries it again",
        ),
        "BK-METADATA-ACCESS": _advice(
            "The metadata service refuses access: ACLs, a read-only file, or wrong credentials.",
            "`bkctl config show zkEnableSecurity` says how clients authenticate",
        ),
        "BK-METADATA-VERSION": _advice(
            "Another process changed the same metadata meanwhile: a writer, autorecovery, another "
            "operator. This change was not made.",
            "run the command again: it begins with the present metadata",
        ),
        "BK-NOT-INITIALIZED": _advice(
            "The metadata service has no cluster below this path.",
            "`bkctl config show --origin` shows the file or variable that sets the path",
            "`bkctl cluster init` creates a cluster",
        ),
        "BK-INCOMPATIBLE-LAYOUT": _advice(
            "The cluster keeps its ledgers in another layout than the URI names.",
            "leave the layout out: zk://HOST/PATH or zk+null://HOST/PATH uses the existing layout",
        ),
        "BK-COOKIE-NOT-FOUND": _advice(
            "No bookie of this id was ever part of the cluster, or its cookie was deleted, as by "
            "a decommission.",
            "`bkctl cookie list` lists the stored cookies",
            "`bkctl cookie generate -c FILE` shows what this bookie would write",
        ),
        "BK-WRONG-IDENTITY": _advice(
            "The cookies in the directories (id, directories, instance id) differ from the cookie "
            "in the metadata, or two directories changed places. The usual causes: a changed "
            "address or host name, a disk that is missing, is mounted at another path or belongs "
            "to another bookie, a cluster that was formatted anew. The bookie "
            "does not start, because it could report acknowledged entries as missing.",
            "`bkctl doctor --local -c FILE` names the difference",
            "`bkctl cluster restore FILE`, with the bookies stopped, if the cluster was formatted",
            "`bkctl bookie rename -c FILE` after a change of address",
            "`bkctl cookie repair -c FILE` after directories were moved to other paths",
            "`bkctl disk expand -c FILE` after new directories",
            "if a directory was emptied: mount its disk, if the disk is not mounted; never copy "
            "VERSION into an empty directory",
            *_AFTER_LOSS,
        ),
        "BK-LOCAL-START": _advice(
            "A bookie or the ZooKeeper of a local cluster ended at its start; the message has the "
            "reason. The usual causes: a setting in bookie.conf, a directory there that the cookie "
            "does not name, a port in use.",
            "`bkctl local status DIR` shows each bookie's directory, with bookie.conf and "
            "bookie.log",
            "`bkctl cookie repair -c DIR/bookie-N/bookie.conf` after directories were moved",
            "`bkctl disk expand -c DIR/bookie-N/bookie.conf` after new ledger directories",
            "delete the bookie's bookie.conf: the next start writes a new one",
        ),
        "BK-UNAUTHORIZED": _advice(
            "The ledger has another password, or the bookie requires its clients to authenticate.",
            "`bkctl ledger read ID --password-file FILE` passes the password",
        ),
        "BK-DIGEST-MISMATCH": _advice(
            "A replica is damaged, or the digest type or password is wrong. Other replicas may be "
            "intact.",
            "`bkctl ledger verify ID` names the bookies with damaged replicas, and the line that "
            "repairs them",
            "`bkctl ledger show ID` says which digest the ledger has",
            "`bkctl disk check -c FILE` on the bookie's machine looks for damage",
        ),
        "BK-READ-FAILED": _advice(
            "No bookie of the write set returned the entry: all are down, slow, or have lost it.",
            "`bkctl bookie list` shows the bookies",
            "`bkctl doctor` says whether replicas are missing",
        ),
        "BK-LEDGER-RECOVERY": _advice(
            "Too few bookies of the last ensemble answered to say where the ledger ends. Nothing "
            "is lost by waiting: the ledger stays in recovery, and recovery can be run again.",
            "`bkctl ledger show ID` names the bookies that are needed",
            "`bkctl ledger recover ID` tries again once these bookies run",
        ),
        "BK-ADD-QUORUM-TIMEOUT": _advice(
            "Too few bookies acknowledged in time. The ledger may have the entry or not.",
            "`bkctl bookie list` shows the bookies",
            "`bkctl ledger recover ID` determines which entries the ledger has",
        ),
        "BK-READ-ONLY-BOOKIE": _advice(
            "The bookie's disks are full, or an operator made it read-only. Writers use other "
            "bookies.",
            "`bkctl bookie list` shows free space",
            "`bkctl bookie readonly ID` says whether an operator made it read-only",
        ),
        "BK-AUTORECOVERY-DISABLED": _advice(
            "Autorecovery is switched off for the whole cluster, so no replica is repaired.",
            "`bkctl autorecovery enable` switches it on",
        ),
        "BK-NO-AUDITOR": _advice(
            "No process with autorecovery runs, so the ledgers of a lost bookie are not repaired.",
            "set autoRecoveryDaemonEnabled=true in the settings of bookies, or run "
            "`bookied autorecovery --conf FILE`",
            "`bkctl autorecovery status` shows whether an auditor is elected",
        ),
        "BK-BACKUP-DAMAGED": _advice(
            "The file was not written by `cluster backup`, or its end, which has a checksum, is "
            "missing. Nothing was restored.",
            "use an older backup; `bkctl cluster restore FILE --dry-run` checks a backup",
        ),
        "BK-AUTHENTICATION": _advice(
            "The name or password is wrong, or the other side does not support DIGEST-MD5.",
            "compare the client's section BookKeeper (for ZooKeeper: Client) in saslJaasConfigFile "
            "with the users in the other side's section Bookie (ZooKeeper: Server)",
        ),
        "BK-REFUSED": _advice(
            "The action was not confirmed, or a safety check refused it. Nothing was changed.",
            "the message names the option that overrides this check, where there is one",
            "add --dry-run to see what would be done",
        ),
        "BK-CONFLICT": _advice(
            "The object exists, but its state does not allow this command. Nothing was changed.",
        ),
        "BK-TIME-LIMIT": _advice(
            "--timeout, or a limit of the command, was reached. Work in other processes may "
            "continue.",
            "run the command again with a longer --timeout: it continues",
        ),
        "BK-INTERRUPTED": _advice(
            "Ctrl-C or SIGTERM (exit status 143) ended the command, at a safe point.",
            "run the command again: it continues",
        ),
        "BK-USAGE": _advice(
            "The command line, or a setting, cannot be used as it is. Nothing was done.",
            "`bkctl COMMAND --help` shows how, with examples",
        ),
        "BK-CONFIG": _advice(
            "A value in a settings file, a variable or -X is refused. Nothing was done.",
            "`bkctl config check FILE` names all invalid settings of a file",
            "`bkctl config show KEY` says which values a key may have",
        ),
        "BK-PROPERTIES": _advice(
            "The settings file cannot be read, or breaks the syntax of Java's properties.",
            "`bkctl config check FILE` names the line",
        ),
        "BK-PARTLY-DONE": _advice(
            "A part of the work failed; the output says which part, and why.",
            "run the command again: it does only the remaining work",
        ),
        "BK-DIRECTORY-IN-USE": _advice(
            "A bookie uses these directories. Commands that change them need the bookie stopped.",
            "`bkctl disk lock-status -c FILE` names the process",
        ),
        "BK-CORRUPT": _advice(
            "Data on a disk is damaged. The message names the file and the "
            "offset. Ledgers with other replicas can be read and repaired.",
            "`bkctl disk check -c FILE` looks for more, with the bookie stopped",
            "`bkctl disk check --repair-plan -c FILE` prints the commands that repair it",
        ),
        "BK-JOURNAL-RECORD": _advice(
            "A journal is damaged before its end. This bookie may have lost acknowledged entries. "
            "It does not start, because it would report them as missing.",
            f"if no older, intact copy of the file exists, first {SALVAGE}",
            "replace the bookie: `bkctl recover BOOKIE` copies its entries to other bookies, then "
            "`bkctl disk format --delete-cookie -c FILE` empties its directories, and the bookie "
            "starts as a new one",
            "without other bookies: skipReplayJournalInvalidRecord=true starts without the rest of "
            "that journal; the bookie then denies its entries, and asks the metadata which ledgers "
            "may be fenced",
        ),
        "BK-JOURNAL-MISSING": _advice(
            "A journal that the last mark needs, or the newest journal, is missing or was cut: the "
            "directory was emptied, is not mounted, or was restored from an older copy. This "
            "bookie may have lost acknowledged entries. It does not start, because it would report "
            "them as missing.",
            "`bkctl disk lastmark -c FILE` says which journal is needed",
            "move the journals back to their directory, if they still exist",
            *_AFTER_LOSS,
        ),
        "BK-DIRECTORY-EMPTIED": _advice(
            "A ledger or index directory has its cookie, but the files that a checkpoint has seen "
            "are missing: the directory was emptied, or replaced by an empty copy. The bookie "
            "does not start, because it would report acknowledged entries as missing.",
            "move the files back to the directory, if they still exist",
            "if only the index is lost: "
            "`bkctl disk rebuild-index --all -c FILE`; with DbLedgerStorage "
            "`bkctl disk rebuild-db --ledgers --locations -c FILE`",
            *_AFTER_LOSS,
        ),
        "BK-LAYOUT-TOO-OLD": _advice(
            "The directories were written by an older release.",
            "`bkctl disk upgrade --check -c FILE` shows the layout of each directory",
            "`bkctl disk upgrade --upgrade --dry-run -c FILE` shows what an upgrade would do",
        ),
        "BK-PROBLEMS": _advice(
            "The check ended, and found problems. The command's output lists the problems.",
            "`bkctl doctor` says what repairs each finding, the worst first",
            "in scripts, test for status 10: any other status above 0, except 9, means that the "
            "check itself has failed",
        ),
        "BK-BUG": _advice(
            "This error should not happen.",
            "run the command again with -v, and report what the command prints",
        ),
    }
)

_OWN: Final = MappingProxyType(
    {
        "BK-INTERRUPTED": ("The command was ended from outside.", ExitStatus.INTERRUPTED),
        "BK-BUG": ("An error that bkctl does not know.", ExitStatus.FAILED),
    }
)
"""Names of errors without a class."""


_WIDTH_MAX: Final = 96
_BULLET: Final = "  - "


def page_width(width: int | None) -> int:
    """Return the width of prose on a terminal of this width; None is a pipe."""
    return min(width or columns_of_environment() or _WIDTH_MAX, _WIDTH_MAX)


def _lines_of(error: ErrorExplanation, width: int | None, _color: object) -> Iterator[str]:
    """Yield the lines of an explanation, wrapped at words."""
    width = page_width(width)
    of = "" if error.program == "bkctl" else f" of {error.program}:"
    status = f"Exit status{of} {error.status}" + (f": {error.meaning}." if error.meaning else ".")
    yield from wrapped(f"{error.name}: {error.what}", width)
    for part in (status, error.cause):
        if part:
            yield ""
            yield from wrapped(part, width)
    if error.steps:
        yield from ("", "What to do:")
    for step in error.steps:
        first, *rest = wrapped(step, width - len(_BULLET))
        yield f"{_BULLET}{first}"
        yield from (f"{'':{len(_BULLET)}}{line}" for line in rest)


@shown(
    "errors",
    Column("meaning", "Meaning of the exit status.", lambda v: v.meaning or None),
    Column("cause", "Cause of the error.", lambda v: v.cause or None),
    Column("steps", "Steps that solve the problem."),
    kw_only=True,
    lines=_lines_of,
)
class ErrorExplanation:
    """One error, for ``bkctl explain``."""

    name: str = field("Name of the error; it does not change between releases.")
    what: str = field("Message of the error.")
    status: int = field("The exit status.")
    program: str = field("The program with this exit status: bkctl, or bookied.", default="bkctl")
    """The program of the exit status: ``bookied`` has its own statuses."""
    hint: str = ""

    @property
    def meaning(self) -> str:
        """The meaning of the exit status."""
        if self.program == _DAEMON:
            return ""
        return MEANING[ExitStatus(self.status)]

    @property
    def cause(self) -> str:
        found = ADVICE.get(self.name)
        return found.cause if found else ""

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps to take; the hint of the class if no other step is known."""
        found = ADVICE.get(self.name)
        steps = found.steps if found else ()
        return (*steps, self.hint) if self.hint and not steps else steps


_DAEMON: Final = "bookied"


def all_errors() -> dict[str, ErrorExplanation]:
    """Return all errors by name, sorted by name."""
    for module in MODULES:
        importlib.import_module(module)
    found = {
        name: ErrorExplanation(name=name, what=what, status=status)
        for name, (what, status) in _OWN.items()
    }
    for kind in _kinds(BookKeeperError):
        name = error_name(kind)
        if kind.__module__ in MODULES and (name not in found or kind.hint):
            found[name] = ErrorExplanation(
                name=name,
                what=_sentence(kind),
                status=int(kind.exit_status),
                program=_DAEMON if kind.__module__ == "bookied.errors" else "bkctl",
                hint=kind.hint,
            )
    return dict(sorted(found.items()))


def _kinds(kind: type[BookKeeperError]) -> Iterator[type[BookKeeperError]]:
    for one in kind.__subclasses__():
        yield one
        yield from _kinds(one)


def _sentence(kind: type[BookKeeperError]) -> str:
    text = error_message(kind.__new__(kind)).replace("``", "`")
    return f"{text[:1].upper()}{text[1:]}" + ("" if text.endswith("?") else ".")


@shown(
    "errors",
    Column("name", "Name of the error; it does not change between releases.", "error.name"),
    Column("status", "The exit status.", "error.status", Kind.COUNT, rank=1),
    Column("what", "Message of the error.", "error.what"),
)
class ErrorName:
    """One error in the list of all errors."""

    error: ErrorExplanation
