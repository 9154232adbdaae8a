"""Commands' requests to a bookie over HTTP: v2 for bookied, v1 for Java's, with equal results."""

from __future__ import annotations

import functools
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, get_args, get_type_hints

import attrs

from bkclient.config.declaration import MASKED, declared, is_secret_key
from bkclient.metadata.errors import MetadataUnavailableError, NotFoundError
from bkctl.bookies.admin_client import TIMEOUT_S, AdminClient, HttpAddress
from bkctl.errors import CommandError, ConflictError, NothingFoundError, UsageError
from bkctl.output.forms.value_text import safe
from bkctl.output.units import human_duration
from bkctl.output.views import BOOKIE, WIDE, Column, Kind, field, shown
from bkctl.session.cluster_settings import client_config, cluster_properties
from bkctl.session.profiles import of_user
from bkctl.suggest import did_you_mean, keys_like, no_such_bookie

if TYPE_CHECKING:
    from bkclient.client import Client
    from bkclient.config.client import ClientConfig
    from bkctl.session.session import Session
    from wire.ids import BookieId
    from wire.records.service_info import BookieServiceInfo

P = ParamSpec("P")
T = TypeVar("T")

HTTP: Final = "http"
HTTPS: Final = "https"

_ANY_ADDRESS: Final = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 -- what a bookie published


# Values ----------------------------------------------------------------------------------------


_READ_ONLY: Final = Column("read_only", "Whether the bookie refuses adds.")


@shown("bookies", kw_only=True, healthy=lambda v: v.registered is not False and not v.read_only)
class RunningBookie:
    """The state of a bookie; None for what a Java bookie does not report."""

    bookie_id: str = field(BOOKIE)
    state: str = field("starting, writable, read-only or stopping.")
    read_only: bool = field(_READ_ONLY)
    read_only_by_hand: bool | None = field(
        "Whether an operator made the bookie read-only.", default=None
    )
    takes_recovery_adds: bool = field("Whether the bookie accepts the adds of recovery and repair.")
    registered: bool | None = field(
        "Whether the bookie is registered in the metadata, so that clients find it.", default=None
    )
    uptime_s: float | None = field("Time since the bookie's start.", name="uptime", default=None)


@shown(
    "modes",
    sentence=lambda v: f"bookie {v.bookie_id} is {'read-only' if v.read_only else 'writable'}",
)
class BookieMode:
    """The mode of a bookie: read-only or writable."""

    bookie_id: str = field(BOOKIE)
    read_only: bool = field(_READ_ONLY)


_SINCE: Final = "since the bookie started; of `gc --wait` in this collection"


def _last_round(v: GarbageRun) -> str:
    if v.last_ms is None:
        return "never" if v.rounds == 0 else "-"
    return f"{human_duration(max(0.0, time.time() - v.last_ms / 1000))} ago"


@shown("collectors", kw_only=True, done=lambda v: not v.running)
class GarbageRun:
    """One collector of a bookie; times are milliseconds since the epoch."""

    bookie_id: str | None = field(BOOKIE, default=None)
    number: int = field("Number of the bookie's storage, from 0.", header="NO", rank=4)
    running: bool = field("Whether a collection runs now.")
    compacting: str | None = field("The compaction that runs now: major or minor.", rank=2)
    last_ms: int | None = field(
        "End of the last round.",
        name="last_round",
        header="LAST",
        rank=2,
        default=None,
        cell=_last_round,
        cell_of_none=True,
    )
    next_ms: int | None = field(
        "Start of the next round.",
        name="next_round",
        header="NEXT",
        rank=2,
        default=None,
        cell=lambda v: f"in {human_duration(max(0.0, v.next_ms / 1000 - time.time()))}",
    )
    rounds: int | None = field(f"Rounds {_SINCE}.", rank=5, default=None)
    minor_compactions: int = field(f"Minor compactions {_SINCE}.", header="MINOR", rank=3)
    major_compactions: int = field(f"Major compactions {_SINCE}.", header="MAJOR", rank=3)
    last_minor_ms: int | None = field(
        "End of the last minor compaction; before the first one a Java bookie reports its start.",
        name="last_minor",
        rank=WIDE,
    )
    last_major_ms: int | None = field(
        "End of the last major compaction, likewise.", name="last_major", rank=WIDE
    )
    ledgers: int | None = field("Number of ledgers on the bookie.", rank=6, default=None)
    logs: int | None = field("Finished entry logs.", rank=6, default=None)
    total_bytes: int | None = field("Size of all entry logs.", name="total", rank=2, default=None)
    live_bytes: int | None = field(
        "Size of the records that are still needed.", name="live", rank=2, default=None
    )
    freed_bytes: int | None = field(f"Freed bytes {_SINCE}.", name="freed", default=None)
    unreadable_logs: int | None = field(
        "Number of damaged entry logs; LOGS, TOTAL and LIVE leave them out.",
        name="damaged_logs",
        header="DAMAGED",
        rank=6,
        default=None,
    )
    last_error: str | None = field(
        "The error that ended the last round early.", rank=1, default=None
    )

    def since(self, before: GarbageRun) -> GarbageRun:
        """Return the state with only the counts after ``before``."""
        counted = {
            name: getattr(self, name) - getattr(before, name)
            for name in ("rounds", "minor_compactions", "major_compactions", "freed_bytes")
            if getattr(before, name) is not None
        }
        return attrs.evolve(self, **counted)  # type: ignore[misc]  # `shown` makes it one of attrs


