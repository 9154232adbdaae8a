"""How a connection proves the identity of both ends: TLS, key stores, and the login before use."""
