"""Storage of entries: journal, entry logs, index, garbage collection."""
