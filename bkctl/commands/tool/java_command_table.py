"""The table of Java's commands, each with the bkctl command line that does the same.

The names and options are those of BookKeeper 4.18.0: of its shell (BookieShell), of its bkctl
(CliCommandGroup and its commands) and of its launcher script. ``compat`` translates with the table,
and the page of all commands is made from it.

A form is a command line with gaps: ``{l}`` is the value of the option ``-l``, ``{1}`` the first
argument and ``{*}`` all arguments. A word with the gap ``{l?}`` is omitted if the value is missing;
a word whose option has several values becomes several words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple


def _replace(_: str) -> list[str]:
    return ["--replace"]


def _as_is(text: str) -> list[str]:
    return [text]


def _each(text: str) -> list[str]:
    """Return the items of a list of ids or directories, which Java joins with commas."""
    return [word for word in text.split(",") if word]


def _hexadecimal(text: str) -> list[str]:
    """Return a bare number with the prefix 0x: for ``readlogmetadata`` it is hexadecimal."""
    return [f"0x{text}" if re.fullmatch(r"[0-9a-fA-F]+", text) else text]


def _unless_negative(text: str) -> list[str]:
    """Return no word for Java's -1, which is the same as no option."""
    return [] if text.startswith("-") else [text]


def _from_ms(text: str) -> list[str]:
    return [f"{int(text) / 1000:g}"] if text.isdigit() else [text]


def _if_true(text: str) -> list[str]:
    return [""] if text.lower() == "true" else []


class JavaOption(NamedTuple):
    """One option of a Java command with all its ``names``; Java accepts one dash or two."""

    names: tuple[str, ...]
    value: str = ""
    """The name of its value; empty for a flag. ``[X]``: the value is optional."""
    to: str = ""
    """The bkctl words for the option; none if a form has a gap for it, or if it is not needed."""
    how: Callable[[str], list[str]] = _as_is
    default: str = ""
    """The bkctl words if the option is absent and Java's default differs."""
    why: str = ""
    """The reason why the option is not needed."""
    fixed: str = ""
    """The only value, or flag, that ``how`` accepts; for the page of commands."""

    @property
    def name(self) -> str:
        return self.names[0]


class Row(NamedTuple):
    """One command of Java's tools."""

    java: str
    forms: tuple[tuple[str, str], ...]
    """The bkctl command lines, each after the option that selects it.

    The last one has no option.
    """
    options: tuple[JavaOption, ...] = ()
    arguments: str = ""
    """The arguments after the options, for people."""
    of_arguments: Callable[[str], list[str]] = _as_is
    note: str = ""


class UnsupportedCommand(NamedTuple):
    """A command of Java's that bkctl does not have, with an alternative or the reason."""

    java: str
    instead: str


def _flag(names: str, to: str = "", *, why: str = "") -> JavaOption:
    return JavaOption(tuple(names.split()), to=to, why=why)


def _value(
    names: str,
    value: str,
    to: str = "",
    *,
    how: Callable[[str], list[str]] = _as_is,
    default: str = "",
    why: str = "",
) -> JavaOption:
    return JavaOption(tuple(names.split()), value, to, how, default, why)


_ID_FORMAT: Final = "--ledger-id-format {}"
_ENTRY_FORMAT: Final = "--entry-format {}"
_ALWAYS: Final = "it is always shown"
_OWN_PACE: Final = "ledgers are read and written one after another"
_PROGRESS: Final = "progress is shown by itself; --progress says how"

_YES: Final = _flag("f force", "--yes")
_NO_INPUT: Final = _flag("n nonInteractive noninteractive", "--no-input")
_VERBOSE: Final = _flag("v verbose", "--verbose")
_LEDGER: Final = _value("l ledgerid", "ID")

