"""Suggestions for unknown words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

T = TypeVar("T")


def _of_each_word(table: Mapping[str, T]) -> Mapping[str, T]:
    """Return a table with one key for each word, separated by ``|``, at the end of a key."""
    keys = ((key.rpartition(" "), found) for key, found in table.items())
    return {
        f"{scope}{space}{word}": found
        for (scope, space, words), found in keys
        for word in words.split("|")
    }


ELSEWHERE: Final[Mapping[str, tuple[str, ...]]] = {
    "add": ("append",),
    "cat": ("read", "tail", "peek", "show"),
    "check": ("verify", "doctor"),
    "count": ("show",),
    "describe": ("show",),
    "follow": ("tail",),
    "inspect": ("show",),
    "health": ("doctor", "status"),
    "ls": ("list", "tree"),
    "read": ("tail", "show"),
    "drain": ("decommission",),
    "df": ("usage", "map"),
    "dump": ("show", "read"),
    "remove": ("delete", "decommission"),
    "repair": ("recover", "audit"),
    "replace": ("decommission",),
    "rm": ("delete",),
    "info": ("show", "status"),
    "get": ("show", "read"),
    "new": ("create",),
    "pause": ("disable",),
    "resume": ("enable",),
    "scrub": ("verify",),
    "set": ("config-set",),
    "size": ("show",),
    "stat": ("show", "status"),
    "usage": ("map",),
    "write": ("append",),
}
"""Words of shells, of `zkCli.sh` and of our other groups, and the commands that do the same."""

_COPY: Final = (
    "ledger read LEDGER_ID --length-prefixed | bkctl -u URI ledger write - --length-prefixed"
)

COMPARE: Final = "ledger read {} {} --bookie all"
"""The command that compares the copies of an entry; formatted with the ledger and the entry."""

_COMPARE: Final = COMPARE.format("LEDGER_ID", "ENTRY")

_COMPARE_BACKUP: Final = "cluster restore FILE --force root --dry-run"

COMPARE_BACKUPS: Final = (
    f"`bkctl {_COMPARE_BACKUP}` compares a backup with the cluster; `diff FILE FILE` two backups"
)

_RACKS: Final = "ledger_id,state,racks,racks_min"

_OF_LOST: Final = ("autorecovery list", "ledger list --bookie LOST_BOOKIE_ID")

_LARGEST: Final = ("disk usage --ledgers -c FILE", "ledger list -o wide --sort-by stored:desc")

_BALANCE: Final = ("bookie show --ledgers", "explain balance")
"""The commands that show the load of bookies and explain how to move it."""

_SLOW: Final = ("bookie slow", "cluster ping --watch=1s", "top")

_RESTART: Final = ("autorecovery disable --for 30m", "bookie ready BOOKIE_ID --until healthy")
"""The commands before and after the restart of a bookie."""

_RESTORE: Final = "cluster restore FILE"

_LINES: Final[Mapping[str, tuple[str, ...]]] = {
    "autorecovery history": ("autorecovery list",),
    "autorecovery lost": ("autorecovery list", "doctor"),
    "bookie bench": ("bench write", "bench journal DIR"),
    "bookie df": ("bookie show",),
    "bookie ledgers": ("ledger list --bookie BOOKIE_ID", "disk usage --ledgers -c FILE"),
    "bookie lost": ("doctor", "bookie list"),
    "bookie stats": ("bookie metrics BOOKIE_ID", "top"),
    "bookie upgrade": ("disk upgrade -c FILE",),
    "bookie drain": ("bookie decommission BOOKIE_ID --drain",),
    "bookie usage": ("bookie show --ledgers", "disk usage --ledgers -c FILE"),
    "bookie balance|load|rebalance": _BALANCE,
    "cluster balance|load|rebalance": _BALANCE,
    "cluster compare|diff": (_COMPARE_BACKUP, "config diff FILE FILE"),
    "cluster doctor": ("doctor",),
    "cluster df|usage": ("cluster map", "ledger list --total"),
    "root balance|load|rebalance": _BALANCE,
    "root backup": ("cluster backup FILE",),
    "root check": ("doctor", "ledger verify --all"),
    "root compact": ("bookie gc BOOKIE_ID",),
    "root connect": ("profile create NAME -u URI --use",),
    "root describe|show": ("ledger show LEDGER_ID", "bookie show BOOKIE_ID"),
    "root entry": ("ledger read LEDGER_ID ENTRY", _COMPARE),
    "root events": ("cluster watch",),
    "root export-ledger": ("export LEDGER_ID --to DIR",),
    "root get|ls": ("ledger list", "bookie list"),
    "root java": ("compat JAVA_COMMAND",),
    "root metadata": ("cluster backup FILE", "cluster tree"),
    "root metrics": ("bookie metrics BOOKIE_ID", "top"),
    "root migrate": ("disk upgrade", "disk convert"),
    "root move": ("bookie decommission BOOKIE_ID", "bookie rename OLD NEW"),
    "root rename": ("bookie rename OLD NEW",),
    "root repair": ("doctor", "bookie decommission BOOKIE_ID", "bookie recover BOOKIE_ID"),
    "root restore": (_RESTORE,),
    "root retire": ("bookie decommission BOOKIE_ID",),
    "root drain": ("bookie decommission BOOKIE_ID --drain",),
    "root latency|slow|trace": _SLOW,
    "root maintenance": ("autorecovery disable --for 30m", "bookie readonly BOOKIE_ID on"),
    "root restart": ("local restart DIR [BOOKIE_ID]", *_RESTART),
    "root rolling-restart": _RESTART,
    "root set": ("bookie config-set BOOKIE_ID KEY=VALUE",),
    "root start": ("local N --dir DIR --background",),
    "root stop": ("local stop DIR",),
    "ledger health|check-replicas": ("ledger verify LEDGER_ID",),
    "ledger stats|status": ("ledger show LEDGER_ID",),
    "ledger open": ("ledger list --state open",),
    "ledger abandoned|dead|idle|stale": ("doctor --open-for 1h", "ledger list --state open"),
    "ledger restore|undelete|undo": (f"{_RESTORE} --ledger LEDGER_ID",),
    "cluster metrics": ("top", "bookie metrics BOOKIE_ID"),
    "disk clean|compact|compaction|gc": ("bookie gc BOOKIE_ID --wait",),
    "disk find": ("disk ledger LEDGER_ID -c FILE",),
    "ledger disk-usage|top": _LARGEST,
    "ledger size": ("ledger show LEDGER_ID", "bookie show BOOKIE_ID --ledgers"),
    "ledger head": ("ledger read LEDGER_ID 0-4",),
    "ledger who|writer": ("ledger map LEDGER_ID", "ledger show LEDGER_ID"),
    "log follow": ("log tail NAME --follow",),
    "log alter|change|config|edit|set|update": ("log create NAME --roll-after 1d", "log show NAME"),
    "log consume": ("log tail NAME --cursor CURSOR --follow",),
    "log status": ("log show NAME",),
    "log lag": ("log cursors NAME",),
    "root format": ("cluster format", "disk format"),
    "root info": ("cluster status", "bookie show", "ledger show LEDGER_ID"),
    "root cordon|quarantine": ("bookie readonly BOOKIE_ID on",),
    "root status": ("doctor", "cluster status"),
    "root rack|racks": ("cluster map", "explain rack"),
    "root read": ("ledger read LEDGER_ID",),
    "root write": ("ledger write FILE",),
    "root ping": ("cluster ping",),
    "root health": ("doctor",),
    "root support": ("debug bundle",),
    "root df|usage": ("ledger list --total", "cluster map", "disk usage -c FILE"),
    "root under-replicated|underreplicated": _OF_LOST,
    "root verify": ("ledger verify --all",),
    "autorecovery off|stop": ("autorecovery disable --for 30m",),
    "autorecovery on|start": ("autorecovery enable",),
    "autorecovery progress": ("autorecovery active", "autorecovery list --watch"),
    "autorecovery limit|rate|speed|throttle": ("config show replicationRateByBytes",),
    "autorecovery watch": ("autorecovery active --watch", "autorecovery list --watch"),
    "bookie ban|disable|isolate|maintenance|quarantine|cordon|set-readonly": (
        "bookie readonly BOOKIE_ID on",
    ),
    "bookie check": ("bookie test BOOKIE_ID", "doctor"),
    "bookie enable|read-write|writable|uncordon": ("bookie readonly BOOKIE_ID off",),
    "bookie evict|kick|retire": ("bookie decommission BOOKIE_ID",),
    "bookie find|owner": ("bookie show BOOKIE_ID", "bookie list -o wide"),
    "bookie health": ("bookie state BOOKIE_ID", "doctor"),
    "bookie kill|stop": ("local stop DIR BOOKIE_ID",),
    "bookie log|logs": ("local status DIR -o wide",),
    "bookie ping": ("cluster ping", "bookie test BOOKIE_ID"),
    "bookie rack|racks": ("cluster map", "explain rack"),
    "bookie set-rack": ("explain rack", "cluster map"),
    "bookie restart": ("local restart DIR BOOKIE_ID", *_RESTART),
    "bookie status": ("bookie state BOOKIE_ID", "bookie show BOOKIE_ID"),
    "bookie version": ("version --all",),
    "bookie add": ("disk init", "disk expand"),
    "bookie add-disk|expand": ("disk expand",),
    "bookie disk|disks": ("bookie show BOOKIE_ID", "cluster map", "disk usage -c FILE"),
    "bookie latency": _SLOW,
    "bookie move": ("bookie decommission BOOKIE_ID", "bookie rename OLD NEW"),
    "bookie start": ("local start DIR BOOKIE_ID",),
    "cluster health": ("cluster status", "doctor"),
    "cluster top": ("top",),
    "cluster rack|racks": ("cluster map", "explain rack"),
    "cluster check": ("doctor", "cluster ping"),
    "cluster events|history": ("cluster watch",),
    "cluster start": ("local N --dir DIR --background",),
    "cluster stop": ("local stop DIR",),
    "cluster rebuild|undo": (_RESTORE,),
    "cluster restart|rolling-restart": _RESTART,
    "cluster wait": ("cluster status --until healthy",),
    "cluster verify": ("ledger verify --all",),
    "config search": ("config show '*PART*'",),
    "config compare": ("config diff FILE FILE",),
    "debug collect": ("debug bundle",),
    "disk add": ("disk expand",),
    "disk list|ls": ("disk files", "disk ledgers"),
    "disk lock|owner": ("disk lock-status DIR",),
    "disk move": ("cookie repair",),
    "disk replace": ("doctor -c FILE", "explain BK-WRONG-IDENTITY"),
    "disk show": ("disk files", "disk usage"),
    "ledger bookies|lac|locate": ("ledger map LEDGER_ID",),
    "ledger rack|racks": (f"ledger list --columns {_RACKS}", "ledger list --one-rack"),
    "ledger compare|diff": (_COMPARE, "ledger verify LEDGER_ID"),
    "ledger copies|replicas": ("ledger map LEDGER_ID", "ledger verify LEDGER_ID", _COMPARE),
    "ledger entry": ("ledger read LEDGER_ID ENTRY", _COMPARE),
    "ledger gc": ("ledger orphans --keep-file FILE", "bookie gc BOOKIE_ID"),
    "ledger copy|cp": (_COPY,),
    "ledger balance|migrate|move|rebalance": (
        "bookie recover OLD --ledger LEDGER_ID --to NEW",
        "explain balance",
    ),
    "ledger count": ("ledger list --count",),
    "ledger export": ("export LEDGER_ID --to DIR", "ledger read LEDGER_ID -o jsonl"),
    "ledger find": ("ledger list", "ledger map LEDGER_ID"),
    "ledger leaked|unused": ("ledger orphans --keep-file FILE",),
    "ledger prune": ("ledger list --older-than 30d -o id | bkctl ledger delete -",),
    "ledger repair": (
        "ledger verify LEDGER_ID",
        "bookie recover BOOKIE_ID --ledger LEDGER_ID",
        "autorecovery audit --check all-ledgers",
    ),
    "ledger rereplicate": ("bookie recover BOOKIE_ID --ledger LEDGER_ID",),
    "ledger under-replicated|underreplicated": _OF_LOST,
    "profile current": ("profile show",),
    "profile mv|rename": ("profile create NEW -u URI", "profile delete OLD"),
    "profile set": ("profile edit NAME -X KEY=VALUE",),
    "log write": ("log append NAME", "log create NAME"),
    "log cut|truncate": ("log trim NAME",),
    "log takeover": ("log append NAME",),
    "log export": ("export --log NAME --to DIR", "log tail NAME --before INDEX:ENTRY"),
    "topic consume|read|tail": ("topic peek TOPIC",),
}

LINES: Final = _of_each_word(_LINES)
"""Commands that people look for, and the lines that replace them. ``root`` precedes any group."""

_OF_OBJECTS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "bookie": (r".+:\d+", ("bookie show {}",)),
    "ledger": (r"\d+|0x[0-9a-fA-F]+", ("ledger show {}", "ledger read {}")),
    "metadata": (r"\d+|0x[0-9a-fA-F]+", ("ledger show {}", "ledger metadata dump {} FILE")),
    "log": (r".+", ("log tail {}", "log show {}")),
    "topic": (r".+", ("topic peek {}", "topic show {}")),
}
"""Groups that people follow with an object: the object's pattern, and the likely lines."""

