"""What a cluster stores beside ledgers' metadata: cookies, the layout, marks, and small records.

Pure: bytes in, values out. Agrees with BookKeeper 4.18.0; see docs/spec/metadata.md.
"""
