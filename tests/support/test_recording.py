from __future__ import annotations

import xml.etree.ElementTree as ET

from rich.text import Text

from tests.support.recording import END_S, FRAME_S_MAX, READ_S, Frame, animated

SVG = "{http://www.w3.org/2000/svg}"


def test_a_line_is_drawn_once_for_as_long_as_it_stays() -> None:
    first, second = Text("$ ls"), Text.assemble(("up", "green"), " <1>")
    frames = [
        Frame(10.0, (first,)),
        Frame(90.0, (first, second), is_result=True),
        Frame(90.5, (first, Text("down"))),
    ]
    root = ET.fromstring(animated(frames, title="T", columns=20, name="x"))
    (matrix,) = (one for one in root.iter(f"{SVG}g") if one.get("class") == "x-matrix")
    drawn = [
        ("".join(text.text or "" for text in line.iter(f"{SVG}text")), line.find(f"{SVG}animate"))
        for line in matrix
    ]
    assert [text.replace("\xa0", " ") for text, _ in drawn] == ["$ ls", "up<1>", "down"]
    total_s = FRAME_S_MAX + READ_S + END_S  # A long wait is cut, what is printed can be read.
    stays, goes, comes = (animation for _, animation in drawn)
    assert stays is None
    assert goes is not None
    assert comes is not None
    assert (goes.get("values"), goes.get("dur")) == ("hidden;visible;hidden", f"{total_s:.2f}s")
    assert comes.get("values") == "hidden;visible"
    assert [line.get("visibility") for line in matrix] == [None, "hidden", "visible"]
