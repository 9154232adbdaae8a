"""The SQLite driver: the metadata of a one-machine cluster in one file; metadata.md section 17.

``database`` is the file, ``rows`` what stands in it, ``base`` the thread that uses it and the
session, ``store`` the driver itself.
"""
