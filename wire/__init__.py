"""BookKeeper's protocol and stored forms as values and bytes: no I/O, no clock, no Twisted."""
