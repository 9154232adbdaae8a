"""The SQLite driver: the metadata of a one-machine cluster in one file; metadata.md section 17.

``database`` is the file, ``rows`` its rows, ``changes`` the list of changed rows. ``session`` has
the lease and runs steps in transactions, ``one_thread`` is the thread for the steps, and
``file_client`` the reactor's side. ``tree`` is the file as a tree of nodes; ``paths`` maps nodes to
rows. ``store`` is the driver: the tree's store, with faster operations for a file.
"""
