"""Files of a storage: the real ones, direct and ahead of use."""
