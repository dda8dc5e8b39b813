"""Griffe reads classes without running them, so it does not see the `__init__` that attrs writes: this extension adds it."""

from __future__ import annotations

import re
from typing import Any

from griffe import Attribute, Class, Extension, Function, Parameter, ParameterKind, Parameters

_ATTRS = re.compile(r"^(attrs\.)?(define|frozen)\b")
_FACTORY = re.compile(r"\bfactory=([\w.]+)")
_DEFAULT = re.compile(r"\bdefault=([^,)]+)")


class AttrsClasses(Extension):
    """Gives classes that attrs completes the signature of their constructor."""

    def on_class(self, *, cls: Class, **_kwargs: Any) -> None:  # noqa: ANN401 - griffe's own signature
        """Add `__init__` to a class that is decorated with `define` or `frozen`."""
        if any(_ATTRS.match(f"{decorator.value}") for decorator in cls.decorators):
            fields = [each for each in cls.members.values() if isinstance(each, Attribute) and each.annotation is not None]
            given = [self._parameter(field) for field in fields if "init=False" not in f"{field.value}"]
            receiver = Parameter("self", kind=ParameterKind.positional_or_keyword)
            made = Function("__init__", parameters=Parameters(receiver, *given), parent=cls, returns="None")
            cls.set_member("__init__", made)

    def _parameter(self, field: Attribute) -> Parameter:
        value = None if field.value is None else f"{field.value}"
        kind = ParameterKind.positional_or_keyword
        if value is not None and value.startswith("field("):
            kind = ParameterKind.keyword_only if "kw_only=True" in value else kind
            made, given = _FACTORY.search(value), _DEFAULT.search(value)
            value = f"{made[1]}()" if made else given[1] if given else None
        return Parameter(field.name.lstrip("_"), annotation=field.annotation, kind=kind, default=value)
