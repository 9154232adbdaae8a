"""Commands about a ledger's replicas: check, verify, map."""
