"""The context of a command: settings, client, metadata, directories, confirmation."""