@shown("collections", sentence=lambda v: f"bookie {v.bookie_id} collects garbage now")
class GarbageAsked:
    """The request of a garbage collection."""

    bookie_id: str = field(BOOKIE)


def _compactions(v: Compactions) -> str:
    words = {True: "suspended", False: "allowed"}
    return (
        f"bookie {v.bookie_id}: minor compaction {words[v.minor_suspended]}, "
        f"major compaction {words[v.major_suspended]}"
    )


@shown("compactions", kw_only=True, sentence=_compactions)
class Compactions:
    """The compactions that an operator has suspended."""

    bookie_id: str = field(BOOKIE)
    minor_suspended: bool = field("Whether an operator has suspended minor compaction.")
    major_suspended: bool = field("Whether an operator has suspended major compaction.")


@shown("settings", id="key")
class BookieSetting:
    """One setting of a running bookie."""

    bookie_id: BookieId = field(BOOKIE)
    key: str = field("The setting.")
    value: str = field("The value in effect; secrets are masked.")
    origin: str | None = field(
        "Origin of the value: a line of a file, a variable, an option, the "
        "default, or a change at run time. Empty if the bookie does not report it.",
        optional=True,
        default=None,
    )


def _labels(v: Any) -> str:
    return ",".join(f"{name}={value}" for name, value in v.labels.items()) or "-"


def _sample_fields(prefix: str = "") -> tuple[Column, ...]:
    def of(v: Any) -> MetricSample:
        found: MetricSample = v.sample if prefix else v
        return found

    return (
        Column("name", "The metric.", lambda v: of(v).name, header="METRIC"),
        Column(
            "labels",
            "Labels of the metric.",
            lambda v: dict(of(v).labels),
            Kind.NESTED,
            cell=lambda v: _labels(of(v)),
        ),
        Column("value", "Value of the metric.", lambda v: _value(of(v).value)),
    )


def _value(value: float) -> str:
    return repr(int(value)) if value == value // 1 else repr(value)


def _sample(v: MetricSample) -> str:
    """Return a sample as a line that begins with its value: names and labels may be long."""
    labels = f"{{{_labels(v)}}}" if v.labels else ""
    return f"{_value(v.value):>10}  {v.name}{safe(labels)}"


@shown("metrics", *_sample_fields(), kw_only=True, id="name", sentence=_sample)
class MetricSample:
    """One line of a bookie's metrics."""

    name: str
    labels: Mapping[str, str]
    value: float


@shown("bookies", sentence=lambda v: f"bookie {v.bookie_id} is ready")
class Ready:
    """A bookie that is ready."""

    bookie_id: str = field(BOOKIE)


# Addresses and tokens --------------------------------------------------------------------------


def connect(
    session: Session, bookie_id: BookieId, address: str | None, token_file: Path | None
) -> AdminClient:
    """Return the bookie's admin API, at ``address`` or at its published address.

    Raises:
        ConflictError: the bookie is not registered.
        NothingFoundError: the bookie does not exist, or has not published an address.
        NothingFoundError: the token's file cannot be read.
    """
    timeout_s = session.options.timeout_s or TIMEOUT_S
    # With an address the cluster is not asked: it may be unavailable.
    where = _published(session, bookie_id) if address is None else _parsed(session, address)
    session.verbose(f"asking {where.host}:{where.port}")
    token = admin_token(session, token_file)
    profile = session.options.used_profile
    return AdminClient(
        *where,
        token=token,
        timeout_s=timeout_s,
        trace=session.messages.trace,
        profile=profile.name if profile is not None else "NAME",
    )


