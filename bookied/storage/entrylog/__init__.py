"""Entry logs: the files that store entries after the journal."""
