"""Families are the formats of models other than gpt-oss: text with markers.

One table declares the framing of all families; a family is data: its markers and their roles.

    family              a family: its markers by role
    catalog             the known families
    parser              the format `tagged`: from text to deltas
    framing             the shared framing: its triggers and effects, its table, and the checks of the table
    effects             carries out the effects of the framing, and counts the tokens of a turn
    state_markers       the markers of a state, as one regular expression
    patterns            finds the next marker, or the beginning of one
    literals            the grammar of literals as a table, its notations, and their reader
    response_template   from the template of a checkpoint to a family
    parameter_values    from the text of a parameter to JSON
    reference_encoders  writes items as a model of a family does
"""

from interlock.parsers.families.catalog import DEFAULT_REASONING, DISTINCT, OTHER_NAMES, REASONINGS, SYNTAXES, family, has_family
from interlock.parsers.families.effects import ParserSettings
from interlock.parsers.families.family import Family, ReasoningSyntax, Syntax
from interlock.parsers.families.parameter_values import Schemas
from interlock.parsers.families.parser import FamilyParser

__all__ = [
    "DEFAULT_REASONING",
    "DISTINCT",
    "OTHER_NAMES",
    "REASONINGS",
    "SYNTAXES",
    "Family",
    "FamilyParser",
    "ParserSettings",
    "ReasoningSyntax",
    "Schemas",
    "Syntax",
    "family",
    "has_family",
]
