"""The SQLite driver: the metadata of a one-machine cluster in one file; metadata.md section 17.

``database`` is the file, ``rows`` what stands in it, ``session`` the lease and the steps, ``base``
the thread that does them and the watches, ``store`` the driver itself.
"""
