"""The body of ``bkctl explain``: the meaning of an error or a term, and the steps to take."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from types import MappingProxyType
from typing import Final

from bkctl.commands.tool.compat import line_for
from bkctl.commands.tool.explanations import ALIASES, ErrorName, all_errors, page_width
from bkctl.errors import NothingFoundError
from bkctl.exit_status import MEANING
from bkctl.output.forms.text_width import wrapped
from bkctl.output.views import field, shown
from bkctl.session.session import Session
from bkctl.suggest import nearest

JAVA_NAMES: Final = MappingProxyType(
    {
        "BK-ADD-ENTRY-QUORUM-TIMEOUT": "BK-ADD-QUORUM-TIMEOUT",
        "BK-BOOKIE-HANDLE-NOT-AVAILABLE": "BK-BOOKIE-UNAVAILABLE",
        "BK-DIGEST-MATCH": "BK-DIGEST-MISMATCH",
        "BK-INVALID-COOKIE": "BK-WRONG-IDENTITY",
        "BK-LEDGER-EXIST": "BK-LEDGER-EXISTS",
        "BK-NO-LEDGER": "BK-NO-SUCH-LEDGER",
        "BK-NO-SUCH-LEDGER-EXISTS": "BK-NO-SUCH-LEDGER",
        "BK-NO-SUCH-LEDGER-EXISTS-ON-METADATA-SERVER": "BK-NO-SUCH-LEDGER",
        "BK-READ": "BK-READ-FAILED",
        "BK-UNAUTHORIZED-ACCESS": "BK-UNAUTHORIZED",
        "BK-WRITE": "BK-WRITE-FAILED",
        "BK-WRITE-ON-READ-ONLY-BOOKIE": "BK-READ-ONLY-BOOKIE",
    }
)
"""Names made from Java's exception classes whose errors have another name in bkctl."""
_JAVA: Final = re.compile(r"(?:.*[.$])?(?:BK)?(\w+)Exception")
"""An exception class of Java's client or bookie, as in its logs."""
_HUMP: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


