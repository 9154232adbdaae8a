"""The server of the bookie protocol: client connections, requests and responses."""
