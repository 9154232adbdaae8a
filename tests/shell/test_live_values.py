from __future__ import annotations

from shell.live_values import ANSWERS_MAX, FRESH_S, QUESTIONS_MAX, Live, LiveQuestions
from tests.shell.toy_program import Later, ToyProgram, ToyStatus


def _world(**books: str) -> tuple[ToyProgram, Later, Live]:
    program, later = ToyProgram(books or None), Later()
    return program, later, Live(program, LiveQuestions(start=later, clock=later.seconds))


def _names(live: Live, prefix: str = "") -> list[str]:
    found, _ = live.candidates("book_id", prefix, ())
    return [name for name, _ in found]


def test_nobody_waits_for_the_first_answer() -> None:
    program, later, live = _world()
    found, coming = live.candidates("book_id", "b1", ())
    assert (found, program.asked) == ([], [])
    assert coming is not None
    assert not coming.done()
    later.run()
    assert coming.done()
    assert live.candidates("book_id", "b1", ()) == ([("b1", "new"), ("b10", "torn")], None)


def test_the_same_is_asked_once_and_again_only_when_it_has_aged() -> None:
    program, later, live = _world()
    _names(live), _names(live, "b"), _names(live, "b1")
    later.run()
    _names(live, "b2")
    assert len(program.asked) == 1
    later.now_s += FRESH_S
    program.books = {"b9": ""}
    assert _names(live) == ["b1", "b2", "b10"]
    later.run()
    assert _names(live) == ["b9"]
    assert len(program.asked) == 2


def test_what_is_doubted_is_asked_again_and_shown_until_the_answer_comes() -> None:
    program, later, live = _world()
    _names(live)
    later.run()
    live.questions.doubt()
    program.books = {"b3": ""}
    assert _names(live) == ["b1", "b2", "b10"]
    later.run()
    assert _names(live) == ["b3"]


def test_a_prefix_is_asked_for_where_there_are_too_many() -> None:
    program, later, live = _world(**{f"b{n}": "" for n in range(50)})
    program.books_max = 10
    _names(live)
    later.run()
    assert _names(live, "b4") == ["b4"]
    later.run()
    assert _names(live, "b4") == ["b4", *(f"b{n}" for n in range(40, 49))]
    assert [prefix for _, prefix, _ in program.asked] == ["", "b4"]


def test_what_failed_is_not_asked_again_at_once_and_what_was_known_stays() -> None:
    program, later, live = _world()
    _names(live)
    later.run()
    later.now_s += FRESH_S
    program.broken = OSError("gone")
    _names(live)
    later.run()
    assert _names(live) == ["b1", "b2", "b10"]
    assert (len(program.asked), later.waiting) == (2, [])


def test_only_so_many_questions_are_under_way() -> None:
    later = Later()
    questions = LiveQuestions(start=later, clock=later.seconds)
    asked = [questions.ask(n, lambda: 1) for n in range(QUESTIONS_MAX + 1)]
    assert [one is None for one in asked] == [False] * QUESTIONS_MAX + [True]
    later.run()
    assert questions.ask(QUESTIONS_MAX, lambda: 1) is not None


def test_only_so_many_answers_are_kept() -> None:
    questions = LiveQuestions(start=lambda work: work())
    for n in range(ANSWERS_MAX + 1):
        questions.ask(n, lambda: 1)
    assert questions.known(0) is None
    assert questions.known(ANSWERS_MAX) is not None


def test_settings_tell_answers_apart() -> None:
    program, later, live = _world()
    live.candidates("book_id", "", ("--language", "latin"))
    later.run()
    assert _names(live) == []
    assert program.asked == [("book_id", "", ("--language", "latin"))]


def test_the_state_is_the_last_one_known_with_its_age_and_why_it_is_not_newer() -> None:
    program, later, live = _world()
    assert live.state(()).text == ""
    later.run()
    assert (live.state(()).label, live.state(()).text) == ("attic", "3 books")
    program.broken = OSError("the attic is locked")
    later.now_s += FRESH_S
    live.state(())
    later.run()
    later.now_s += 1
    state = live.state(())
    assert (state.label, state.text) == ("attic", "3 books")
    assert (state.problem, state.age_s) == ("the attic is locked", FRESH_S + 1)


def test_the_programs_own_trouble_is_told() -> None:
    program, later, live = _world()
    program.now = ToyStatus(problem="rain comes in")
    live.state(())
    later.run()
    assert live.state(()).problem == "rain comes in"


def test_who_listens_hears_of_each_answer() -> None:
    program, later, live = _world()
    heard: list[int] = []
    live.questions.heard = lambda: heard.append(1)
    live.state(())
    program.broken = OSError("gone")
    _names(live)
    later.run()
    assert heard == [1, 1]


def test_real_questions_are_asked_on_another_thread() -> None:
    import threading

    asked = LiveQuestions().ask("where", threading.current_thread)
    assert asked is not None
    answer = asked.result(60)
    assert answer.value is not threading.current_thread()
    assert answer.value.daemon
