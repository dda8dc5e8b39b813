"""Families are the formats of models other than gpt-oss: text with markers.

One table declares the framing for all; a family is data: its markers and their roles.

    family              a family: its markers by role
    catalog             the known families
    parser              the format `tagged`: from text to deltas
    framing             the shared framing, as a table
    alphabet            its triggers and effects
    effects             carries out the effects
    brackets            checks that the effects of a framing match
    lexicon             the markers of a state, as one regular expression
    patterns            the next of some texts, or the beginning of one
    active_item         the open item, and the open call
    literals            the grammar of literals, as a table, and its notations
    literal_reader      from the text of a literal to JSON
    response_template   a family from the template of a checkpoint
    envelope            the JSON object around a call
    parameter_values    from the text of a parameter to JSON
    special_tokens      the tokens behind the text
    reference_encoders  writes items as a model of a family does
    drawing             diagrams of the framing
"""

from interlock.parsers.families.active_item import Settings
from interlock.parsers.families.catalog import DEFAULT_REASONING, DISTINCT, OTHER_NAMES, REASONINGS, SYNTAXES, family, has_family
from interlock.parsers.families.family import Family, Reasoning, Syntax
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
    "Reasoning",
    "Schemas",
    "Settings",
    "Syntax",
    "family",
    "has_family",
]