def _published(session: Session, bookie_id: BookieId) -> HttpAddress:
    try:
        return session.call(published, bookie_id)
    except MetadataUnavailableError:
        session.failed = "with --http HOST:PORT the bookie is asked without the metadata service"
        raise


async def published(client: Client, bookie_id: BookieId) -> HttpAddress:
    """Return the published address of a bookie's HTTP server.

    Raises:
        ConflictError: the bookie is not registered.
        NothingFoundError: it does not exist, or has not published an address.
    """
    hint = "name its address with --http HOST:PORT"
    try:
        info = await client.store.service_info(bookie_id)
    except NotFoundError as error:
        known = await client.store.known_bookies()
        if bookie_id not in known:
            unknown = no_such_bookie(bookie_id, known)
            raise NothingFoundError(unknown, next_step=hint) from error
        raise ConflictError(
            f"bookie {bookie_id} is not registered: it does not run, or its process hangs",
            next_step=hint,
        ) from error
    found = http_address(info, client.config)
    if found is None:
        raise NothingFoundError(
            f"bookie {bookie_id} has published no HTTP server",
            next_step=f"set httpServerEnabled=true for it, or {hint}",
        )
    return found


def http_address(info: BookieServiceInfo, config: ClientConfig) -> HttpAddress | None:
    """Return the published address of a bookie's HTTP server; None if it has not published one."""
    secured, own = info.endpoint(HTTPS), info.endpoint()
    endpoint = secured or info.endpoint(HTTP)
    if endpoint is None:
        return None
    host = own.host if own is not None and endpoint.host in _ANY_ADDRESS else endpoint.host
    return HttpAddress(host, endpoint.port, None if secured is None else config.https)


def _parsed(session: Session, address: str) -> HttpAddress:
    match = re.fullmatch(r"(?:(https?)://)?\[?([^/]+?)\]?:(\d{1,5})/?", address)
    if match is None:
        raise UsageError(f"--http: {address!r} is not HOST:PORT, with https:// in front for TLS")
    scheme, host, port = match.groups()
    config = client_config(session.options, session.host.environ)
    return HttpAddress(host, int(port), config.https if scheme == HTTPS else None)


def admin_token(session: Session, token_file: Path | None = None) -> str:
    """Return the admin token: from a file, the profile, or the bookie's settings.

    Raises:
        NothingFoundError: the file is missing, or this user may not read it.
    """
    profile = session.options.used_profile
    if token_file is None and profile is not None and profile.admin_token_file:
        token_file = Path(of_user(profile.admin_token_file))
    return _token(token_file) if token_file is not None else _token_of_settings(session)


def _token_of_settings(session: Session) -> str:
    """Return the token from the settings file; empty if only the bookie may read it."""
    settings, _ = cluster_properties(session.options, session.host.environ)
    found = {
        key: settings.expand(one.values[0])
        for key in ("httpAdminTokenFile", "httpAdminToken")
        if (one := settings.entries.get(key)) is not None
    }
    if file := found.get("httpAdminTokenFile"):
        try:
            return _token(Path(file))
        except NothingFoundError as error:
            session.verbose(str(error))
            return ""
    return found.get("httpAdminToken", "")


