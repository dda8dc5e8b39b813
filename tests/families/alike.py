"""Equivalent changes of the framing, by the reason, as `families.mutations` names them.

`make prove-framing` checks that no text of three chunks behind their edges is parsed differently, in any family with the edge.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_IN_CALL: Final = ("body", "argument", "json", "torn", "member", "whole", "shut", "astray")

ALIKE: Final[Mapping[str, frozenset[str]]] = {
    "A family whose calls stand alone has no sections: inside of one and outside is the same to it.": frozenset(
        {
            *(f"{state}/call: go to name" for state in _IN_CALL),
            *(f"{state}/ended: go to between" for state in ("json", "quoted", "torn")),
        }
    ),
    "What is read again there is read alike in both states.": frozenset(
        {
            *(f"{state}/glued_keys: go to astray" for state in ("name", "thought name", "aside name")),
            *(f"{state}/glued_json: go to argument" for state in ("name", "thought name", "aside name")),
            "keyed/text: go to body",
            "whole/text: go to shut",
            "whole/next: go to argument",
            "value/overrun: go to astray",
        }
    ),
    "A family whose calls are bare JSON has no end of sections: inside of one and outside is the same to it.": frozenset(
        {"section/object: go to aside name", "aside section/object: go to name"}
    ),
    "A bracket is counted and written, and neither needs the other.": frozenset(
        {"json/nest: swap WRITE and DEEPEN", "json/unnest: swap WRITE and RISE"}
    ),
}
