"""The SQLite driver: the metadata of a one-machine cluster in one file; metadata.md section 17.

``database`` is the file, ``rows`` what stands in it, ``changes`` what changed and who watches,
``session`` the lease and the steps, ``one_thread`` the thread that does them, ``store_part`` what
the parts share, ``store`` the driver itself.
"""