def _token(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise NothingFoundError(f"token file {os.fspath(path)}: {why}") from error


# Requests --------------------------------------------------------------------------------------


def _understood(ask: Callable[P, T]) -> Callable[P, T]:
    """Return a function that raises ``CommandError`` if an answer has an unexpected form."""

    @functools.wraps(ask)
    def asked(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return ask(*args, **kwargs)
        except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
            raise CommandError(f"the bookie's answer has an unknown form: {error!r}") from error

    return asked


@_understood
def state(admin: AdminClient, bookie_id: BookieId) -> RunningBookie:
    """Return the bookie's state."""
    if admin.speaks_v2:
        found = admin.ask("GET", "/api/v2/bookie").json
        return _value_of(
            RunningBookie,
            found,
            bookie_id=bookie_id,
            takes_recovery_adds=found["takes_high_priority_writes"],
        )
    found = admin.ask("GET", "/api/v1/bookie/state").json
    return RunningBookie(
        bookie_id=bookie_id,
        state=_java_state(found),
        read_only=found["readOnly"],
        takes_recovery_adds=found["availableForHighPriorityWrites"],
    )


def _java_state(found: Mapping[str, bool]) -> str:
    if found["shuttingDown"]:
        return "stopping"
    if not found["running"]:
        return "starting"
    return "read-only" if found["readOnly"] else "writable"


@_understood
def mode(admin: AdminClient, bookie_id: BookieId, wanted: bool | None) -> BookieMode:  # noqa: FBT001
    """Return the bookie's mode; ``wanted`` first makes it read-only or writable."""
    method, shift = ("GET", None) if wanted is None else ("PUT", wanted)
    if admin.speaks_v2:
        body = None if shift is None else {"read_only": shift}
        found = admin.ask(method, "/api/v2/bookie/read-only", body).json
        return BookieMode(bookie_id, found["read_only"])
    body = None if shift is None else {"readOnly": shift}
    return BookieMode(
        bookie_id, admin.ask(method, "/api/v1/bookie/state/readonly", body).json["readOnly"]
    )


def keeps_mode(admin: AdminClient) -> bool:
    """Return whether the bookie's settings keep it read-only over a restart."""
    return all_settings(admin).get("persistBookieStatusEnabled", "false").lower() == "true"


def collect(admin: AdminClient, bookie_id: BookieId, *, major: bool, minor: bool) -> GarbageAsked:
    """Start a garbage collection of the bookie."""
    if admin.speaks_v2:
        admin.ask("POST", "/api/v2/bookie/gc", {"major": major, "minor": minor})
    else:
        admin.ask("PUT", "/api/v1/bookie/gc", {"forceMajor": major, "forceMinor": minor})
    return GarbageAsked(bookie_id)


def wait_collected(
    admin: AdminClient,
    before: Sequence[GarbageRun],
    pause: Callable[[list[GarbageRun]], object],
    clock: Callable[[], float] = time.monotonic,
) -> list[GarbageRun]:
    """Wait until each collector has ended a round since ``before``; return the work of each since.

    A Java bookie does not count rounds: there the wait ends when no forced collection runs.
    ``pause`` gets the work of each so far.

    Raises:
        ConflictError: the bookie restarted meanwhile.
    """
    rounds = {one.number: one.rounds for one in before}
    began_s = clock()
    while True:
        found = collections(admin)
        since = [one.since(was) for one, was in zip(found, before, strict=True)]
        if not any(one.running or _has_not_begun(one, rounds) for one in found):
            break
        pause(since)
    waited_s = int(clock() - began_s)
    if admin.speaks_v2 and admin.ask("GET", "/api/v2/bookie").json["uptime_s"] < waited_s:
        raise ConflictError(
            "the bookie restarted during the collection", next_step="start the collection again"
        )
    return since


def _has_not_begun(one: GarbageRun, rounds: Mapping[int, int | None]) -> bool:
    return one.rounds is not None and one.rounds == rounds.get(one.number)


@_understood
def collections(admin: AdminClient) -> list[GarbageRun]:
    """Return the state and counts of each of the bookie's collectors."""
    if admin.speaks_v2:
        found = admin.ask("GET", "/api/v2/bookie/gc").json
        return [_our_run(number, one) for number, one in enumerate(found)]
    found = admin.ask("GET", "/api/v1/bookie/gc_details").json
    forced = admin.ask("GET", "/api/v1/bookie/gc").json["is_in_force_gc"] == "true"
    return [_java_run(number, one, forced=forced) for number, one in enumerate(found)]


def _our_run(number: int, one: Mapping[str, Any]) -> GarbageRun:
    if not one["rounds"]:  # The first round counts these values.
        one = {**one, **dict.fromkeys(("ledgers", "logs", "total_bytes", "live_bytes"))}
    return _value_of(
        GarbageRun,
        one,
        bookie_id=None,
        number=number,
        last_ms=_ms(one["last_ended_s"]),
        next_ms=_ms(one.get("next_s")),  # Older releases do not report it.
        last_minor_ms=_ms(one["last_minor_s"]),
        last_major_ms=_ms(one["last_major_s"]),
        freed_bytes=one["freed_by_removal_bytes"] + one["freed_by_compaction_bytes"],
    )


def _value_of(kind: type[T], found: Mapping[str, Any], **others: Any) -> T:
    """Return an answer of v2 as a value: its fields with the same name, and ``others``."""
    hints = get_type_hints(kind)
    values = {name: found[name] if name not in others else others[name] for name in hints}
    for name, value in values.items():
        hint = hints[name]
        wanted = int | hint if float in {hint, *get_args(hint)} else hint
        if not isinstance(value, wanted) or (isinstance(value, float) and not isfinite(value)):
            raise TypeError(f"{name} is {str(value)[:80]}")
    return kind(**values)


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1000)


def _java_run(number: int, one: Mapping[str, Any], *, forced: bool) -> GarbageRun:
    kinds = [kind for kind in ("major", "minor") if one[f"{kind}Compacting"]]
    return GarbageRun(
        number=number,
        running=forced or bool(kinds),
        compacting=kinds[0] if kinds else None,
        minor_compactions=one["minorCompactionCounter"],
        major_compactions=one["majorCompactionCounter"],
        last_minor_ms=one["lastMinorCompactionTime"],
        last_major_ms=one["lastMajorCompactionTime"],
    )


@_understood
def compactions(
    admin: AdminClient,
    bookie_id: BookieId,
    *,
    suspend: bool | None = None,
    major: bool = True,
    minor: bool = True,
) -> Compactions:
    """Return the suspended compactions, after suspending or resuming the selected kinds."""
    if suspend is not None:
        _switch(admin, suspend=suspend, major=major, minor=minor)
    if admin.speaks_v2:
        found = admin.ask("GET", "/api/v2/bookie/compaction").json
        return Compactions(bookie_id=bookie_id, **found)
    found = admin.ask("GET", "/api/v1/bookie/gc/suspend_compaction").json
    return Compactions(
        bookie_id=bookie_id,
        minor_suspended=found["isMinorGcSuspended"] == "true",
        major_suspended=found["isMajorGcSuspended"] == "true",
    )


def _switch(admin: AdminClient, *, suspend: bool, major: bool, minor: bool) -> None:
    kinds = {"major": major, "minor": minor}
    if admin.speaks_v2:
        body = {f"{kind}_suspended": suspend for kind, wanted in kinds.items() if wanted}
        admin.ask("PUT", "/api/v2/bookie/compaction", body)
        return
    word = "suspend" if suspend else "resume"
    body = {f"{word}{kind.capitalize()}": True for kind, wanted in kinds.items() if wanted}
    admin.ask("PUT", f"/api/v1/bookie/gc/{word}_compaction", body)


def settings(admin: AdminClient, bookie_id: BookieId, keys: tuple[str, ...]) -> list[BookieSetting]:
    """Return the bookie's settings: all, or matches of ``keys``: names, parts, patterns with ``*``.

    A setting without its own value has the value of the setting that is its default.

    Raises:
        NothingFoundError: a key matches no setting of the bookie.
    """
    from bookied.config.bookie import BookieConfig

    found = all_settings(admin)
    matches = {key: keys_like(key, sorted(found)) for key in keys}
    missing = [key for key, matched in matches.items() if not matched]
    if missing:
        raise unknown_settings(missing, found)
    named = dict.fromkeys(key for matched in matches.values() for key in matched)
    chosen = named if keys else sorted(found)
    defaults = {one.spec.key: one.default_text for one in declared(BookieConfig)}

    def in_effect(key: str) -> str:
        default = defaults.get(key)
        return found[key] or (in_effect(default) if default in found else "")

    origins = _origins(admin)
    return [
        BookieSetting(bookie_id, key, masked(key, in_effect(key)), origins.get(key))
        for key in chosen
    ]


def unknown_settings(keys: Sequence[str], known: Iterable[str]) -> NothingFoundError:
    """Return the error for settings that a bookie does not report."""
    from bkclient.config.client import ClientConfig

    of_clients = {
        key for one in declared(ClientConfig) for key in (one.spec.key, *one.spec.aliases)
    }
    for key in keys:
        if key in of_clients:
            return NothingFoundError(
                f"{key} is a setting of clients, which autorecovery reads from the bookie's "
                "settings file when it starts: a running bookie neither shows nor changes it",
                next_step=f"`bkctl config show {key} -c FILE` shows the value in a settings file",
            )
        if ":" in key:
            return NothingFoundError(
                f"there is no setting {key}", next_step="separate several bookies by commas: B1,B2"
            )
    meant = did_you_mean(keys[0], known) if len(keys) == 1 else ""
    return NothingFoundError(
        f"no such setting, or it is not set: {', '.join(keys)}{meant}",
        next_step="`bkctl config show --keys` lists all settings",
    )


@_understood
def _origins(admin: AdminClient) -> dict[str, str]:
    """Return the origins of the values; empty if the bookie does not report them."""
    answer = admin.request("GET", "/api/v2/config/origins") if admin.speaks_v2 else None
    return dict(answer.json) if answer is not None and answer.ok else {}


@_understood
def all_settings(admin: AdminClient) -> dict[str, str]:
    """Return the bookie's settings by key, including the secrets that it reports."""
    path = "/api/v2/config" if admin.speaks_v2 else "/api/v1/config/server_config"
    return {key: str(value) for key, value in admin.ask("GET", path).json.items()}


def masked(key: str, value: str) -> str:
    """Mask a secret: bookied does so itself, Java's bookie returns secrets to every client."""
    return MASKED if value and is_secret_key(key) else value


def ready(admin: AdminClient, bookie_id: BookieId) -> Ready:
    """Return ``Ready`` if the bookie is ready.

    Raises:
        ConflictError: the bookie is not ready.
    """
    admin.ask("GET", "/api/v1/bookie/is_ready")  # The only probe of both bookied and Java's bookie.
    return Ready(bookie_id)


# Metrics ---------------------------------------------------------------------------------------

_SAMPLE: Final = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPED: Final = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}


