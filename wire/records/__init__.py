"""The stored records of a cluster besides ledgers' metadata: cookies, layout, marks, small records.

Bytes in, values out. Agrees with BookKeeper 4.18.0; see docs/spec/metadata.md.
"""
