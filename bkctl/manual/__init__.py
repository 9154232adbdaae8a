"""Man pages, schema and docs/commands.md, generated from the command tree."""