TERMS: Final = MappingProxyType(
    {
        "ack quorum": "The number of bookies that must have an entry on disk before its add is "
        "confirmed. Column QA, option -A.",
        "auditor": "The elected bookie or process that looks for lost bookies, and marks their "
        "ledgers for repair. `bkctl autorecovery auditor` names it.",
        "balance": "The spread of data over the bookies: `bkctl bookie show --ledgers` shows the "
        "ledgers and bytes of each. New ledgers fill a new bookie without a command. `bkctl bookie "
        "recover OLD --ledger ID --to NEW` moves the replica of one ledger between two running "
        "bookies; OLD keeps its other ledgers.",
        "bookie": "A server that stores entries of ledgers. `bkctl bookie list` lists the bookies.",
        "closed": "A ledger is closed once its last entry is in the metadata: it accepts no more "
        "entries. `bkctl ledger close ID` and `bkctl ledger recover ID` close a ledger.",
        "cluster": "The bookies that one metadata store names. `bkctl cluster status` sums it up.",
        "cookie": "A bookie's identity: the metadata and every directory of the bookie have the "
        "same one. `bkctl cookie show BOOKIE` prints it.",
        "cursor": "The position up to which a reader of a log or topic has read. `bkctl log tail "
        "NAME --cursor CURSOR` moves the cursor, and `bkctl log cursors` lists cursors.",
        "custom metadata": "Keys and values that an application stores with a ledger. `bkctl "
        "ledger create --meta KEY=VALUE` sets them, and `bkctl ledger list --meta KEY=VALUE` finds "
        "the ledgers.",
        "deleted": "A deleted ledger has no metadata. Its entries stay until the next garbage "
        "collection of each bookie, whose time `bkctl bookie gc-status` shows; a stopped bookie "
        "deletes nothing. Until then a backup brings the ledger back: `bkctl cluster restore FILE "
        "--ledger ID`, or `bkctl ledger metadata restore ID FILE`. Without a backup stop the "
        "bookies and copy its entries: `bkctl disk salvage ID --out DIR BOOKIE_DIR...`.",
        "ensemble": "The bookies that store a fragment of a ledger. The column E is their number, "
        "option -E. `bkctl ledger map ID` draws them.",
        "entry": "The unit of adds and reads: bytes with an id. Ids of a ledger begin at 0.",
        "entry log": "A file of a bookie with the entries of many ledgers. The index says where "
        "each entry is. Garbage collection deletes a log of deleted ledgers, and compaction "
        "rewrites a log that is mostly dead.",
        "fence": "Stop the writer of a ledger from adding entries. Recovery fences a ledger "
        "before it closes the ledger.",
        "fragment": "The entries of a ledger that one ensemble stores. A new fragment begins where "
        "a bookie was replaced.",
        "headroom": "The number of writable bookies that can fail before no ledger of an ensemble "
        "size can be created. `bkctl cluster status -E N` shows the headroom for N.",
        "input/output error": "The disk or the storage of a bookie returned an error for an entry. "
        "The bookie may have others: `bkctl ledger verify ID` shows which copies of a ledger are "
        "sound. Return code EIO.",
        "instance id": "The random id of a cluster, which every cookie names. `bkctl cluster id` "
        "prints the id.",
        "journal": "The file to which a bookie writes each entry, synced, before it acknowledges "
        "the add. A start replays the journal from lastMark on.",
        "last add confirmed": "The last entry up to which every entry is confirmed: readers read "
        "no further. Each entry stores the LAC that its writer knew when it sent the entry, so the "
        "LAC of an entry is below its id. `bkctl ledger map ID` asks the bookies for the LAC of an "
        "open ledger.",
        "ledger": "A sequence of entries with one writer. A closed ledger never changes.",
        "log": "An endless sequence made of ledgers: each begins where the previous one ended. "
        "`bkctl log list` lists the logs.",
        "mark": "A node of the metadata that says that a ledger lacks replicas. Replication "
        "workers take marks and repair the ledgers. `bkctl autorecovery list` lists them.",
        "metrics": "The counts and times of a bookie: `bkctl bookie metrics BOOKIE` prints them, "
        "and /metrics of httpServerPort serves them to Prometheus. The project's directory "
        "monitoring has a dashboard for Grafana and alert rules.",
        "orphan": "A ledger that no application needs any more. BookKeeper does not record who "
        "needs a ledger: `bkctl ledger orphans --keep-file FILE` lists the ledgers that neither a "
        "log nor a file with the ids of the application names.",
        "profile": "A cluster under a name, with the options to reach it. `bkctl profile create "
        "NAME -u URI` makes a profile, `bkctl profile use NAME` chooses it, and `bkctl profile "
        "list` lists profiles.",
        "quarantine": "While a bookie that failed is in quarantine, a client gives new entries to "
        "other bookies. `bkctl cluster health-check` prints whether clients do so.",
        "rack": "The location of a bookie's host. The script that networkTopologyScriptFileName "
        "names gets hosts as arguments, and prints one location for each, such as /rack1. Name "
        "it in the settings of clients and bookies, or with -X. Write quorums span several racks "
        "if possible. `bkctl cluster map` draws racks; `bkctl local 4 --racks 2` starts bookies in "
        "two racks.",
        "read-only": "A bookie that is read-only serves reads and takes no new entries: its disks "
        "are full, or `bkctl bookie readonly ID on` was run. `bkctl bookie state` names the "
        "reason.",
        "sealed": "A sealed log is complete: no entry can be appended. `bkctl log append NAME "
        "--seal` seals a log.",
        "write quorum": "The number of bookies of the ensemble that store each entry. Column QW, "
        "option -W.",
    }
)
"""The terms of columns and options, with their meanings."""
_SHORT: Final = MappingProxyType(
    {
        "alert": "metrics",
        "dashboard": "metrics",
        "grafana": "metrics",
        "prometheus": "metrics",
        "label": "custom metadata",
        "closed ledger": "closed",
        "load": "balance",
        "move": "balance",
        "read only": "read-only",
        "readonly": "read-only",
        "rebalance": "balance",
        "under replicated": "mark",
        "underreplicated": "mark",
        "lac": "last add confirmed",
        "e": "ensemble",
        "eio": "input/output error",
        "qa": "ack quorum",
        "qw": "write quorum",
    }
)


