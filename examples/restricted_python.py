"""A small part of Python that can do no harm: what it may say, and the process in which a program runs.

    echo 'print(6 * 7)' | python examples/restricted_python.py

A program is arithmetic, names, `print` and a few harmless functions; everything else is refused before it runs. It runs in a
process of its own, with little time and memory, no files and no environment. This module needs the standard library alone,
because that process has nothing else.
"""

from __future__ import annotations

import ast
import resource
import sys
from collections.abc import Mapping
from io import TextIOWrapper
from typing import Final

SECONDS: Final = 1
"""Of a processor."""
MEMORY: Final = 256 * 2**20
"""Bytes."""
LONGEST_CODE: Final = 4_000
"""Characters of a program."""
LONGEST_OUTPUT: Final = 10_000
"""Characters that a program may print."""
LARGEST_POWER: Final = 1_000
LONGEST_NUMBER: Final = 20
"""Digits of a number in a program."""

FUNCTIONS: Final[Mapping[str, object]] = {
    function.__name__: function for function in (abs, divmod, float, int, len, max, min, range, round, sorted, str, sum)
}
"""What a program may call beside `print`."""

SPOKEN: Final = (
    *(ast.Module, ast.Expr, ast.Assign, ast.AugAssign, ast.For, ast.If, ast.Pass),
    *(ast.Name, ast.Load, ast.Store, ast.Constant, ast.Tuple, ast.List, ast.Call, ast.keyword, ast.IfExp),
    *(ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.operator, ast.unaryop, ast.boolop, ast.cmpop),
    *(ast.JoinedStr, ast.FormattedValue),
)
"""What a program may be made of: no attributes, no subscripts, no imports, no definitions, no comprehensions."""


def refusal(code: str) -> str | None:
    """Return why a program may not run, or None if it may.

    Args:
        code: The program.
    """
    if len(code) > LONGEST_CODE:
        return f"a program may have {LONGEST_CODE} characters"
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"it cannot be read ({error})"
    return next((reason for node in ast.walk(tree) if (reason := _refused(node)) is not None), None)


def _refused(node: ast.AST) -> str | None:
    reason = None
    match node:
        case ast.Call(func=function) if not (isinstance(function, ast.Name) and function.id in {"print", *FUNCTIONS}):
            reason = f"only these can be called: print, {', '.join(FUNCTIONS)}"
        case ast.Name(id=name) if "__" in name:
            reason = f"the name {name} is not allowed"
        case ast.Constant(value=int() | float() | complex() as value) if len(str(value)) > LONGEST_NUMBER:
            reason = f"a number may have {LONGEST_NUMBER} digits"
        case ast.BinOp(op=ast.Pow(), right=power) | ast.AugAssign(op=ast.Pow(), value=power) if not _is_small(power):
            reason = f"an exponent must be a number up to {LARGEST_POWER}"
        case _ if not isinstance(node, SPOKEN):
            reason = f"{type(node).__name__} is not allowed"
        case _:
            pass
    return reason


def _is_small(power: ast.expr) -> bool:
    return isinstance(power, ast.Constant) and isinstance(power.value, int | float) and abs(power.value) <= LARGEST_POWER


class Printed:
    """What a program prints, up to its limit."""

    def __init__(self) -> None:
        self.text = ""

    def print(self, *values: object, sep: str = " ", end: str = "\n") -> None:
        """Print, as Python's own function does.

        Raises:
            ValueError: That would be too much.
        """
        self.text += sep.join(map(str, values)) + end
        if len(self.text) > LONGEST_OUTPUT:
            self.text = self.text[:LONGEST_OUTPUT]
            raise ValueError(f"a program may print {LONGEST_OUTPUT} characters")


def execute(code: str) -> str:
    """Run a program here and now, and give what it printed; a last expression is printed too, as a prompt would.

    Args:
        code: A program that `refusal` has nothing against.
    """
    tree, printed = ast.parse(code), Printed()
    match tree.body:
        case [*_, ast.Expr(value=value)] if not (isinstance(value, ast.Call) and _is_print(value)):
            tree.body[-1] = ast.Expr(ast.Call(ast.Name("print", ast.Load()), [value], []))
        case _:
            pass
    try:
        program = compile(ast.fix_missing_locations(tree), "<program>", "exec")
        exec(program, {"__builtins__": {**FUNCTIONS, "print": printed.print}})  # noqa: S102 - what it may say was judged
    except (Exception, MemoryError) as error:  # noqa: BLE001 - what a program raises is its result
        return f"{printed.text}{type(error).__name__}: {error}\n"
    return printed.text


def _is_print(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == "print"


def main() -> None:
    """Be the process of one program, which is on standard input."""
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")  # a program may print half a surrogate pair
    code = sys.stdin.read()
    reason = refusal(code)
    sys.stdout.write(execute(code) if reason is None else f"refused: {reason}\n")


if __name__ == "__main__":
    main()
