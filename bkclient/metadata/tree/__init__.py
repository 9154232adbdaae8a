"""The metadata store on a tree of versioned nodes: ZooKeeper's, or one in memory.

``nodes`` says what a tree must offer; the other modules are the store's parts, written once for
every kind of tree; ``store`` puts them together.
"""
