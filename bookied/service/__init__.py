"""The places that build a service from its parts."""