_SECURITY: Final = (
    "TLS and logins are settings of the client, by -c FILE or -X KEY=VALUE: "
    "`bkctl config show tls jaas` explains the keys"
)
_LOCAL_SECURITY: Final = (
    "use --set KEY=VALUE: `bkctl config show --for bookie tls jaas` explains the keys"
)
_TAKEN_FROM_METADATA: Final = "the password is in the ledger's metadata, and is taken from there"
_TLS_FILES: Final = "use --ca-file, --cert-file and --key-file"
_ONE_ENTRY: Final = f"`bkctl {_COMPARE}` reads the copies of one entry, or of FIRST-LAST"
_FIND_AND_DELETE: Final = "use `bkctl ledger list {} -o id | bkctl ledger delete -`"
_FIND_AND_CLOSE: Final = (
    "use `bkctl ledger list --state open --older-than 1h -o id | bkctl ledger close -`"
)
_WRITERS: Final = (
    "metadata does not show whether a writer runs: `bkctl doctor --open-for 1h` lists ledgers that "
    "are open for longer, `bkctl ledger tail LEDGER_ID -f -n 0` prints new entries"
)
_EACH_BOOKIE: Final = "use `bkctl bookie list -o id | xargs -n1 bkctl bookie {}`"
_BY_SIZE: Final = "use --filter 'length>10MB'"
_NEW_FILE: Final = "it never replaces a file: give another name"
_ORPHANS: Final = "`bkctl ledger orphans --keep-file FILE` lists unused ledgers"
_RANGE: Final = "`bkctl ledger read LEDGER_ID 0-4` prints the first five entries"
_LAST_ENTRIES: Final = "`bkctl ledger tail LEDGER_ID -n 5` prints the last five entries"
_UNREAD: Final = "give --before the lowest position that `bkctl log cursors NAME` shows"
_LACKING: Final = (
    "`bkctl autorecovery list` lists marked ledgers; `bkctl ledger list --bookie ID` lists all "
    "ledgers of a lost bookie"
)
_GROUPS: Final = (
    "`bkctl ledger list --columns custom.KEY,stored -o csv` prints the bytes to add up for each KEY"
)
_THRESHOLDS: Final = (
    "the status is 5 if a bookie does not answer; `bkctl bench write --fail-if 'p99>50ms'` has "
    "thresholds"
)
_BY_AGE: Final = "use --filter 'created>1d' for ledgers of the last day"

