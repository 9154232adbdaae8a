"""The HTTP admin API of a bookie: Java's ``/api/v1`` and a clean ``/api/v2``."""
