"""The settings of a client, by Java's keys (BookKeeper 4.18.0, ClientConfiguration).

``SharedConfig`` has the settings of both clients and bookies. Times keep the unit that their key
has in a file, as the name says.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final

import attrs

from bkclient.config.auth import ClientAuthConfig, simple_name
from bkclient.config.declaration import OtherKey, ignored, setting
from bkclient.config.findings import FindingKind, SettingFinding, Severity, risky
from bkclient.config.shared import INT32_MAX, SHARED_OTHER_KEYS, SharedConfig
from bkclient.config.tls import ClientTlsConfig
from wire.codes import DigestType

RANDOM: Final = "DefaultEnsemblePlacementPolicy"
RACK_AWARE: Final = "RackawareEnsemblePlacementPolicy"
REGION_AWARE: Final = "RegionAwareEnsemblePlacementPolicy"
ZONE_AWARE: Final = "ZoneawareEnsemblePlacementPolicy"
"""Java's placement policies by their simple name."""


@attrs.frozen(kw_only=True)
class ClientConfig(ClientAuthConfig, ClientTlsConfig, SharedConfig):
    """The settings of one client; ``key`` is the name in a Java configuration."""

    other_keys: ClassVar[tuple[OtherKey, ...]] = (
        *SHARED_OTHER_KEYS,
        *ignored(
            "only a program can switch it on, in Java as well",
            "disableEnsembleChangeFeatureName=disable_ensemble_change",
            "reppDis*",
        ),
        *ignored("placement always follows the rules", "reppEnableValidation"),
        *ignored("fragments are copied entry by entry", "recoveryBatchReadEnabled=false"),
        *ignored(
            "an address is looked up for each new connection", "enableBookieAddressTracking=true"
        ),
        *ignored("the switch in the metadata store is used", "enableHealthCheck"),
        *ignored("names a Java class; bkctl has --ledger-id-format", "*FormatterClass"),
        *ignored("one reactor thread does the work", "numWorkerThreads", "numIOThreads"),
        *ignored("Twisted's buffering is used", "clientWriteBuffer*WaterMark"),
        *ignored("the system's buffer sizes are used", "client*BufferSize"),
        *ignored("belongs to Java's network layer", "nettyUsePooledBuffers"),
        *ignored("belongs to Java's timers", "timeoutT*", "pcbcTimeoutTimer*"),
        *ignored("timeouts are exact to the millisecond", "timeoutMonitorIntervalSec"),
        *ignored(
            "belongs to Java's executors", "enableTaskExecutionStats", "taskExecutionWarnTimeMicros"
        ),
        *ignored("no Java version uses it", "enableParallelRecoveryRead"),
        *ignored("names a Java class", "registrationClientClass"),
        *ignored(
            "the client logs a repeated message once", "clientConnectBookieUnavailableLogThrottling"
        ),
        *ignored("the client has no busy wait", "enableBusyWait"),
        *ignored("belongs to Java's memory", "allocator*"),
        *ignored("belongs to Java's logging", "preserveMdcForTaskExecution"),
        *ignored("belongs to Java's statistics", "limitStatsLogging"),
    )

    _add_timeout_s: int | None = setting(
        None,
        key="addEntryTimeoutSec",
        group="Requests",
        minimum=1,
        doc="Time limit of an add request.",
        default_text="5",
    )
    _read_timeout_s: int | None = setting(
        None,
        key="readEntryTimeoutSec",
        minimum=1,
        doc="Time limit of all other requests.",
        default_text="5",
    )
    timeout_s: int = setting(
        5,
        key="readTimeout",
        minimum=1,
        doc="Default of addEntryTimeoutSec and readEntryTimeoutSec.",
    )
    add_quorum_timeout_s: int = setting(
        -1,
        key="addEntryQuorumTimeoutSec",
        doc="How long a writer's add may wait for its ack quorum; 0 or less means no limit. If not "
        "longer than addEntryTimeoutSec, a silent bookie ends the writer instead of being "
        "replaced.",
    )
    connect_timeout_ms: int = setting(
        10_000,
        key="clientConnectTimeoutMillis",
        minimum=1,
        doc="Time limit for connecting to a bookie.",
    )
    requests_per_s_max: int = setting(
        0,
        key="throttle",
        unit="requests/s",
        minimum=0,
        doc="Adds and reads through one ledger handle; 0 means no limit. Java's default is 5000.",
    )
    adds_in_flight_max: int = setting(
        5000,
        key="maxAddsInFlight",
        minimum=0,
        doc="Adds of a ledger in flight above which wait_for_space() waits; 0 means no limit. Not "
        "a key of Java.",
    )
    backpressure_wait_ms: int = setting(
        -1,
        key="waitTimeoutOnBackpressureMs",
        doc="How long adds wait for a connection that takes no bytes before its bookie counts as "
        "failed; below 0 is addEntryTimeoutSec.",
    )
    use_v2_protocol: bool = setting(
        False,
        key="useV2WireProtocol",
        group="Connections",
        doc="Send requests over protocol V2 where V2 has them.",
    )
    channels_per_bookie: int = setting(
        1, key="numChannelsPerBookie", minimum=1, doc="Connections to one bookie."
    )
    tcp_no_delay: bool = setting(True, key="clientTcpNoDelay", doc="Disable Nagle's algorithm.")
    tcp_keepalive: bool = setting(
        True,
        key="clientSockKeepalive",
        doc="Send TCP keep-alive probes.",
    )
    tcp_keepalive_idle_s: int = setting(
        -1,
        key="tcpKeepIdle",
        doc="Idle time before the first keep-alive probe; -1 uses the system's value.",
    )
    tcp_keepalive_interval_s: int = setting(
        -1, key="tcpKeepIntvl", doc="Pause between keep-alive probes; -1 uses the system's value."
    )
    tcp_keepalive_count: int = setting(
        -1,
        key="tcpKeepCnt",
        doc="Unanswered keep-alive probes before the connection is closed; -1 uses the system's "
        "value.",
    )
    tcp_user_timeout_ms: int = setting(
        0,
        key="clientTcpUserTimeoutMillis",
        minimum=0,
        maximum=INT32_MAX,
        doc="How long sent bytes may stay unacknowledged by the bookie before the system closes "
        "the connection; 0 uses the system's value. Requests usually time out sooner.",
    )
    speculative_read_timeout_ms: int = setting(
        2000,
        key="speculativeReadTimeout",
        group="Reads",
        doc="Default of firstSpeculativeReadTimeout and maxSpeculativeReadTimeout; 0 or less "
        "turns speculative reads off.",
    )
    _speculative_first_ms: int | None = setting(
        None,
        key="firstSpeculativeReadTimeout",
        doc="Time without an answer after which a read asks a second bookie.",
        default_text="speculativeReadTimeout",
    )
    _speculative_max_ms: int | None = setting(
        None,
        key="maxSpeculativeReadTimeout",
        doc="Longest pause before a read asks another bookie.",
        default_text="speculativeReadTimeout",
    )
    speculative_read_backoff: float = setting(
        2.0,
        key="speculativeReadTimeoutBackoffMultiplier",
        minimum=1,
        doc="Factor by which the pause grows from one bookie to the next.",
    )
    speculative_lac_first_timeout_ms: int = setting(
        1500,
        key="firstSpeculativeReadLACTimeout",
        doc="Time without an answer after which a long poll asks a second bookie.",
    )
    speculative_lac_timeout_max_ms: int = setting(
        5000,
        key="maxSpeculativeReadLACTimeout",
        doc="Longest pause before a long poll asks another bookie.",
    )
    speculative_lac_backoff: float = setting(
        2.0,
        key="speculativeReadLACTimeoutBackoffMultiplier",
        minimum=1,
        doc="Factor by which the pause of a long poll grows from one bookie to the next.",
    )
    reorder_reads: bool = setting(
        True, key="reorderReadSequenceEnabled", doc="Read from healthy and near bookies first."
    )
    reorder_pending_threshold: int = setting(
        0,
        key="readReorderThresholdPendingRequests",
        doc="A read asks the least loaded bookie first if the first bookie has this many more "
        "pending requests; 0 is off.",
    )
    sticky_reads: bool = setting(
        False,
        key="stickyReadSEnabled",
        doc="Read all of a ledger from one bookie as long as that bookie answers.",
    )
    batch_reads: bool = setting(
        True, key="batchReadEnabled", doc="Read several entries with one request (over V2)."
    )
    recovery_read_batch_size: int = setting(
        1,
        key="recoveryReadBatchSize",
        minimum=1,
        doc="Entries that recovery reads at a time, at least.",
    )
    recovery_entries_max: int = setting(
        10_000_000,
        key="recoveryEntriesMax",
        minimum=1,
        doc="Most unconfirmed entries that recovery reads. With more entries recovery fails and "
        "the ledger stays in recovery: a malicious bookie could invent entries without end. "
        "Not a key of Java.",
    )
    recovery_bytes_max: int = setting(
        16 << 30,
        key="recoveryBytesMax",
        minimum=1,
        doc="Most bytes of unconfirmed entries that recovery reads; see recoveryEntriesMax. Not a "
        "key of Java.",
    )
    opportunistic_striping: bool = setting(
        False,
        key="opportunisticStriping",
        doc="Use a smaller ensemble if too few bookies are available.",
    )
    delay_ensemble_change: bool = setting(
        False,
        key="delayEnsembleChange",
        group="Ensembles",
        doc="Keep a failed bookie in the ensemble while adds reach their ack quorum without it.",
    )
    ensemble_changes_max: int = setting(
        INT32_MAX,
        key="maxNumEnsembleChanges",
        minimum=0,
        doc="Most ensemble changes of one ledger. If another is needed, the writer fails.",
    )
    placement_policy: str = setting(
        "org.apache.bookkeeper.client.RackawareEnsemblePlacementPolicy",
        key="ensemblePlacementPolicy",
        doc="Placement policy, by its Java class.",
    )
    racks_per_write_quorum_min: int = setting(
        2, key="minNumRacksPerWriteQuorum", minimum=1, doc="Racks that a write quorum should span."
    )
    enforce_racks: bool = setting(
        False,
        key="enforceMinNumRacksPerWriteQuorum",
        doc="Fail if a write quorum would span fewer racks than minNumRacksPerWriteQuorum.",
    )
    enforce_fault_domains: bool = setting(
        False,
        key="enforceMinNumFaultDomainsForWrite",
        doc="Confirm an add only after acks from enough fault domains.",
    )
    ignore_local_node: bool = setting(
        False, key="ignoreLocalNodeInPlacementPolicy", doc="Do not prefer the local bookie."
    )
    topology_stabilize_s: int = setting(
        0,
        key="networkTopologyStabilizePeriodSeconds",
        minimum=0,
        doc="How long the client remembers the rack of a bookie that has gone.",
    )
    zones_per_write_quorum_min: int = setting(
        2,
        key="minNumZonesPerWriteQuorum",
        minimum=1,
        doc="Zones that a write quorum must span, with zone-aware placement.",
    )
    zones_per_write_quorum_desired: int = setting(
        3,
        key="desiredNumZonesPerWriteQuorum",
        minimum=1,
        doc="Zones that a write quorum should span; at least minNumZonesPerWriteQuorum.",
    )
    enforce_zones: bool = setting(
        True,
        key="enforceStrictZoneawarePlacement",
        doc="Fail if a write quorum would span fewer zones than minNumZonesPerWriteQuorum, or "
        "share an upgrade domain.",
    )
    regions_to_write: str | None = setting(
        None,
        key="reppRegionsToWrite",
        doc="All regions, separated by ';'. Region-aware ensembles then survive the loss of a "
        "region.",
    )
    regions_for_durability_min: int = setting(
        2,
        key="reppMinimumRegionsForDurability",
        minimum=0,
        doc="Regions that an ack quorum must span if reppRegionsToWrite is set; 0 is any number.",
    )
    durability_in_replace: bool = setting(
        True,
        key="reppEnableDurabilityEnforcementInReplace",
        doc="Do not replace a bookie if the ensemble would then span too few regions.",
    )
    dns_resolver_class: str | None = setting(
        None,
        key="reppDnsResolverClass",
        doc="Java class that maps a bookie to its rack.",
        default_text="org.apache.bookkeeper.net.ScriptBasedMapping",
    )
    topology_script: str | None = setting(
        None, key="networkTopologyScriptFileName", doc="Script that maps hosts to racks."
    )
    topology_script_arguments_max: int = setting(
        100,
        key="networkTopologyScriptNumberArgs",
        minimum=1,
        doc="Most hosts in one call of networkTopologyScriptFileName.",
    )
    use_hostname_for_local_node: bool = setting(
        False,
        key="useHostnameResolveLocalNodePlacementPolicy",
        doc="Placement finds the local host by its name instead of its address.",
    )
    weighted_placement: bool = setting(
        False,
        key="diskWeightBasedPlacementEnabled",
        doc="Prefer bookies with more free space.",
    )
    weighted_placement_multiple_max: int = setting(
        3,
        key="bookieMaxMultipleForWeightBasedPlacement",
        doc="Largest weight of a bookie, as a multiple of the median free space; 0 means no limit.",
    )
    bookie_info_interval_s: int = setting(
        86_400,
        key="getBookieInfoIntervalSeconds",
        minimum=1,
        doc="Interval between requests for a bookie's free space.",
    )
    bookie_info_retry_s: int = setting(
        60,
        key="getBookieInfoRetryIntervalSeconds",
        minimum=1,
        doc="Pause before a failed request for free space is retried.",
    )
    bookie_info_timeout_s: int = setting(
        5, key="getBookieInfoTimeoutSecs", minimum=1, doc="Time limit of a request for free space."
    )
    log_retry_s: int = setting(
        60,
        key="logWriterPatienceSec",
        group="Logs",
        minimum=0,
        doc="How long a log's writer retries before it fails, for instance while bookies are "
        "missing. Not a key of Java.",
    )
    track_failures: bool = setting(
        True,
        key="enableBookieFailureTracking",
        group="Failing bookies",
        doc="Read from bookies that failed recently only after the others.",
    )
    failure_memory_ms: int = setting(
        60_000,
        key="bookieFailureHistoryExpirationMSec",
        minimum=0,
        doc="How long the client remembers a bookie's failure.",
    )
    health_check: bool = setting(
        False, key="bookieHealthCheckEnabled", doc="Quarantine bookies that keep failing."
    )
    health_check_interval_s: int = setting(
        60,
        key="bookieHealthCheckIntervalSeconds",
        minimum=1,
        doc="Interval over which a bookie's errors are counted.",
    )
    health_check_errors_max: int = setting(
        100,
        key="bookieErrorThresholdPerInterval",
        minimum=1,
        doc="Errors in one interval at which a bookie is quarantined.",
    )
    quarantine_s: int = setting(
        1800,
        key="bookieQuarantineTimeSeconds",
        minimum=0,
        doc="How long a bookie stays in quarantine.",
    )
    quarantine_ratio: float = setting(
        1.0,
        key="bookieQuarantineRatio",
        minimum=0,
        maximum=1,
        doc="Probability that a bookie with that many errors is quarantined.",
    )
    quarantine_on_connect_error: bool = setting(
        False,
        key="bookieConnectionErrorQuarantineEnabled",
        doc="Quarantine bookies that cannot be reached.",
    )
    resolve_addresses: bool = setting(
        True, key="bookieAddressResolverEnabled", doc="Look up the addresses of bookie ids."
    )
    explicit_lac_interval_ms: int = setting(
        0,
        key="explicitLacInterval",
        group="Ledgers",
        minimum=0,
        doc="How often an idle writer sends its LAC to bookies; 0 is never.",
    )
    digest_type: DigestType = setting(
        DigestType.CRC32,
        key="digestType",
        doc="Digest type for recovery if the ledger's metadata does not name one.",
        default_text="CRC32",
        choices=("CRC32", "CRC32C", "MAC", "DUMMY"),
        parse=DigestType.__getitem__,
    )
    password: str = setting(
        "",
        key="passwd",
        doc="Password for recovery if the ledger's metadata has none.",
        secret=True,
    )
    detect_digest_type: bool = setting(
        True,
        key="enableDigestTypeAutodetection",
        doc="Take digest type and password from the ledger's metadata.",
    )
    repair_batch_entries: int = setting(
        10,
        key="rereplicationEntryBatchSize",
        group="Repair",
        minimum=1,
        doc="Entries in a batch of a repair. Four batches of a fragment are copied at a time.",
    )
    repair_bytes_per_s: int = setting(
        -1,
        key="replicationRateByBytes",
        unit="bytes/s",
        doc="Speed limit of repairs; 0 or less means no limit.",
    )

    def cross_check(self) -> Iterator[SettingFinding]:
        """Yield the findings about metadata, placement and time-outs.

        One finding is that writers end before a silent bookie is noticed and can be replaced.
        """
        yield from super().cross_check()
        yield from self.tls_problems()
        yield from self.placement_faults()
        quorum_s, add_s = self.add_quorum_timeout_s, self.add_timeout_s
        if 0 < quorum_s <= add_s:
            source = "readTimeout" if self._add_timeout_s is None else "addEntryTimeoutSec"
            yield risky(
                "addEntryQuorumTimeoutSec",
                f"is {quorum_s}, and {source} {add_s}: a bookie that falls silent ends writers "
                "before they can replace it",
            )

    def placement_faults(self) -> Iterator[SettingFinding]:
        """Yield settings of a placement policy with which Java's client refuses to start.

        bkclient starts, and fails when it must choose a bookie.
        """
        regions = [one for one in (self.regions_to_write or "").split(";") if one.strip()]
        if self.placement_name == REGION_AWARE and len(regions) < self.durable_regions_min:
            yield SettingFinding(
                Severity.WARNING,
                FindingKind.INVALID,
                f"lists {len(regions)} regions, fewer than reppMinimumRegionsForDurability="
                f"{self.durable_regions_min}: no bookie can be chosen",
                "reppRegionsToWrite",
            )
        least, desired = self.zones_per_write_quorum_min, self.zones_per_write_quorum_desired
        if self.placement_name == ZONE_AWARE and least > desired:
            yield SettingFinding(
                Severity.WARNING,
                FindingKind.INVALID,
                f"{least} is above desiredNumZonesPerWriteQuorum={desired}: no bookie can be "
                "chosen",
                "minNumZonesPerWriteQuorum",
            )

    @property
    def placement_name(self) -> str:
        """The simple name of the placement policy's Java class."""
        return simple_name(self.placement_policy)

    @property
    def durable_regions_min(self) -> int:
        """The regions that an ack quorum must span with region-aware placement.

        0 for any number.
        """
        return self.regions_for_durability_min if self.regions_to_write else 0

    @property
    def add_timeout_s(self) -> int:
        """Time limit of an add request, in seconds."""
        return self.timeout_s if self._add_timeout_s is None else self._add_timeout_s

    @property
    def read_timeout_s(self) -> int:
        """Time limit of all other requests, in seconds."""
        return self.timeout_s if self._read_timeout_s is None else self._read_timeout_s

    @property
    def speculative_first_ms(self) -> int:
        """The time after which a second bookie is asked for an entry; 0 is never."""
        first = self._speculative_first_ms
        return max(0, self.speculative_read_timeout_ms if first is None else first)

    @property
    def speculative_max_ms(self) -> int:
        """The longest pause before another bookie is asked."""
        longest = self._speculative_max_ms
        longest = self.speculative_read_timeout_ms if longest is None else longest
        return max(self.speculative_first_ms, longest)
