"""The lines that `bkctl demo` prints."""

from __future__ import annotations

from bkctl.commands.local.demo import at_words


def test_a_line_is_wrapped_at_words_behind_its_head() -> None:
    text = "topics.py (30 KiB) into ledger 0: three copies, two to confirm"
    lines = at_words("  0.9 s  write     ", text, 40).splitlines()
    assert max(map(len, lines)) <= 40
    assert lines[1].startswith(" " * 19)
    assert " ".join(line[19:] for line in lines) == text
    assert at_words("head ", text, 0) == f"head {text}"