_METAFORMAT: Final = (_NO_INPUT, _YES)
_BOOKIEFORMAT: Final = (_NO_INPUT, _YES, _flag("d deleteCookie deletecookie", "--delete-cookie"))
_NUKE: Final = (
    _value("p zkledgersrootpath", "PATH", "--root {}"),
    _value("i instanceid", "ID", "--instance-id {}"),
    _YES,
)
_RECOVER: Final = (
    _flag("q query", "--query"),
    _flag("dr dryrun drarun", "--dry-run"),
    _YES,
    _value("l ledger", "ID", "--ledger {}"),
    _flag("sk skipOpenLedgers skipopenledgers", "--skip-open"),
    _flag("d deleteCookie deletecookie", "--delete-cookie"),
    _flag("sku skipUnrecoverableLedgers skipunrecoverableledgers", "--skip-unrecoverable"),
    _value("rate replicationRate replicationrate", "BYTES", "--rate {}"),
)
_INDEX: Final = (_flag("m meta", "--meta"),)
_READ_LEDGER: Final = (
    _flag("m msg", why="payloads are always printed"),
    _LEDGER,
    _value("fe firstentryid", "N", "--first {}", how=_unless_negative),
    _value("le lastentryid", "N", "--last {}", how=_unless_negative),
    _flag("r force-recovery", "--recover"),
    _value("b bookie", "ID", "--bookie {}"),
)
_UNDERREPLICATED: Final = (
    _value("mr missingreplica", "ID", "--missing {}"),
    _value("emr excludingmissingreplica", "ID", "--not-missing {}"),
    _flag("pmr printmissingreplica", why=_ALWAYS),
    _flag("prw printreplicationworkerid", why=_ALWAYS),
    _flag("c onlydisplayledgercount", "--count"),
)
_LIST_LEDGERS: Final = (_flag("m meta", "--output wide"), _value("bookieid", "ID", "--bookie {}"))
_METADATA: Final = (
    _LEDGER,
    _value("dumptofile", "FILE"),
    _value("restorefromfile", "FILE"),
    JavaOption(("update",), how=_replace, fixed="-"),
)
_METADATA_FORMS: Final = (
    ("dumptofile", "ledger metadata dump {l} {dumptofile}"),
    ("restorefromfile", "ledger metadata restore {l} {restorefromfile} {update?}"),
    ("", "ledger show {l}"),
)
_SANITY: Final = (
    _value("e entries", "N", "--entries {}"),
    _value("t timeout", "SECONDS", "--timeout {}"),
)
_READ_LOG: Final = (
    _flag("m msg", "--payload"),
    _value("l ledgerid", "ID", "--ledger {}", how=_unless_negative),
    _value("e entryid", "N", "--entry {}", how=_unless_negative),
    _value("sp startpos", "POSITION", "--start {}", how=_unless_negative),
    _value("ep endpos", "POSITION", "--end {}", how=_unless_negative),
)
_JOURNAL: Final = (_value("dir", "DIR", "--dir {}"), _flag("m msg", "--payload"))
_LIST_BOOKIES: Final = (
    _flag("rw readwrite", "--state rw"),
    _flag("ro readonly", "--state ro"),
    _flag("a all", "--state all"),
)
_FILES: Final = (
    _flag("txn journal", "--journal"),
    _flag("log entrylog", "--entrylog"),
    _flag("idx index", "--index"),
)
_DELAY: Final = (_flag("g get"), _value("s set", "SECONDS"))
_DELAY_FORMS: Final = (("s", "autorecovery delay {s}"), ("", "autorecovery delay"))
_SWITCH: Final = (_flag("e enable"), _flag("s status"))
_PACE: Final = (
    _value("s updatespersec updatepersec", "N", "--rate {}"),
    _value("r maxOutstandingReads maxoutstandingreads", "N", why=_OWN_PACE),
    _value("l limit", "N", "--limit {}"),
    _value("p printprogress", "SECONDS", why=_PROGRESS),
)
_FLIP_PACE: Final = (
    _value("s updatespersec updatepersec", "N", why=_OWN_PACE),
    _value("r maxOutstandingReads maxoutstandingreads", "N", why=_OWN_PACE),
    _value("l limit", "N", why="a bookie is renamed in all of its ledgers, or in none"),
    _value("p printprogress", "SECONDS", why=_PROGRESS),
)
_TRUE_VERBOSE: Final = JavaOption(
    ("v", "verbose"), "true|false", "--verbose{}", how=_if_true, fixed="true"
)
_DELETE: Final = (_LEDGER, _YES)
_NOT_TYPED: Final = "it is taken from the metadata; where that is lost, --password-file FILE"
_REGENERATE: Final = (
    _value("l ledgerIds ledgerids", "ID,...", how=_each),
    _flag("dryRun dryrun", "--dry-run"),
    _value("password", "TEXT", why=_NOT_TYPED),
    _value("b64password", "TEXT", why=_NOT_TYPED),
)
_COOKIE_FILE: Final = (_value("cf cookie-file", "FILE", "--file {}"),)
_GENERATE: Final = (
    _value("j journal-dirs", "DIR,...", "--journal-dir {}", how=_each),
    _value("l ledger-dirs", "DIR,...", "--ledger-dir {}", how=_each),
    _value("ix index-dirs", "DIR,...", "--index-dir {}", how=_each),
    _value("i instance-id", "ID", "--instance-id {}"),
    _value("o output-file", "FILE", "--out {}"),
)
_FLIP_NOTE: Final = "does cookie, files and ledgers in one go"
_FENCED: Final = "every ledger that is rebuilt counts as fenced, as with Java's"