_OPTIONS: Final[Mapping[str, str]] = {
    "--password|--sasl|--tls|--tls-ca|--user|--username": _SECURITY,
    "--zk|--zookeeper": "name the cluster by -u 'zk+hierarchical://HOST:PORT/ledgers'",
    "local --password|--sasl|--tls": _LOCAL_SECURITY,
    "cluster ping --fail-if": _THRESHOLDS,
    "cluster test --fail-if": _THRESHOLDS,
    "cluster status --all": "use --ledgers to count the ledgers; `bkctl bookie list` has bookies",
    "disk entrylog --ledgers": "use --summary",
    "disk --dir": "name the directories as DIR, by --ledger-dir and --journal-dir, or by -c FILE",
    "cluster backup --compare|--diff": COMPARE_BACKUPS,
    "cluster restore --compare|--diff": COMPARE_BACKUPS,
    "cluster backup --file|--out|--to": "FILE is an argument: `bkctl cluster backup FILE`",
    "cluster restore --file|--from": "FILE is an argument: `bkctl cluster restore FILE`",
    "export --all": "`--since-last` exports all ledgers to a new directory, and later what is new",
    "export --format json|jsonl": "`bkctl ledger read LEDGER_ID -o jsonl` prints entries as JSON; "
    "`bkctl shell` runs one such line for each ledger from stdin",
    "export --format raw": "`bkctl ledger read LEDGER_ID --raw --out FILE` writes the payloads",
    "ledger --password|--password-file": _TAKEN_FROM_METADATA,
    "ledger create --password": "use --password-file FILE",
    "ledger write --password": "use --password-file FILE",
    "ledger delete --meta": _FIND_AND_DELETE.format("--meta KEY=VALUE"),
    "ledger delete --created-before|--older-than": _FIND_AND_DELETE.format("--older-than 30d"),
    "ledger create --copies|--replicas": "use -W for copies of each entry",
    "ledger write --copies|--replicas": "use -W for copies of each entry",
    "ledger read --from|--start": "name the entries: `bkctl ledger read 42 100-199`",
    "doctor --orphans": _ORPHANS,
    "ledger list --exclude-file|--not-in-log|--orphans|--unused": _ORPHANS,
    "ledger close --all|--older-than|--state": _FIND_AND_CLOSE,
    "ledger recover --all|--older-than|--state": _FIND_AND_CLOSE,
    "ledger list --abandoned|--dead|--idle|--no-writer|--stale": _WRITERS,
    "ledger list --fail-if|--fail-if-any": "`-o json | jq -e '.ledgers == []'` ends with 1 if "
    "there are any",
    "bookie list --fail-if|--fail-if-any": "`bkctl cluster status --fail-if-any` has status 10 if "
    "there is any problem",
    "cluster backup --keep": "the command writes one file: `ls -t DIR/*.jsonl | tail -n +8 | "
    "xargs -r rm --` keeps the last seven",
    "top --demo": "`bkctl local 3` starts bookies, `bkctl bench write` writes to them",
    "ledger list --created-after": "use --filter 'created>=2026-01-31'",
    "ledger list --created-before": "use --older-than 30d, or --filter 'created<2026-01-31'",
    "export --older-than": "use --created-before 30d",
    "ledger list --newer|--newer-than|--since": _BY_AGE,
    "ledger list --by|--group|--group-by": _GROUPS,
    "ledger list --larger|--larger-than|--min-size|--size": _BY_SIZE,
    "ledger list --smaller|--smaller-than": "use --filter 'length<10MB'",
    "ledger list --slow": "`bkctl bookie slow` names slow bookies",
    "ledger list --state under-replicated|underreplicated": _LACKING,
    "ledger list --state recovering": "use --state in-recovery",
    "ledger list --under-replicated|--underreplicated": _LACKING,
    "cluster backup --force|--overwrite": _NEW_FILE,
    "bookie gc --all": _EACH_BOOKIE.format("gc --wait"),
    "bookie list --disk|--disks|--free": "the columns FREE and TOTAL are of the bookie's disks",
    "bookie list --ledgers|--load": "`bkctl bookie show --ledgers` counts ledgers and bytes of "
    "each bookie",
    "log create --label|--meta|--metadata": "a log has no custom metadata; name what it is for in "
    "its NAME",
    "bookie list --limit": "add `| head -n N`; --sort-by used:desc puts the fullest first",
    "bookie list --all": "it lists all bookies; --state selects some",
    "bench --ensemble": "`bkctl bench write --ensemble N` measures adds to N bookies",
    "ledger verify --entries|--entry": _ONE_ENTRY,
    "ledger verify --bookie": "use `bkctl ledger list --bookie ID -o id | bkctl ledger verify -`",
    "ledger --lac": "`bkctl ledger map LEDGER_ID` asks the bookies",
    "bookie list --state up": "use --state writable",
    "bookie list --state lost": "use --state down",
    "bookie config --set": "`bkctl bookie config-set BOOKIE_ID KEY=VALUE` changes settings",
    "bookie readonly --off": "`off` is an argument: `bkctl bookie readonly BOOKIE_ID off`",
    "bookie readonly --on": "`on` is an argument: `bkctl bookie readonly BOOKIE_ID on`",
    "bookie list --slow": "`bkctl bookie slow` names slow bookies",
    "ledger read --count|--head|--limit": _RANGE,
    "ledger read --tail|-n": _LAST_ENTRIES,
    "ledger read --output raw": "use --raw; with --out FILE the bytes go to FILE",
    "doctor --brief|--short": "use -q: it prints only results and errors",
    "doctor --disk": "use --full 80%",
    "ledger read --entries": "give the range as an argument: `bkctl ledger read LEDGER_ID 5-9`",
    "ledger read --to": "use --out FILE",
    "log append --create": "`bkctl log create NAME` creates the log",
    "log trim --cursor|--cursors|--read": _UNREAD,
    "log trim --keep": "use --keep-entries N or --keep-ledgers N",
    "log tail --since": "entries have no times; use --from INDEX:0 of a ledger by `bkctl log show`",
    "profile --tls|--tls-ca|--tls-cert": _TLS_FILES,
    "topic export --out": "FILE is an argument: `bkctl topic export TOPIC FILE`",
}

