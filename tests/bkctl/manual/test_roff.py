"""Text to roff: nothing of it is lost, nothing of it is taken for a request."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bkctl.manual.roff import LINE_CHARS_MAX, Page, bold, escaped, prose, usage

WORDS = st.lists(
    st.text(st.characters(codec="ascii", categories=("L", "N", "P", "S")), min_size=1, max_size=9),
    min_size=1, max_size=40,
).map(" ".join)  # fmt: skip


def _page() -> Page:
    return Page("thing", 1, about="does things", date="2026-01-02", source="thing 1")


@given(WORDS)
@example(f".{'0' * 60} {'0' * 16}")  # As long as a line may be, before it is guarded.
def test_no_line_of_prose_is_a_request_or_too_long(text: str) -> None:
    for line in prose(text):
        assert not line.startswith((".", "'"))
        assert len(line) <= LINE_CHARS_MAX or " " not in line


def test_a_new_sentence_begins_a_new_line() -> None:
    assert prose("One thing. Another, e.g. this one; 1.5 s.") == [
        "One thing.", "Another, e.g. this one; 1.5 s.",
    ]  # fmt: skip


def test_code_is_never_cut_between_sentences() -> None:
    lines = prose("It is new. `. DIR/bkctl.env` selects it. `-` too.")
    assert lines == ["It is new.", "\\fB. DIR/bkctl.env\\fR selects it.", "\\fB\\-\\fR too."]


def test_code_and_options_stand_out_in_prose() -> None:
    assert prose("Without --force or `bkctl log-x` it is well-known.") == [
        r"Without \fB\-\-force\fR or \fBbkctl log\-x\fR it is well-known."
    ]


def test_what_is_copied_from_a_page_is_what_was_meant() -> None:
    assert escaped(r"a-b 'c' \n ~ ^ `") == r"a\-b \(aqc\(aq \en \(ti \(ha \(ga"
    assert escaped("…") == r"\[u2026]"


def test_values_of_options_are_in_italics() -> None:
    assert usage("-o, --output [a|b]") == rf"{bold('-o')}, {bold('--output')} \fI[a|b]\fR"
    assert usage("-X KEY=VALUE") == rf"{bold('-X')} \fIKEY\fR=\fIVALUE\fR"


def test_a_help_text_keeps_the_paragraphs_that_are_to_stay_as_they_are() -> None:
    page = _page()
    page.title("DESCRIPTION")
    page.help("One\n    and two.\n\n    \b\n    a   b\n    .c  d\n\n    Three.")
    text = page.text.partition('.SH "DESCRIPTION"\n')[2]
    assert text == ("One and two.\n.PP\n.RS 4\n.nf\na   b\n\\&.c  d\n.fi\n.RE\n.PP\nThree.\n")


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_a_page_reads_as_it_was_written() -> None:
    page = _page()
    page.title("OPTIONS")
    page.item(usage("-o, --output [a|b]"), 'It\'s `x-y`, "z" and \\n. Then ~/.bashrc.')
    page.literal(["$ thing -v 'a b' | cat", ".dot"])
    page.small_list([("0", "done"), ("10", "not done")])
    shown = subprocess.run(
        ["groff", "-ww", "-man", "-Tascii", "-P-cbou"], input=page.text, text=True,
        capture_output=True, check=True,
    )  # fmt: skip
    assert shown.stderr == ""
    for line in ("-o, --output [a|b]", 'It\'s x-y, "z" and \\n.  Then ~/.bashrc.',
                 "$ thing -v 'a b' | cat", ".dot", "0     done", "10    not done"):  # fmt: skip
        assert line in [one.strip() for one in shown.stdout.splitlines()], shown.stdout
