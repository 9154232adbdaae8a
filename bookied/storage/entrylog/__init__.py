"""Entry logs: where entries live after the journal."""