def _quorums(entries: str) -> tuple[JavaOption, ...]:
    return (
        _value("e ensemble ensemble-size", "N", "-E {}"),
        _value("w writeQuorum write-quorum-size", "N", "-W {}"),
        _value("a ackQuorum ack-quorum-size", "N", "-A {}"),
        _value("n numEntries num-entries", "N", "-n {}", default=f"-n {entries}"),
    )


def _only(form: str) -> tuple[tuple[str, str], ...]:
    return (("", form),)


SHELL: Final = (
    Row("activeledgers", _only("disk entrylog {l} --live"),
        (_value("l logId", "N"), _value("t timeout", "MS", "--timeout {}", how=_from_ms))),
    Row("autorecovery",
        (("e", "autorecovery enable"), ("d", "autorecovery disable"), ("", "autorecovery status")),
        (_flag("e enable"), _flag("d disable"))),
    Row("bookieformat", _only("disk format"), _BOOKIEFORMAT),
    Row("bookieinfo", _only("bookie show")),
    Row("bookiesanity", _only("bookie test"), _SANITY),
    Row("check-db-ledgers-index", _only("disk check --db"), (_VERBOSE,)),
    Row("clusterinfo", _only("cluster status")),
    Row("convert-to-db-storage", _only("disk convert --to db")),
    Row("convert-to-interleaved-storage", _only("disk convert --to interleaved")),
    Row("cookie_create", _only("cookie create {1}"), _COOKIE_FILE, "ID"),
    Row("cookie_delete", _only("cookie delete {1}"), (), "ID"),
    Row("cookie_generate", _only("cookie generate {1}"), _GENERATE, "ID"),
    Row("cookie_get", _only("cookie show {1}"), (), "ID"),
    Row("cookie_update", _only("cookie update {1}"), _COOKIE_FILE, "ID"),
    Row("decommissionbookie", _only("bookie decommission {bookieid?}"),
        (_value("bookieid", "ID"),)),
    Row("deleteledger", _only("ledger delete {l}"), _DELETE),
    Row("endpointinfo", _only("bookie show {b}"), (_value("b bookieid", "ID"),)),
    Row("forceauditchecks", _only("autorecovery audit"),
        (_flag("calc checkallledgerscheck", "--check all-ledgers"),
         _flag("ppc placementpolicycheck", "--check placement"),
         _flag("rc replicascheck", "--check replicas"))),
    Row("initbookie", _only("disk init")),
    Row("initnewcluster", _only("cluster init")),
    Row("lastmark", _only("disk lastmark")),
    Row("ledger", _only("disk index {1}"), _INDEX, "ID"),
    Row("ledgermetadata", _METADATA_FORMS, _METADATA),
    Row("listbookies", _only("bookie list"),
        (*_LIST_BOOKIES, _flag("h hostnames", why="the host is part of the address"))),
    Row("listfilesondisc", _only("disk files"), _FILES),
    Row("listledgers", _only("ledger list"), _LIST_LEDGERS),
    Row("listunderreplicated", _only("autorecovery list"), _UNDERREPLICATED),
    Row("localconsistencycheck", _only("disk check")),
    Row("lostbookierecoverydelay", _DELAY_FORMS, _DELAY),
    Row("metaformat", _only("cluster format"), _METAFORMAT),
    Row("nukeexistingcluster", _only("cluster nuke"), _NUKE),
    Row("queryautorecoverystatus", _only("autorecovery active"),
        (_flag("v verbose", "--output wide"),)),
    Row("readjournal", _only("disk journal {1}"), _JOURNAL, "ID|FILE"),
    Row("readledger", _only("ledger read {l}"), _READ_LEDGER),
    Row("readlog", _only("disk entrylog {1}"), _READ_LOG, "ID|FILE"),
    Row("readlogmetadata", _only("disk entrylog {1} --summary"), (), "ID|FILE",
        _hexadecimal, "a bare number is hexadecimal in this one of Java's commands"),
    Row("rebuild-db-ledger-locations-index", _only("disk rebuild-db --locations")),
    Row("rebuild-db-ledgers-index", _only("disk rebuild-db --ledgers"), (_VERBOSE,), note=_FENCED),
    Row("recover", _only("bookie recover {1} --to={2?}"), _RECOVER, "ID[,ID...] [DEST]", _each),
    Row("regenerate-interleaved-storage-index-file", _only("disk rebuild-index {l}"), _REGENERATE),
    Row("simpletest", _only("cluster test"), _quorums("1000")),
    Row("triggeraudit", _only("autorecovery audit")),
    Row("updateBookieInLedger", _only("bookie rename {sb} {db}"),
        (_value("sb srcBookie", "ID"), _value("db destBookie", "ID"), *_PACE, _TRUE_VERBOSE)),
    Row("updatecookie",
        (("b", "bookie rename {b}"), ("e", "disk expand"), ("l", "cookie list"),
         ("d", "cookie delete --local")),
        (_value("b bookieId", "hostname|ip"), _flag("e expandstorage"), _flag("l list"),
         JavaOption(("d", "delete"), "[force]", "{}", how=lambda _: ["--yes"], fixed="force")),
        note=f"-b {_FLIP_NOTE}"),
    Row("updateledgers", _only("bookie rename {b}"),
        (_value("b bookieId", "hostname|ip"), *_FLIP_PACE, _TRUE_VERBOSE), note=_FLIP_NOTE),
    Row("whatisinstanceid", _only("cluster id")),
    Row("whoisauditor", _only("autorecovery auditor")),
)  # fmt: skip

