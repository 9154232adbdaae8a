"""Versions and suites: Java's names and OpenSSL's."""

from __future__ import annotations

import pytest
from OpenSSL import SSL

from bkclient.config.tls import (
    is_tls13,
    openssl_suite,
    suites_refused,
    versions,
    versions_refused,
)

JAVA = [
    ("TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"),
    ("TLS_CHACHA20_POLY1305_SHA256", "TLS_CHACHA20_POLY1305_SHA256"),
    ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
    ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384", "ECDHE-RSA-AES256-SHA384"),
    ("TLS_DHE_RSA_WITH_AES_128_CBC_SHA", "DHE-RSA-AES128-SHA"),
    ("TLS_RSA_WITH_AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
    ("TLS_RSA_WITH_AES_128_CBC_SHA256", "AES128-SHA256"),
    ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
]


@pytest.mark.parametrize(("java", "openssl"), JAVA)
def test_each_suite_of_java_is_one_that_openssl_knows(java: str, openssl: str) -> None:
    assert openssl_suite(java) == openssl
    context = SSL.Context(SSL.TLS_METHOD)
    if is_tls13(java):
        context.set_tls13_ciphersuites(openssl.encode())
    else:
        context.set_cipher_list(openssl.encode())


@pytest.mark.parametrize("name", ["TLS_NOTHING", "AES128", "TLS_RSA_WITH_RC4_128_MD5", ""])
def test_what_is_no_suite_has_no_name(name: str) -> None:
    assert openssl_suite(name) is None


def test_unknown_suites_are_refused_by_name() -> None:
    assert (
        suites_refused(["TLS_AES_128_GCM_SHA256", "X_1"])
        == "names X_1, which is not a known cipher suite"
    )
    assert suites_refused([]) is None


def test_versions_are_those_asked_for_that_are_safe() -> None:
    assert versions([]) == ("TLSv1.2", "TLSv1.3")
    assert versions(["TLSv1.3,TLSv1.1", "TLSv1.2"]) == ("TLSv1.2", "TLSv1.3")
    assert versions(["TLSv1.3"]) == ("TLSv1.3",)


@pytest.mark.parametrize(
    ("listed", "reason"),
    [
        (["TLSv1.2"], None),
        (["TLSv1", "TLSv1.2", "SSLv2Hello"], None),
        (["TLSv1,TLSv1.1"], "names no version of TLS that is safe"),
        (["TLSv1.2", "TLS1.3"], "TLS1.3, which is not a version of TLS"),
    ],
)
def test_old_versions_alone_are_refused_and_so_are_misspelt_ones(listed, reason) -> None:
    found = versions_refused(listed)
    assert found is None if reason is None else reason in found
