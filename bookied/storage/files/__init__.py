"""Files of a storage: the real ones, with direct and preallocated writes."""