OPTIONS: Final = _of_each_word(_OPTIONS)
"""Options that people try, after the command or its group, and their replacements."""

_SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    "--sort": ("--sort-by",),
    "--where": ("--filter",),
    "bench --duration|--seconds|--time": ("--for",),
    "bookie config --changed|--diff": ("--filter", "origin!=default"),
    "bench --max-p99|--p99-max": ("--fail-if", "p99>{}"),
    "bookie gc-status --all": (),
    "bookie ready --wait": ("--until", "healthy"),
    "cluster format --override": ("--force",),
    "doctor --wait": ("--until", "healthy"),
    "export --closed": ("--state", "closed"),
    "export --incremental": ("--since-last",),
    "export --label": ("--meta",),
    "export --out": ("--to",),
    "ledger create --custom-metadata|--label|--metadata": ("--meta",),
    "ledger list --closed": ("--state", "closed"),
    "ledger list --label": ("--meta",),
    "ledger list --open": ("--state", "open"),
    "ledger list --by-rack|--rack|--racks": ("--columns", _RACKS),
    "ledger list --single-rack": ("--one-rack",),
    "ledger list -n": ("--limit",),
    "ledger list --sum": ("--total",),
    "ledger list --sum length|bytes|size": ("--total",),
    "ledger map --entry": ("{}",),
    "ledger read --all-bookies|--compare|--copies|--replicas": ("--bookie", "all"),
    "ledger read --entry": ("{}",),
    "ledger read --text": ("--entry-format", "string"),
    "ledger tail --text": ("--entry-format", "string"),
    "ledger tail --no-follow": ("--exit-at-end",),
    "ledger write --custom-metadata|--label|--metadata": ("--meta",),
    "log append -f": ("--file",),
    "log tail --end|--to|--until": ("--before",),
    "log tail --consumer|--group|--reader": ("--cursor",),
    "log tail --text": ("--entry-format", "string"),
    "log tail --no-follow": ("--exit-at-end",),
    "metaformat --force ledgers": ("--override", "ledgers"),
    "metaformat --force live-bookies": ("--override", "live-bookies"),
}

