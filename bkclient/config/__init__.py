"""Settings: their declaration, their files, and the client's settings."""
