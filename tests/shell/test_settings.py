from __future__ import annotations

from shell.settings import Settings
from tests.shell.toy_program import shelf


def test_options_of_the_root_can_be_set_and_those_that_only_act_cannot() -> None:
    assert set(Settings(shelf).options) == {"language", "loud", "mark"}


def test_what_is_set_becomes_words_in_front_of_each_command() -> None:
    settings = Settings(shelf)
    settings.set("language", "latin")
    settings.set("loud", "on")
    assert settings.words == ["--language", "latin", "--loud"]
    settings.set("language", "english")
    settings.set("loud", "OFF")
    assert settings.words == ["--language", "english"]
    settings.unset("language")
    assert settings.words == []


def test_what_may_be_given_many_times_adds_up() -> None:
    settings = Settings(shelf)
    settings.set("mark", "a")
    settings.set("mark", "b")
    assert settings.words == ["--mark", "a", "--mark", "b"]


def test_what_was_given_holds_until_it_is_set_anew_and_is_no_change() -> None:
    settings = Settings(shelf, {"language": ("--language", "latin"), "loud": ("--loud",)})
    assert settings.words == ["--language", "latin", "--loud"]
    assert settings.changes == []
    settings.set("language", "english")
    settings.unset("loud")
    assert settings.words == settings.changes == ["--language", "english"]
    settings.unset("language")
    assert settings.words == ["--language", "latin"]
    settings.unset("language")
    assert settings.words == []
