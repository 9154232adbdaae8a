"""What the commands of topics do: the steps between parsed options and printed values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkctl.commands.topic import export as topic_export
from bkctl.commands.topic import work
from bkctl.commands.topic.columns import TopicDetails, TopicLedgerRow, TopicMessageRow, TopicSummary

if TYPE_CHECKING:
    from bkctl.session.session import Session


def list_all(session: Session, *, pattern: str | None) -> None:
    """List the topics and partitions that have ledgers, namespace by namespace."""
    session.emit_all(session.iterate(work.summaries, pattern), TopicSummary)


def show(session: Session, *, name: str) -> None:
    """Show TOPIC: each partition with its ledgers, subscriptions and schema."""
    session.about = f"topic {name}"
    session.emit_all(session.call(work.details, name), TopicDetails)


def ledgers(session: Session, *, name: str) -> None:
    """List the ledgers of TOPIC, oldest first, of a partitioned topic partition by partition."""
    session.about = f"topic {name}"
    session.emit_all(session.call(work.ledgers, name), TopicLedgerRow)


def peek(session: Session, *, name: str, start: str | None, count: int, decode: str | None) -> None:
    """Print messages of TOPIC as a consumer receives them."""
    session.about = f"topic {name}"
    session.emit_all(work.peek(session, name, start, count, decode), TopicMessageRow)


def export(session: Session, *, name: str, path: str, start: str | None, end: str | None) -> None:
    """Write the messages of TOPIC to FILE, one row each, in Parquet."""
    session.about = f"topic {name}"
    session.emit(topic_export.export(session, name, path, start, end))
