"""Messages of batches as hypothesis draws them: their metadata and values."""

from __future__ import annotations

from hypothesis import strategies as st

from wire.pb import pulsar_pb2 as pb

NUMBERS = st.one_of(
    st.integers(0, 300), st.integers(0, 2**64 - 1), st.sampled_from([2**56 - 1, 2**56, 2**63])
)
PROPERTIES = st.lists(
    st.builds(
        pb.KeyValue,
        key=st.text("aöb", max_size=2),
        value=st.text(max_size=4) | st.text("v", min_size=115, max_size=125),
    ),
    max_size=3,
)
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "sequenceId": NUMBERS,
        "eventTime": NUMBERS,
        "partitionKey": st.text(max_size=20) | st.text("k", min_size=120, max_size=140),
        "partitionKeyB64Encoded": st.booleans(),
        "orderingKey": st.binary(max_size=20),
        "properties": PROPERTIES,
        "nullValue": st.booleans(),
        "nullPartitionKey": st.booleans(),
        "compactedOut": st.booleans(),
    },
)
USUAL = st.fixed_dictionaries({}, optional={"sequenceId": st.integers(0, 2**56 - 1)})
OF_A_PRODUCER = {
    "properties": PROPERTIES,
    "partitionKey": st.text("kö", max_size=3),
    "partitionKeyB64Encoded": st.just(value=False),
    "eventTime": st.integers(2**35 - 1, 2**42),
}


@st.composite
def alike(draw: st.DrawFn) -> list[tuple[dict[str, object], bytes]]:
    """Messages of a batch that all have the same fields."""
    names = draw(st.sets(st.sampled_from(sorted(OF_A_PRODUCER))))
    fields = {name: OF_A_PRODUCER[name] for name in names}
    one = st.fixed_dictionaries({"sequenceId": st.integers(2**14 - 1, 2**21 - 1), **fields})
    values = st.binary(max_size=5) | st.binary(min_size=127, max_size=200)
    return draw(st.lists(st.tuples(one, values), min_size=2, max_size=20))


MESSAGES = (
    st.lists(st.tuples(FIELDS | USUAL, st.binary(max_size=200)), min_size=1, max_size=8)
    | st.lists(st.tuples(USUAL, st.binary(min_size=3, max_size=3)), min_size=1, max_size=40)
    | alike()
)
