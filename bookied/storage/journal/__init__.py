"""The journal: every entry, once, in the order it came, before it is acknowledged."""
