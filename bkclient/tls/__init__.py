"""TLS for both ends of a connection between a client and a bookie.

``config`` declares the settings, ``names`` knows what Java calls versions and ciphers, ``stores``
reads keys and certificates, ``contexts`` makes of them what Twisted needs, ``reasons`` says why a
handshake failed. Only ``contexts`` and ``reasons`` import pyOpenSSL, which takes its time: load
them where TLS is wanted.
"""
