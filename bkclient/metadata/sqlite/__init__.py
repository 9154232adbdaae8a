"""The SQLite driver: the metadata of a one-machine cluster in one file; metadata.md section 17.

``database`` is the file and its rows, ``driver_thread`` what runs on the one thread that uses it,
``store`` the driver itself.
"""
