"""Text of a corpus made fit to be looked at: what is invisible becomes visible, what is endless becomes short."""

from __future__ import annotations

import json
import re
from typing import Any

# Characters that hide, or that reorder what stands around them.
NAMES = {
    0x00AD: "SHY", 0x061C: "ALM", 0x180E: "MVS", 0x200B: "ZWSP", 0x200E: "LRM", 0x200F: "RLM", 0x2028: "LS",
    0x2029: "PS", 0x202A: "LRE", 0x202B: "RLE", 0x202C: "PDF", 0x202D: "LRO", 0x202E: "RLO", 0x2060: "WJ",
    0x2066: "LRI", 0x2067: "RLI", 0x2068: "FSI", 0x2069: "PDI", 0xFEFF: "BOM",
}  # fmt: skip
CONTROLS = (
    "NUL SOH STX ETX EOT ENQ ACK BEL BS TAB LF VT FF CR SO SI "
    "DLE DC1 DC2 DC3 DC4 NAK SYN ETB CAN EM SUB ESC FS GS RS US"
)
SHOWN: dict[int, str] = {
    **{code: f"‹{name}›" for code, name in enumerate(CONTROLS.split())},
    **{code: f"‹{code:02X}›" for code in range(0x80, 0xA0)},
    **{code: f"‹{name}›" for code, name in NAMES.items()},
    0x09: "⇥",
    0x0A: "↵\n",
    0x7F: "‹DEL›",
    **dict.fromkeys(range(0xD800, 0xE000), "\ufffd"),  # half of a pair is no text
    **{code: f"‹{code:04X}›" for code in (0xFFF9, 0xFFFA, 0xFFFB, 0xFFFE, 0xFFFF)},
}
_ODD = re.compile("[" + "".join(re.escape(chr(code)) for code in SHOWN) + "\U000e0000-\U000e007f]")
_MARK = "[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]"
_PILES = re.compile(f"({_MARK}{{4}}){_MARK}+")  # marks on marks would cover the lines around
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


def shown(text: str, most: int) -> str:
    """Not longer than `most` characters of the corpus, with signs for those that nobody sees.

    >>> shown("a\\x1b[31m b\\u202e", 20), shown("abcdef", 4)
    ('a‹ESC›[31m b‹RLO›', 'abc…')
    """
    if len(text) > most:
        text = text[: most - 1] + "…"
    return _PILES.sub(r"\1", _ODD.sub(lambda match: SHOWN.get(ord(match[0]), "‹TAG›"), text))


def to_json(value: Any) -> str:
    """JSON for a block of data in HTML: no tag and no comment can begin or end in it.

    >>> to_json("</script><!--")
    '"\\\\u003c/script\\\\u003e\\\\u003c!--"'
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return re.sub("[<>&]", lambda match: _UNSAFE[match[0]], text)