SYNONYMS: Final = _of_each_word(_SYNONYMS)
"""Other names of options, after the command or its group, and the words that replace each.

A key may end with the option's value; in the words ``{}`` is the value.
"""


def in_own_options(args: Sequence[str], path: str) -> list[str]:
    """Return the arguments of the command at ``path``, with other names of its options replaced."""
    left, end = list(args), args.index("--") if "--" in args else len(args)
    found: list[str] = []
    while left and len(args) - len(left) < end:
        name, equals, value = left.pop(0).partition("=")
        following = value if equals else left[0] if left else ""
        words = _of_option(f"{name} {following}", path, SYNONYMS)
        takes_value = words is not None
        words = words or _of_option(name, path, SYNONYMS)
        if words is None:
            found.append(name + equals + value)
            continue
        takes_value = takes_value or any("{}" in word for word in words)
        found += [word.replace("{}", following) for word in words]
        if equals and not takes_value:
            found.append(value)
        elif takes_value and not equals and left:
            left.pop(0)
    return found + left


_ONE_BOOKIE: Final = "name one bookie; decommission the next one after it"

ARGUMENTS: Final = (
    (
        "bkctl bookie gc",
        "missing argument 'BOOKIE_ID'",
        "for all bookies: `bkctl bookie list -o id | xargs -n1 bkctl bookie gc --wait`",
    ),
    ("bkctl bookie decommission", "unexpected argument: ", _ONE_BOOKIE),
    ("bkctl decommission", "unexpected argument: ", _ONE_BOOKIE),
    ("bkctl local", "it is for `local N`", "for example: `bkctl local 3 --dir DIR --background`"),
    (
        "bkctl ledger map",
        "is not a whole number",
        "name one ENTRY; without ENTRY the command shows all entries",
    ),
    ("bkctl ledger list", "is not KEY=VALUE", "--filter custom=KEY keeps ledgers with any value"),
    ("bkctl disk ", "unexpected argument: ", "name the bookie by -c FILE"),
    (
        "bkctl ledger read",
        " is not a ledger id",
        "the command reads one ledger; FIRST-LAST are entries: `bkctl ledger read LEDGER_ID 7-8`",
    ),
    ("bkctl export", " is not a ledger id", "`bkctl export --log NAME --to DIR` exports a log"),
    (
        "bkctl ledger map",
        "missing argument 'LEDGER_ID'",
        "name a ledger of `bkctl ledger list`; `bkctl cluster map` draws all bookies",
    ),
    (
        "bkctl log tail",
        "unexpected argument: ",
        "`bkctl log tail NAME --from 0:100 | head -n 11` prints 11 entries from 0:100 on",
    ),
    ("bkctl ledger read", "unexpected argument: ", "give the range as FIRST-LAST, as in 10-14"),
)
"""The begin of a command's path, a part of an error about its arguments, and the hint for it."""


