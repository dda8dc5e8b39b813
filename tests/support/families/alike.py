"""Equivalent changes of the framing, by the reason, as `families.mutations` names them.

`families.mutations` checks that no text of three chunks behind their edges is parsed differently, in any family with the edge.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_IN_CALL: Final = ("json", "torn_string", "json_complete", "envelope_closed")

ALIKE: Final[Mapping[str, frozenset[str]]] = {
    "A family whose calls stand alone has no sections: inside of one and outside is the same to it.": frozenset(
        {
            *(f"{state}/call: go to name" for state in _IN_CALL),
        }
    ),
    "What is read again there is read alike in both states.": frozenset(
        {
            "json_complete/next: go to argument",
            "literal/finish: drop",
            "literal/cut: drop",
        }
    ),
    "A family whose calls are bare JSON has no end of sections: inside of one and outside is the same to it.": frozenset(
        {"section/object: go to aside_name", "aside_section/object: go to name"}
    ),
    "Families that mark the end of a key need no lines of their own, so the start of a value is like its rest.": frozenset(
        {"keyed/value: go to value"}
    ),
    "A declared name is complete, so no text refutes it.": frozenset({"bare/declared: go to aside_name"}),
}
