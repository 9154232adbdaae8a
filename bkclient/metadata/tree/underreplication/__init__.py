"""Under-replicated ledgers in a tree: marks, locks, the queue, and switches."""