def about_arguments(path: str, message: str) -> str:
    """Return the hint for wrong arguments of the command at ``path``; "" if unknown."""
    found = (
        hint for prefix, part, hint in ARGUMENTS if path.startswith(prefix) and part in message
    )
    return next(found, "")


def instead_of(option: str, path: str) -> str:
    """Return the replacement of an option that the command at ``path`` does not have, or ""."""
    return _of_option(option, path, OPTIONS) or ""


def _of_option(option: str, path: str, table: Mapping[str, T]) -> T | None:
    """Return a table's value for an option of the command at ``path``, or of its groups."""
    words = path.split()[1:]
    scopes = (" ".join([*words[:count], option]) for count in range(len(words), -1, -1))
    return next((table[scope] for scope in scopes if scope in table), None)


def lines_for_object(group: str, word: str) -> list[str]:
    """Return command lines for an object in the place of a group's command."""
    import re
    import shlex

    pattern, lines = _OF_OBJECTS.get(group, ("", ()))
    found = lines if re.fullmatch(pattern, word) else ()
    return [line.format(shlex.quote(word)) for line in found]


def nearest(word: str, known: Iterable[str], *, count: int = 1, least: float = 0.6) -> list[str]:
    """Return the known words most similar to ``word``, ignoring case; the best first."""
    import difflib

    by_lower: Mapping[str, str] = {one.lower(): one for one in known}
    near = difflib.get_close_matches(word.lower(), by_lower, n=count, cutoff=least)
    return [by_lower[one] for one in near]


