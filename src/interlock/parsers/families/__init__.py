"""Families: the formats of models other than gpt-oss, read from text with markers.

One machine, many tables: the framing is declared once, and a family is data (its markers and their roles).
"""

from interlock.parsers.families.active import Settings
from interlock.parsers.families.family import Family, Reasoning, Syntax
from interlock.parsers.families.known import REASONINGS, SYNTAXES, USUAL, family, known
from interlock.parsers.families.parser import FamilyParser
from interlock.parsers.families.values import Schemas

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
