"""Output: views, tables, JSON, progress, drawings."""
