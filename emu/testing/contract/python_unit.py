"""Units written in Python: functions with the names and options of emu's own.

    def multiply(a, b, *, a_format, b_format, out_format, rounding): ...

A function is given the options in its signature. An option that it does not take is left out if it has the default
(rounding nearest_even, the format's default overflow rule, the exact Mac), or if it is the only format that is checked.
Else the clause is not offered. Nor is it if the function raises NotImplementedError.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from emu import engine
from emu.datapath import Flags, Mac, Rounding
from emu.datapath.overflow import default_rule
from emu.errors import FormatError
from emu.testing.contract.case import ELEMENTWISE, OPERATIONS, Answer, Case, NotOffered, flags_of

#: Options that are formats. A function need not take them if only one format is checked.
_FORMAT_OPTIONS = ("fmt", "out_format", "a_format", "b_format", "c_format", "addend_format")


@dataclass(frozen=True)
class PythonUnit:
    """Functions by the operation they do.

    Attributes:
        functions: operation -> callable.
        single_format: whether only one format is checked, so that functions need not take it.
    """

    functions: Mapping[str, Callable[..., Any]]
    single_format: bool = False

    @classmethod
    def of(cls, implementation: Any, *, single_format: bool = False) -> PythonUnit:
        """Return the unit of a mapping, of an object or module with functions, or of one function.

        One function does the operation that it is named after; under any other name it does `quantize`.

        Raises:
            FormatError: none of them does an operation of the contract, or one does not say its parameters.
        """
        functions = _functions_of(implementation)
        unknown = [name for name in functions if name not in OPERATIONS]
        if unknown or not functions:
            fault = f"got {', '.join(map(repr, unknown))}" if unknown else f"{implementation!r} has none"
            raise FormatError(f"a unit must have functions named {', '.join(OPERATIONS)}; {fault}")
        for name, function in functions.items():
            try:
                inspect.signature(function)
            except ValueError:  # those of C extensions: which options they take cannot be seen
                raise FormatError(
                    f"`{name}` of a unit must say its parameters, got {function!r} without; call it in a function of "
                    "Python that does"
                ) from None
        return cls(functions, single_format)

    @classmethod
    def of_backend(cls, name: str) -> PythonUnit:
        """Return emu's own unit, computed by one of its backends."""
        return cls({operation: partial(getattr(engine, operation), backend=name) for operation in OPERATIONS})

    def answer(self, case: Case, *, flags: bool = False) -> Answer:
        """Return the unit's answer to a case.

        Raises:
            NotOffered: it does not claim to do this.
        """
        function = self.functions.get(case.operation)
        if function is None:
            raise NotOffered(f"there is no `{case.operation}`")
        options = self._accepted(function, case)
        counted, register = Flags(), case.register()
        for name, asked, value in (("flags", flags, counted), ("register", register is not None, register)):
            if asked and not _takes(function, name):
                raise NotOffered(f"`{case.operation}` takes no `{name}`")
            # an option that is not asked for is passed as well if the function names it; under **options alone it is
            # left out
            if asked or name in inspect.signature(function).parameters:  # a parameter may have no default
                options[name] = value
        try:
            values = function(*case.arguments(), **options)
        except NotImplementedError as error:
            raise NotOffered(str(error) or "it raises NotImplementedError") from None
        # the convention of Python's binary operators, for units that are such methods
        if values is NotImplemented:
            raise NotOffered("it returns NotImplemented")
        return Answer(np.asarray(values), flags_of(counted) if flags else {}, register)

    def _accepted(self, function: Callable[..., Any], case: Case) -> dict[str, Any]:
        accepted: dict[str, Any] = {}
        for name, value in case.options().items():
            if _takes(function, name):
                accepted[name] = value
            elif not self._may_be_left_out(name, value, case):
                raise NotOffered(f"`{case.operation}` takes no `{name}`")
        return accepted

    def _may_be_left_out(self, name: str, value: Any, case: Case) -> bool:
        if name in _FORMAT_OPTIONS:
            return self.single_format
        rule = default_rule(case.stage.format)
        defaults: dict[str, Any] = {"rounding": Rounding.NEAREST_EVEN, "overflow": rule, "mac": Mac()}
        return name in defaults and value == defaults[name]


def _functions_of(implementation: Any) -> dict[str, Callable[..., Any]]:
    is_mapping = isinstance(implementation, Mapping)
    named = {name: getattr(implementation, name, None) for name in OPERATIONS}
    given: dict[str, Any] = dict(implementation) if is_mapping else named  # pyright: ignore[reportUnknownArgumentType]
    # a module may have other attributes of these names
    functions = {str(name): function for name, function in given.items() if callable(function)}
    if not functions and not is_mapping and callable(implementation):
        return {_operation_of(implementation): implementation}
    return functions


def _takes(function: Callable[..., Any], name: str) -> bool:
    parameters = inspect.signature(function).parameters
    named = parameters.get(name)
    if named is not None:
        # options are passed by name
        return named.kind in (named.KEYWORD_ONLY, named.POSITIONAL_OR_KEYWORD)
    return any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def _operation_of(function: Any) -> str:
    name = getattr(function, "__name__", "")
    # so a lambda, or a function with a name of its own, is a `quantize`
    return name if name in (*ELEMENTWISE, "matmul") else "quantize"
