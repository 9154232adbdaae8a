from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

import bkctl
from bkctl.errors import Interrupted
from bkctl.session.interrupt import GRACE_S, Interrupts


def test_a_signal_ends_a_wait_with_its_own_status() -> None:
    for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGALRM, 6)):
        with Interrupts(), pytest.raises(Interrupted) as caught:
            signal.raise_signal(number)
        assert caught.value.exit_status == status


def test_within_stopping_the_first_signal_only_asks() -> None:
    with Interrupts() as interrupts, interrupts.stopping() as stop:
        assert not stop
        signal.raise_signal(signal.SIGINT)
        assert stop
        assert stop.reason is not None
        assert stop.reason.exit_status == 130


def test_a_wait_within_stopping_ends_at_once() -> None:
    calls: list[str] = []

    def wait() -> str:
        calls.append("begins")
        signal.raise_signal(signal.SIGINT)
        calls.append("goes on")
        return "data"

    with Interrupts() as interrupts, interrupts.stopping() as stop:
        assert stop.wait_for(wait) is None
        assert stop
        assert stop.wait_for(wait) is None
    assert calls == ["begins"]


def test_a_wait_that_nobody_interrupts_gives_its_value() -> None:
    with Interrupts() as interrupts, interrupts.stopping() as stop:
        assert stop.wait_for(lambda x: x + 1, 1) == 2


def test_the_time_limit_is_a_signal_like_the_others() -> None:
    with pytest.raises(Interrupted) as caught, Interrupts(timeout_s=0.3):
        threading.Event().wait(60)
    assert caught.value.exit_status == 6
    assert caught.value.reason == "time limit reached after 300ms"


def test_the_time_limit_is_reported_with_what_was_waited_for() -> None:
    with Interrupts(timeout_s=30) as interrupts:
        interrupts.waits_for = lambda: "looking at ledgers"
        with pytest.raises(Interrupted) as caught:
            signal.raise_signal(signal.SIGALRM)
    assert caught.value.reason == "time limit reached after 30s, while looking at ledgers"


def test_the_handlers_of_before_come_back() -> None:
    before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)]
    with Interrupts(timeout_s=60):
        pass
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)] == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_other_threads_may_run_commands_too() -> None:
    failures: list[BaseException] = []

    def work() -> None:
        try:
            with Interrupts(timeout_s=1) as interrupts, interrupts.stopping() as stop:
                assert not stop
        except BaseException as error:  # noqa: BLE001 -- told by the main thread
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert failures == []


def test_the_echo_of_a_signal_does_not_count() -> None:
    with Interrupts(clock=lambda: 7.0) as interrupts, interrupts.stopping() as stop:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert stop
    with Interrupts(clock=lambda: 7.0):
        with pytest.raises(Interrupted):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)


def test_the_second_signal_ends_the_process_with_the_last_words() -> None:
    script = textwrap.dedent(
        """
        import signal, time
        from bkctl.session.interrupt import ECHO_S, Interrupts
        with Interrupts() as interrupts, interrupts.stopping() as stop:
            interrupts.last_words = "ledger 7 is open"
            print("printed before")
            signal.raise_signal(signal.SIGINT)
            time.sleep(ECHO_S + 0.1)
            try:
                signal.raise_signal(signal.SIGINT)
            finally:
                print("never")
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True
    )
    assert done.returncode == 130
    assert done.stdout == "printed before\n"
    assert done.stderr == "bkctl: left at once; ledger 7 is open\n"


def test_work_that_does_not_stop_in_time_after_sigterm_is_left_with_its_status() -> None:
    ended: list[tuple[int, str]] = []
    with (
        Interrupts(at_once=lambda *how: ended.append(how)) as interrupts,
        interrupts.stopping(),
    ):
        signal.raise_signal(signal.SIGTERM)
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= GRACE_S
        assert ended == []
        signal.raise_signal(signal.SIGALRM)
        assert ended == [(143, "")]


def test_a_clean_up_after_sigterm_has_all_the_time_that_it_needs() -> None:
    with Interrupts(at_once=lambda *how: pytest.fail(str(how))):
        with pytest.raises(Interrupted):
            signal.raise_signal(signal.SIGTERM)
        assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_a_time_limit_that_a_finalizer_swallows_comes_again() -> None:
    ended: list[tuple[int, str]] = []

    class Swallows:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGALRM)

    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        with Interrupts(timeout_s=60, at_once=lambda *how: ended.append(how)):
            Swallows()
            assert ended == []
            assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= GRACE_S
            signal.raise_signal(signal.SIGALRM)
    finally:
        sys.unraisablehook = hook
    assert ended == [(6, "")]


def test_a_time_limit_within_the_clean_up_after_ctrl_c_ends_nothing() -> None:
    ended: list[tuple[int, str]] = []
    with Interrupts(timeout_s=60, at_once=lambda *how: ended.append(how)):
        with pytest.raises(Interrupted):
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGALRM)
    assert ended == []


def test_nothing_is_loaded_before_a_signal_can_be_told_in_a_line() -> None:
    script = textwrap.dedent(
        """
        import sys
        sys.path.insert(0, sys.argv[1])
        before = set(sys.modules)
        import bkctl.__main__
        print(*sorted(set(sys.modules) - before))
        """
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script, Path(bkctl.__file__).parents[1]],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.split() == ["__future__", "bkctl", "bkctl.__main__"]


@pytest.mark.parametrize("module", ["bkctl.cli.root", "bookied.process.standard_streams"])
def test_a_signal_while_the_program_is_loaded_is_told_in_a_line(module: str) -> None:
    script = textwrap.dedent(
        f"""
        import signal, sys

        class Interrupting:
            def find_spec(self, name, path, target=None):
                if name == "{module}":
                    signal.raise_signal(signal.SIGINT)

        sys.meta_path.insert(0, Interrupting())
        from bkctl.__main__ import main
        main()
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "bkctl: interrupted\n")
