"""The security of a connection: TLS, key stores, and authentication."""
