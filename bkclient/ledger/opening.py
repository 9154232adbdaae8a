"""The opening of ledgers: passwords, recovery, and the LAC of a ledger that stays open.

Agrees with BookKeeper 4.18.0, LedgerOpenOp.
"""

from __future__ import annotations

from bkclient.connection.add_frames import LedgerKeys
from bkclient.errors import (
    ClientDigestMismatchError,
    ClientError,
    ClientUnauthorizedError,
    LedgerRecoveryError,
    MetadataStoreError,
    NoSuchLedgerError,
    ReadFailedError,
    RequestTimeoutError,
)
from bkclient.ledger.cluster import Cluster
from bkclient.ledger.reader import LedgerReader
from bkclient.ledger.recovery_run import ProgressReport, recover
from bkclient.metadata.ledger_metadata_updates import LocalMetadata
from bkclient.metadata.versions_and_watches import Versioned
from wire.codes import DigestType
from wire.ids import LedgerId
from wire.ledger_metadata import LedgerMetadata


async def open_reader(
    cluster: Cluster,
    local: LocalMetadata,
    keys: LedgerKeys,
    *,
    recovers: bool,
    progress: ProgressReport | None,
) -> LedgerReader:
    """Return a reader that follows its ledger's metadata; see ``Client.open_ledger``."""
    reader = LedgerReader(cluster, local, keys)
    await reader.follow()
    try:
        if not reader.is_closed and recovers:
            await _recover(cluster, local, keys, progress)
        elif not reader.is_closed:
            # A change before the watch was set, such as the close, would stay unknown.
            await reader.refresh()
            await _find_lac(reader)
    except BaseException:
        reader.close()
        raise
    return reader


async def open_closed(
    cluster: Cluster, ledger_id: LedgerId, stored: Versioned[LedgerMetadata]
) -> LedgerReader:
    """Return a reader of a closed ledger with metadata that was read just now.

    The reader does not follow the metadata: open the ledger again if an entry cannot be read.

    Raises:
        ClientUnauthorizedError: the ledger's password is not the configured one.
    """
    assert stored.value.is_closed, ledger_id
    keys = settle_keys(cluster, ledger_id, stored.value, None, None)
    await cluster.learn_near(stored.value)
    return LedgerReader(cluster, LocalMetadata(stored), keys)


def settle_keys(
    cluster: Cluster,
    ledger_id: LedgerId,
    metadata: LedgerMetadata,
    password: bytes | None,
    digest_type: DigestType | None,
) -> LedgerKeys:
    """Return the keys from the metadata's, the caller's or the configured password and digest type.

    Raises:
        ClientUnauthorizedError: the ledger has another password.
        ClientDigestMismatchError: the ledger has another digest type, and detection is off.
    """
    config = cluster.config
    stored_password, stored_digest = metadata.password, metadata.digest_type
    if password is None:
        password = stored_password
    if password is None:
        password = config.password.encode()
    if stored_password is not None and password != stored_password:
        error = ClientUnauthorizedError(f"wrong password for ledger {ledger_id}")
        error.hint = "leave the password out to use the one in the metadata"  # type: ignore[misc] # no bookie was asked
        raise error
    if stored_digest is None:
        return cluster.keys(ledger_id, digest_type or config.digest_type, password)
    if digest_type not in {None, stored_digest} and not config.detect_digest_type:
        raise ClientDigestMismatchError(f"ledger {ledger_id} has digest type {stored_digest.name}")
    return cluster.keys(ledger_id, stored_digest, password)


async def _recover(
    cluster: Cluster, local: LocalMetadata, keys: LedgerKeys, progress: ProgressReport | None
) -> LedgerMetadata:
    try:
        return await recover(cluster, local, keys, progress or (lambda _progress: None))
    except (
        ClientUnauthorizedError,
        RequestTimeoutError,
        LedgerRecoveryError,
        MetadataStoreError,
        NoSuchLedgerError,
    ):
        raise
    except ClientError as error:
        text = f"ledger {keys.ledger_id} cannot be recovered now: {error}"
        raise LedgerRecoveryError(text) from error


async def _find_lac(reader: LedgerReader) -> None:
    try:
        await reader.read_last_confirmed()
    except (RequestTimeoutError, ClientUnauthorizedError):
        raise
    except ClientError as error:
        text = f"the LAC of ledger {reader.ledger_id} is not known: {error}"
        raise ReadFailedError(text) from error
