"""Adding to one ledger: ensemble changes, force, and where the ledger ends.

When a bookie is replaced: ``bkclient.quorum.add_rules``.
"""
