"""What of a request is taken apart before anybody looks at it."""

from __future__ import annotations

import pytest

from bookied.admin.http.requests_and_replies import BadHttpRequestError, HttpRequest


def test_a_body_is_a_json_object() -> None:
    assert HttpRequest(body=b'{"a": [1]}').object == {"a": [1]}


@pytest.mark.parametrize("body", [b"", b"[]", b"\xff\xfe", b"[" * 60_000, b'{"a":' * 10_000])
def test_any_other_body_is_a_bad_request(body: bytes) -> None:
    with pytest.raises(BadHttpRequestError, match=r"the body is not (valid JSON|a JSON object)"):
        _ = HttpRequest(body=body).object
