"""The ledgers of a query by id or metadata, and their extents."""

from __future__ import annotations

from bkclient.client import Client
from bkclient.errors import NoSuchLedgerError
from bkctl.commands.export.spark.source_options import SourceOptionError, SourceOptions
from bkctl.commands.export.task.ledger_ends import chosen_extents
from bkctl.commands.export.task.ledger_selection import LedgerChoice
from bkctl.commands.export.task.partitions import LedgerExtent
from wire.ledger_metadata import LedgerMetadata


async def chosen_ledgers(client: Client, options: SourceOptions) -> list[LedgerExtent]:
    """Return the ledgers that the options of a query choose, ascending.

    Raises:
        SourceOptionError: no option chooses ledgers.
        NoSuchLedgerError: with ``failOnDataLoss``, a ledger that is named by its id is missing, or
            ranges have no ledger.
    """
    choice = options.choice
    if choice.is_everything:
        raise SourceOptionError(
            "no ledger is chosen; give ledgers, log, topic, topicsPattern, state, createdAfter, "
            "createdBefore or meta.KEY"
        )

    def is_chosen(metadata: LedgerMetadata) -> bool:
        return choice.holds(metadata) and (options.include_open or metadata.is_closed)

    found = await chosen_extents(
        client,
        choice,
        recover=options.recover,
        chosen=is_chosen,
        may_be_gone=not options.fail_on_data_loss,
    )
    only_ranges = choice == LedgerChoice(ranges=choice.ranges) and options.include_open
    if only_ranges and not found and options.fail_on_data_loss:
        raise NoSuchLedgerError(choice.nothing_found())
    return sorted(found, key=lambda extent: extent.ledger_id)
