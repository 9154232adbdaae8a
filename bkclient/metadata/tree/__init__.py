"""The metadata store on a tree of versioned nodes, in ZooKeeper or in a SQLite file.

``nodes`` defines the operations of a tree. The other modules are the parts of the store, written
once for every kind of tree; ``store`` combines them.
"""
