"""Settings: their declaration, the files they are read from, and the client's own."""