def metrics(admin: AdminClient, pattern: str | None) -> Iterator[MetricSample]:
    """Yield the samples whose line matches a regular expression; all without a pattern.

    Raises:
        UsageError: the pattern is not a regular expression.
        CommandError: the bookie has no metrics.
    """
    try:
        wanted = re.compile(pattern or "")
    except re.error as error:
        raise UsageError(f"--grep: {error}") from error
    yield from (parse_sample(line) for line in _lines(admin) if wanted.search(line))


def _lines(admin: AdminClient) -> list[str]:
    """Return the lines of a bookie's metrics, without comments."""
    lines = admin.ask("GET", "/metrics").body.splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def parse_sample(line: str) -> MetricSample:
    """Return the sample of a line of /metrics; raise ``CommandError`` if it is malformed."""
    match = _SAMPLE.fullmatch(line)
    try:
        value = float("" if match is None else match[3])
    except ValueError as error:
        raise CommandError(f"not a metric: {line[:80]!r}") from error
    assert match is not None
    labels = {
        name: re.sub(r"\\.", lambda one: _ESCAPED.get(one[0], one[0]), text)
        for name, text in _LABEL.findall(match[2] or "")
    }
    return MetricSample(name=match[1], labels=labels, value=value)


JMX_NAMES: Final[Mapping[str, str]] = {
    "BookieServer NumPacketsReceived": r"^bookied_packets_received_total|_REQUEST_count",
    "BookieServer NumPacketsSent": r"^bookied_packets_sent_total|_CHANNEL_WRITE_count",
    "BookieServer AddStats": r"^bookkeeper_server_ADD_ENTRY[{_](?!REQ|BLO|IN_|REJ)",
    "BookieServer ReadStats": r"^bookkeeper_server_READ_ENTRY(\{|_count|_sum)",
    "Bookie QueueLength": r"^bookie_journal_JOURNAL_QUEUE_SIZE",
    "LedgerCache PageCount": r"^bookie_NUM_INDEX_PAGES",
    "LedgerCache NumOpenLedgers": r"^bookie_(READ|WRITE)_FILE_INFO_CACHE_SIZE",
}
"""The attributes of BookKeeper 4.4's MBeans, and the metrics that replace them."""


@shown("attributes", *_sample_fields("sample"), kw_only=True)
class JmxSample:
    """A line of metrics under the name of the MBean's attribute that it replaces."""

    attribute: str = field("MBean and attribute.")
    sample: MetricSample


def jmx(admin: AdminClient) -> Iterator[JmxSample]:
    """Yield the metrics that replace the MBeans."""
    lines = _lines(admin)
    for attribute, pattern in JMX_NAMES.items():
        for line in lines:
            if re.search(pattern, line):
                yield JmxSample(attribute=attribute, sample=parse_sample(line))
