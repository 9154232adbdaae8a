"""The output forms of values: tables, and the machine forms."""
