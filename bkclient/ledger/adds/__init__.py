"""Adds to one ledger: ensemble changes, force, and the end of the ledger.

``bkclient.quorum.add_rules`` decides when a bookie is replaced.
"""
