"""Text from files on its way to a person: names and labels that cannot take over the terminal.

A file name, a class or an image's metadata may hold anything: escape codes that move the cursor or clear the screen,
line breaks that forge lines, marks that turn the order of the letters round, bytes that are no text. What is printed
goes through :func:`shown`; what is computed with stays as it was.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from typing import Any

# Control characters, line and paragraph separators, marks of direction, lone surrogates.
_UNSHOWN = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def shown(text: object) -> str:
    r"""``text`` on one line, with whatever a terminal might obey written as ``\x1b``."""
    return _UNSHOWN.sub(_escape, str(text))


def drawn(text: object) -> str:
    """``text`` for a picture: matplotlib takes what stands between dollars for a formula."""
    return shown(text).replace("$", r"\$")


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if 0xDC80 <= code <= 0xDCFF:  # how Python keeps a byte of a file name that is not UTF-8
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def shown_json(content: Any) -> str:
    """JSON for a terminal or a pipe: the same values, in characters the output can take."""
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "")
    text = json.dumps(content, indent=1, ensure_ascii=encoding != "utf8")
    # Inside strings json leaves these as they are; line breaks of the layout are the only ones outside.
    return "\n".join(_UNSHOWN.sub(lambda found: f"\\u{ord(found[0]):04x}", line) for line in text.split("\n"))


def say(notes: Iterable[object]) -> None:
    """Tell the person what was done with the data, beside the results: on stderr."""
    for note in notes:
        print(f"note: {shown(note)}", file=sys.stderr, flush=True)


def print_safely() -> None:
    """Let no character end a command: what the terminal's encoding lacks is printed as an escape."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
