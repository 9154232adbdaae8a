"""The SQLite driver: the metadata of a one-machine cluster in one file; metadata.md section 17.

``database`` is the file, ``rows`` what stands in it, ``changes`` what changed, ``session`` the
lease and the steps, ``one_thread`` the thread that does them, ``file_client`` what uses that.
``tree`` is a file as a tree of nodes; ``paths`` says which row a node is. ``store`` is the driver
itself: the tree's, but for what a file has faster.
"""
