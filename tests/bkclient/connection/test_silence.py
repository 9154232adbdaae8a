"""Who says nothing at all, and who is only slow."""

from __future__ import annotations

from bkclient.connection.tcp import ConnectionSilence


def test_two_time_outs_in_a_row_without_a_byte_are_the_end() -> None:
    silence = ConnectionSilence()
    silence.timed_out(5, 5, 5)
    assert silence.is_doubted
    assert not silence.is_over(9.9)
    silence.timed_out(10, 5, 5)
    assert silence.is_over(10)


def test_what_was_asked_beside_the_first_proves_nothing_more() -> None:
    silence = ConnectionSilence()
    for asked_s in (0, 0.5, 4.9):
        silence.timed_out(asked_s + 5, 5, 5)
        assert not silence.is_over(asked_s + 5)


def test_a_byte_in_the_time_of_a_request_shows_that_the_peer_is_only_slow() -> None:
    silence = ConnectionSilence()
    for asked_s in range(0, 100, 5):
        silence.heard_s = asked_s + 1
        silence.timed_out(asked_s + 5, 5, 5)
        assert not silence.is_doubted


def test_a_byte_after_a_time_out_ends_the_doubt() -> None:
    silence = ConnectionSilence()
    silence.timed_out(5, 5, 5)
    silence.heard_s = 5
    assert not silence.is_doubted
    assert not silence.is_over(100)
    silence.timed_out(11, 5, 5)
    assert not silence.is_over(15), "it begins anew"
    assert silence.is_over(16)


def test_our_own_pause_is_not_the_peers_silence() -> None:
    """Timers that became due meanwhile come all at once, before what lies in the socket."""
    silence = ConnectionSilence()
    for _ in range(3):
        silence.timed_out(600, 5, 5)
        assert not silence.is_over(600)
    silence.heard_s = 600.001
    assert not silence.is_doubted


def test_a_long_wait_is_given_as_long_again() -> None:
    silence = ConnectionSilence()
    silence.timed_out(31, 31, 31)
    assert not silence.is_over(61)
    assert silence.is_over(62)
    assert silence.lasts_s(62) == 62


def test_a_short_wait_casts_doubt_and_leaves_the_usual_time() -> None:
    silence = ConnectionSilence()
    silence.timed_out(2, 2, 5)
    assert not silence.is_over(6.9)
    assert silence.is_over(7)