_WITH_TERM: Final = MappingProxyType({"fenced": ("fence", "BK-LEDGER-FENCED")})
"""Words that are both a term and an error."""
_NO_NAMES: Final = frozenset({"bookkeeper", "exit", "shell", "status"})
"""Words before an exit status, or before a command of Java's shell."""


@shown("terms", lines=lambda v, width, _color: wrapped(f"{v.name}: {v.what}", page_width(width)))
class Term:
    """A term of columns and options, for ``bkctl explain``."""

    name: str = field("The term.")
    what: str = field("Meaning of the term.")


def _term(typed: str) -> Term | None:
    word = typed.lower().replace("-", " ").replace("_", " ")
    names = (_SHORT.get(one, one) for one in (word, word.removesuffix("s")))
    return next((Term(name, TERMS[name]) for name in names if name in TERMS), None)


def _exit_status(typed: str) -> Term | None:
    """Return the meaning of an exit status, as at the end of each help."""
    of_bkctl = (one for one in all_errors().values() if one.meaning)
    ending = ", ".join(one.name for one in of_bkctl if typed == str(one.status))
    errors = f". Errors with this status: {ending}. `bkctl explain NAME` explains an error."
    found = (text for status, text in MEANING.items() if typed == f"{status:d}")
    return next(
        (Term(f"exit status {typed}", text + errors * bool(ending)) for text in found), None
    )


def explain(session: Session, *, names: Sequence[str]) -> None:
    """Print the meaning of errors, their exit status and the steps to take; or a term's meaning.

    Without a name all errors are listed. A single name may be a setting, or a part of its name.

    Raises:
        NothingFoundError: the error does not exist.
    """
    known = all_errors()
    if not names:
        session.emit_all(map(ErrorName, known.values()), ErrorName)
        return
    named = [name for name in names if name.lower() not in _NO_NAMES] or names
    for typed in (one for name in named for one in _WITH_TERM.get(name.lower(), (name,))):
        term = _exit_status(typed) or _term(typed)
        if term is not None:
            session.emit(term)
            continue
        name = "BK-" + re.sub(r"[\s_]+", "-", _word(typed)).upper().removeprefix("BK-")
        name = JAVA_NAMES.get(name, ALIASES.get(name, name))
        if name not in known:
            if typed.strip() and len(names) == 1 and _explain_setting(session, typed):
                return
            line = line_for([typed])
            raise NothingFoundError(
                f"{typed!r} is not an error and not a term{_meant(name, [*known, *ALIASES])}",
                next_step=f"`{shlex.join(['bkctl', *line])}` does what Java's {typed} does"
                if line is not None
                else "`bkctl explain` lists errors and `bkctl explain --help` terms; "
                "`bkctl config show KEY` explains settings",
            )
        session.emit(known[name])


def _explain_setting(session: Session, word: str) -> bool:
    """Print a setting as `config show` does, by a part of its name.

    Return whether a setting matches.
    """
    from bkctl.commands.settings.config_files import show
    from bkctl.commands.settings.config_keys import all_keys, matching

    if not matching(word, all_keys()):
        return False
    show(session, keys=[word], all_keys=False, use=None, origin=False, every=False, side=None)
    return True


def _meant(name: str, names: Iterable[str]) -> str:
    """Return a hint with the nearest name, for the end of an error; the prefix is not compared."""
    known = {one.removeprefix("BK-"): one for one in names}
    near = nearest(name.removeprefix("BK-"), known, least=0.75)
    return f"; did you mean {known[near[0]]}?" if near else ""


def _word(typed: str) -> str:
    """Return an error's name as typed; for a Java class with hyphens."""
    java = _JAVA.fullmatch(typed)
    return _HUMP.sub("-", java[1]) if java else typed.strip("[]")