_LF: Final = _value("lf ledgeridformatter ledgerIdFormatter", "FORMAT", _ID_FORMAT)
_L_FORMAT: Final = _value("l ledgeridformatter ledgerIdFormatter", "FORMAT", _ID_FORMAT)
_EF: Final = _value("ef entryformatter", "FORMAT", _ENTRY_FORMAT)

BKCTL: Final = (
    Row("bookie lastmark", _only("disk lastmark")),
    Row("bookie init", _only("disk init")),
    Row("bookie format", _only("disk format"), _BOOKIEFORMAT,
        note="-n is as documented; Java's bkctl inverts it"),
    Row("bookie endpointinfo", _only("bookie show {b}"), (_value("b bookieid", "ID"),)),
    Row("bookie sanitytest", _only("bookie test"), _SANITY),
    Row("bookie ledger", _only("disk index {id}"),
        (_value("id ledgerId", "ID"), *_INDEX, _L_FORMAT)),
    Row("bookie listfilesondisc", _only("disk files"), _FILES),
    Row("bookie converttodbstorage", _only("disk convert --to db"), (_L_FORMAT,)),
    Row("bookie listledgers", _only("ledger list"),
        (_flag("m meta", "--output wide"), _value("id bookieid", "ID", "--bookie {}"), _L_FORMAT)),
    Row("bookie converttointerleavedstorage", _only("disk convert --to interleaved"), (_L_FORMAT,)),
    Row("bookie readjournal", (("f", "disk journal {f}"), ("", "disk journal {id}")),
        (_flag("m msg", "--payload"), _value("d dir", "DIR", "--dir {}"),
         _value("id journalid", "N"), _value("f filename", "FILE"), _L_FORMAT,
         _value("e entryformatter", "FORMAT", _ENTRY_FORMAT))),
    Row("bookie rebuild-db-ledger-locations-index", _only("disk rebuild-db --locations")),
    Row("bookie rebuild-db-ledgers-index", _only("disk rebuild-db --ledgers"), (_VERBOSE,),
        note=_FENCED),
    Row("bookie check-db-ledgers-index", _only("disk check --db"), (_VERBOSE,)),
    Row("bookie readledger", _only("ledger read {l}"), (*_READ_LEDGER, _LF, _EF)),
    Row("bookie readlog", (("f", "disk entrylog {f}"), ("", "disk entrylog {li}")),
        (*_READ_LOG, _value("f filename", "FILE"), _value("li entrylogid", "N"), _LF, _EF)),
    Row("bookie readlogmetadata",
        (("f", "disk entrylog {f} --summary"), ("", "disk entrylog {l} --summary")),
        (_value("l logid", "N"), _value("f filename", "FILE"), _LF)),
    Row("bookie localconsistencycheck", _only("disk check")),
    Row("bookie flip-bookie-id", (("host", "bookie rename hostname"), ("", "bookie rename ip")),
        (_flag("host hostname"), *_FLIP_PACE, _VERBOSE), note=_FLIP_NOTE),
    Row("bookie regenerate-interleaved-storage-index-file", _only("disk rebuild-index {l}"),
        (_value("l ledgerids", "ID,...", how=_each), _flag("d dryrun", "--dry-run"),
         _value("p password", "TEXT", why=_NOT_TYPED),
         _value("b b64password", "TEXT", why=_NOT_TYPED), _LF)),
    Row("bookies list", _only("bookie list"), _LIST_BOOKIES),
    Row("bookies info", _only("bookie show")),
    Row("bookies nukeexistingcluster", _only("cluster nuke"), _NUKE),
    Row("bookies metaformat", _only("cluster format"), _METAFORMAT,
        note="-n is as documented; Java's bkctl inverts it"),
    Row("bookies decommission", _only("bookie decommission {b?}"), (_value("b bookieid", "ID"),)),
    Row("bookies init", _only("cluster init")),
    Row("bookies recover", (("bs", "bookie recover {bs}"), ("", "bookie recover {1} --to={2?}")),
        (*_RECOVER, _value("bs bokiesrc", "ID", how=_each)), "[ID[,ID...]]", _each),
    Row("bookies instanceid", _only("cluster id")),
    Row("autorecovery whoisauditor", _only("autorecovery auditor")),
    Row("autorecovery triggeraudit", _only("autorecovery audit")),
    Row("autorecovery toggle",
        (("e", "autorecovery enable"), ("s", "autorecovery status"), ("", "autorecovery disable")),
        _SWITCH, note="without an option it disables, as Java's does"),
    Row("autorecovery listunderreplicated", _only("autorecovery list"),
        (*_UNDERREPLICATED, _L_FORMAT)),
    Row("autorecovery lostbookierecoverydelay", _DELAY_FORMS, _DELAY),
    Row("cookie create", _only("cookie create {1}"), _COOKIE_FILE, "ID"),
    Row("cookie delete", _only("cookie delete {1}"), (), "ID"),
    Row("cookie get", _only("cookie show {1}"), (), "ID"),
    Row("cookie update", _only("cookie update {1}"), _COOKIE_FILE, "ID"),
    Row("cookie generate", _only("cookie generate {1}"), _GENERATE, "ID"),
    Row("cookie admin",
        (("host", "bookie rename hostname"), ("p", "bookie rename ip"), ("e", "disk expand"),
         ("l", "cookie list"), ("d", "cookie delete --local")),
        (_flag("host hostname"), _flag("p ip"), _flag("e expandstorage"), _flag("l list"),
         _flag("d delete"), _YES), note=f"-host and -ip: {_FLIP_NOTE}"),
    Row("ledger simpletest", _only("cluster test"), _quorums("100")),
    Row("ledger delete", _only("ledger delete {l}"), (*_DELETE, _LF)),
    Row("ledger show",
        (("d", "ledger metadata dump {l} {d}"), ("r", "ledger metadata restore {l} {r} {u?}"),
         ("", "ledger show {l}")),
        (_LEDGER, _value("d dumptofile", "FILE"), _value("r restorefromfile", "FILE"),
         JavaOption(("u", "update"), how=_replace, fixed="-"), _LF)),
    Row("bookieid searchreplace", _only("bookie rename {f} {t}"),
        (_value("f from", "ID"), _value("t to", "ID"), _value("m max", "N", "--limit {}"),
         _value("r rate", "N", "--rate {}"), _flag("dry-run", "--dry-run"), _VERBOSE)),
    Row("healthCheck switch",
        (("e", "cluster health-check enable"), ("s", "cluster health-check"),
         ("", "cluster health-check disable")),
        _SWITCH, note="without an option it disables, as Java's does"),
)  # fmt: skip

