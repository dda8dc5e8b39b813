"""A harmless subset of Python, and the process that runs a program in it.

    echo 'print(6 * 7)' | python examples/restricted_python.py

A program may use arithmetic, names, `print` and a few harmless functions; anything else is refused before it runs. Each program
runs in its own process, with little time and memory, and without an environment. This module only uses the standard library,
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
"""The CPU time of a program."""
MEMORY: Final = 256 * 2**20
"""The memory of a program, in bytes."""
LONGEST_CODE: Final = 4_000
"""The most characters of a program."""
LONGEST_OUTPUT: Final = 10_000
"""The most characters that a program may print."""
LARGEST_POWER: Final = 1_000
LONGEST_NUMBER: Final = 20
"""The most digits of a number in a program."""

FUNCTIONS: Final[Mapping[str, object]] = {
    function.__name__: function for function in (abs, divmod, float, int, len, max, min, range, round, sorted, str, sum)
}
"""The functions that a program may call, besides `print`."""

ALLOWED: Final = (
    *(ast.Module, ast.Expr, ast.Assign, ast.AugAssign, ast.For, ast.If, ast.Pass),
    *(ast.Name, ast.Load, ast.Store, ast.Constant, ast.Tuple, ast.List, ast.Call, ast.keyword, ast.IfExp),
    *(ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.operator, ast.unaryop, ast.boolop, ast.cmpop),
    *(ast.JoinedStr, ast.FormattedValue),
)
"""The syntax that a program may use: no attributes, subscripts, imports, definitions or comprehensions."""


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
        case _ if not isinstance(node, ALLOWED):
            reason = f"{type(node).__name__} is not allowed"
        case _:
            pass
    return reason


def _is_small(power: ast.expr) -> bool:
    return isinstance(power, ast.Constant) and isinstance(power.value, int | float) and abs(power.value) <= LARGEST_POWER


class Printed:
    """The output of a program, up to a limit."""

    def __init__(self) -> None:
        self.text = ""

    def print(self, *values: object, sep: str = " ", end: str = "\n") -> None:
        """Print like the built-in function.

        Raises:
            ValueError: The output is too long.
        """
        self.text += sep.join(map(str, values)) + end
        if len(self.text) > LONGEST_OUTPUT:
            self.text = self.text[:LONGEST_OUTPUT]
            raise ValueError(f"a program may print {LONGEST_OUTPUT} characters")


def execute(code: str) -> str:
    """Run a program in this process and return its output; a last expression is printed too, as in a Python prompt.

    Args:
        code: A program that `refusal` accepts.
    """
    tree, printed = ast.parse(code), Printed()
    match tree.body:
        case [*_, ast.Expr(value=value)] if not (isinstance(value, ast.Call) and _is_print(value)):
            tree.body[-1] = ast.Expr(ast.Call(ast.Name("print", ast.Load()), [value], []))
        case _:
            pass
    try:
        program = compile(ast.fix_missing_locations(tree), "<program>", "exec")
        exec(program, {"__builtins__": {**FUNCTIONS, "print": printed.print}})  # noqa: S102 - its syntax was checked
    except (Exception, MemoryError) as error:  # noqa: BLE001 - the error of a program is its result
        return f"{printed.text}{type(error).__name__}: {error}\n"
    return printed.text


def _is_print(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == "print"


def main() -> None:
    """Run the program on standard input."""
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")  # a program may print a lone surrogate
    code = sys.stdin.read()
    reason = refusal(code)
    sys.stdout.write(execute(code) if reason is None else f"refused: {reason}\n")


if __name__ == "__main__":
    main()