def keys_like(word: str, known: Iterable[str]) -> list[str]:
    """Return the known keys that a pattern with ``*`` matches or that contain ``word``.

    A key with exactly this name is the only result. The comparison ignores case.
    """
    import fnmatch

    keys = list(known)
    if word in keys:
        return [word]
    pattern = word.lower() if "*" in word else f"*{word.lower()}*"
    return [key for key in keys if fnmatch.fnmatchcase(key.lower(), pattern)]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean NAME?`` for the end of an error, or ""."""
    near = nearest(word, known)
    return f"; did you mean {near[0]}?" if near else ""


def no_such_bookie(bookie_id: str, known: Iterable[str]) -> str:
    """Return the error for a bookie that is neither registered nor has a cookie."""
    similar = similar_bookie(bookie_id, known)
    return (
        f"bookie {bookie_id} is not registered and has no cookie, as after a decommission{similar}"
    )


_ID_ALIKE: Final = 0.8


def similar_bookie(bookie_id: str, known: Iterable[str]) -> str:
    """Return ``; did you mean ID?``, or "" if the nearest id differs only in its digits.

    Ids that differ in digits are other bookies: the bookies of a cluster have similar addresses.
    """
    import re

    near = nearest(bookie_id, known, least=_ID_ALIKE)
    is_other = near and re.sub("[0-9]", "0", near[0]) == re.sub("[0-9]", "0", bookie_id)
    return f"; did you mean {near[0]}?" if near and not is_other else ""


def meant_elsewhere(word: str, known: Iterable[str]) -> list[str]:
    """Return the known commands for another tool's ``word``."""
    there = frozenset(known)
    return [one for one in ELSEWHERE.get(word, ()) if one in there]
