"""The journal: every entry once, in order of arrival, before it is acknowledged."""
