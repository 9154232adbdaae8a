"""Bookies as commands see them: registration, HTTP API, figures."""