LAUNCHER: Final = (
    Row("localbookie", _only("local {1} --zookeeper"), (), "N",
        note="a configuration file after N is not read; --set KEY=VALUE"),
    Row("standalone", _only("standalone")),
    Row("zookeeper", _only("local zookeeper")),
    Row("upgrade", _only("disk upgrade"),
        (_flag("u upgrade", "--upgrade"), _flag("f finalize", "--finalize"),
         _flag("r rollback", "--rollback"), _value("c conf", "FILE", "--conf {}"))),
)  # fmt: skip
"""The commands of ``bin/bookkeeper`` that bkctl has."""

ELSEWHERE: Final = (
    UnsupportedCommand("bookkeeper bookie", "bookied --conf FILE, with Java's long options"),
    UnsupportedCommand("bookkeeper autorecovery", "bookied autorecovery --conf FILE"),
    UnsupportedCommand("bookkeeper help", "bkctl help; bookied --help"),
    UnsupportedCommand("bookkeeper CLASS", "not offered: there are no classes to run"),
    UnsupportedCommand("bookkeeper-daemon.sh start bookie", "systemctl start bookied"),
    UnsupportedCommand("bookkeeper-daemon.sh stop bookie", "systemctl stop bookied"),
    UnsupportedCommand("bookkeeper-cluster.sh", "not offered: units on the hosts do it"),
    UnsupportedCommand("bkperf journal append", "bkctl bench journal"),
    UnsupportedCommand("bkperf dlog", "not offered: DistributedLog is another product"),
    UnsupportedCommand("dlog", "not offered: DistributedLog is another product"),
    UnsupportedCommand("bkctl cluster init", "not offered: it is the table service's"),
    UnsupportedCommand("bkctl namespace", "not offered: it is the table service's"),
    UnsupportedCommand("bkctl table", "not offered: it is the table service's"),
    UnsupportedCommand("bkctl tables", "not offered: it is the table service's"),
)
"""The commands of Java's tools that bkctl does not have."""

SHELL_GLOBALS: Final = {"conf": "--conf", "ledgeridformat": "--ledger-id-format",
                        "entryformat": "--entry-format"}  # fmt: skip
"""Options of ``bookkeeper shell`` itself, each with a value."""

BARE: Final = {("bookies metaformat", "nonInteractive"), ("bookie readlog", "msg")}
"""Options that Java's bkctl accepts without a dash, by mistake."""

ROWS: Final[Mapping[str, Row]] = {row.java: row for row in (*SHELL, *BKCTL, *LAUNCHER)}
