"""Families: the formats of models other than gpt-oss, read from text with markers.

One machine, many tables: the framing is declared once, and a family is data (its markers and their roles).

    family              what a family is: markers by their roles
    known               the families that are known
    parser              the format `tagged`: from text to deltas
    framing             the framing that they share, as a table
    alphabet            its triggers and effects
    effects             the effects, carried out
    brackets            what a framing must be beyond a right table
    lexicon             the markers of a state, as one regular expression
    active              the item that is being written
    call                a call that is open
    envelope            the JSON object around a call
    nesting             the brackets of JSON
    parameter_values    from the text of a parameter to JSON
    special_tokens      the tokens behind the text
    reference_encoders  reference encoders
    drawing             the framing, drawn
"""

from interlock.parsers.families.active import Settings
from interlock.parsers.families.family import Family, Reasoning, Syntax
from interlock.parsers.families.known import REASONINGS, SYNTAXES, USUAL, family, known
from interlock.parsers.families.parser import FamilyParser
from interlock.parsers.families.parameter_values import Schemas

__all__ = [
    "REASONINGS",
    "SYNTAXES",
    "USUAL",
    "Family",
    "FamilyParser",
    "Reasoning",
    "Schemas",
    "Settings",
    "Syntax",
    "family",
    "known",
]
