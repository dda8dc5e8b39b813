"""What the effects of a table mean, for those who look at its picture: the docstrings of an enum's members."""

from __future__ import annotations

import ast
import inspect
from enum import StrEnum
from itertools import pairwise


def key_of(effects: type[StrEnum]) -> dict[str, str]:
    """Return what each member of an enum means, by its value: the first sentence of the string that follows it in the source.

    Args:
        effects: An enum whose members have such strings.
    """
    (declared,) = ast.parse(inspect.getsource(effects)).body
    key: dict[str, str] = {}
    for statement, following in pairwise(declared.body if isinstance(declared, ast.ClassDef) else ()):
        match statement, following:
            case ast.Assign([ast.Name(name)]), ast.Expr(ast.Constant(str(said))):
                key[effects[name].value] = " ".join(said.split()).partition(". ")[0].removesuffix(".")
            case _:
                pass
    return key
