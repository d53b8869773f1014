"""What NVIDIA's compiler made of a kernel, run by the host: PTX translated into C++ for `cuda_on_host`.

Instruction by instruction, each register a variable of its declared type; `host/ptx_on_host.h` says what an
instruction does. An instruction that the translator lacks is an error that names it. Untested are then only the
assembler behind PTX, and the silicon.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from emu.errors import EmuError

#: PTX types as C++ ones; `b` types are unsigned.
_TYPES = {
    **{f"{kind}{bits}": f"{'' if kind == 's' else 'u'}int{bits}_t" for kind in "ubs" for bits in (8, 16, 32, 64)},
    "f32": "float",
    "f64": "double",
    "pred": "bool",
}
_COMPARISONS = {
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "lo": "<",
    "ls": "<=",
    "hi": ">",
    "hs": ">=",
}
_LOGIC = {"and": "&", "or": "|", "xor": "^"}
_SPECIAL = {"tid": "threadIdx", "ntid": "blockDim", "ctaid": "blockIdx", "nctaid": "gridDim"}
_ATOMICS = {"add": "ADD", "max": "MAX", "min": "MIN", "or": "OR", "and": "AND", "exch": "EXCHANGE"}
#: Instructions of the same shape in both languages: how many sources.
_PLAIN = {"add": 2, "sub": 2, "min": 2, "max": 2, "div": 2, "rem": 2, "neg": 1, "abs": 1}
_COUNTED = {"shl": 2, "shr": 2}


class UnknownInstructionError(EmuError):
    """PTX that the translator lacks; the message lists it."""


@dataclass
class _Entry:
    """A kernel while it is translated."""

    name: str
    parameters: list[tuple[str, str]]  # type in C++, name
    symbols: dict[str, str] = field(default_factory=dict[str, str])
    registers: dict[str, str] = field(default_factory=dict[str, str])
    lines: list[str] = field(default_factory=list[str])
    unknown: set[str] = field(default_factory=set[str])


def translate(ptx: str) -> str:
    """Return C++ for `cuda_on_host`, one function and `EMU_KERNEL` per entry.

    Args:
        ptx: text as NVRTC writes it.

    Raises:
        UnknownInstructionError: instructions that it lacks.
    """
    text = re.sub(r"//[^\n]*", "", ptx)
    parts, unknown = ['#include "ptx_on_host.h"'], set[str]()
    for name, parameters, body in _entries(text):
        entry = _Entry(name, parameters)
        entry.symbols |= {parameter: f"reinterpret_cast<uint64_t>(&{parameter})" for _, parameter in parameters}
        offset = _declare_shared(entry, body)
        _declare_shared(entry, text, offset)
        _declare_locals(entry, body)
        for match in re.finditer(r"\.reg\s+\.(\w+)\s+([^;]+);", body):
            _declare_registers(entry, match[1], match[2])
        for statement in _statements(body):
            entry.lines.append(_translated(entry, statement))
        unknown |= entry.unknown
        parts.append(_function(entry))
    if unknown:
        raise UnknownInstructionError(f"PTX instructions without a translation: {', '.join(sorted(unknown))}")
    return "\n".join(parts) + "\n"


def entry_names(ptx: str) -> list[str]:
    """Return the names of the kernels in a PTX text."""
    return re.findall(r"\.entry\s+(\w+)", ptx)


def floating_instructions(ptx: str) -> dict[str, list[str]]:
    """Return the floating-point arithmetic of each kernel in a PTX text, sorted: what an integer kernel has none of.

    Moves, loads, stores, selections and comparisons of floats are no arithmetic.
    """
    operations = "add|sub|mul|mad|fma|div|rcp|sqrt|rsqrt|min|max|cvt|ex2|lg2|sin|cos|tanh"
    pattern = rf"\b((?:{operations})(?:\.\w+)*\.[bf](?:16|32|64)(?:\.\w+)?)\b"
    return {
        name: sorted({match for match in re.findall(pattern, body) if re.search(r"\.b?f(?:16|32|64)", match)})
        for name, _, body in _entries(re.sub(r"//[^\n]*", "", ptx))
    }


def _entries(text: str) -> Iterator[tuple[str, list[tuple[str, str]], str]]:
    pattern = r"\.entry\s+(\w+)\s*\((.*?)\)([^{]*)\{(.*?)\n\}"
    for name, parameters, _, body in re.findall(pattern, text, re.DOTALL):
        yield name, [_parameter(text) for text in parameters.split(",") if text.strip()], body


def _parameter(text: str) -> tuple[str, str]:
    """Return a parameter's type in C++ and its name; a structure by value is bytes at an alignment."""
    structure = re.search(r"\.param\s+\.align\s+(\d+)\s+\.b8\s+(\w+)\[(\d+)\]", text)
    if structure is not None:
        return f"ptx::Structure<{structure[1]}, {structure[3]}>", structure[2]
    scalar = re.search(r"\.param\s+\.(\w+)\s+(?:\.ptr.*\s)?(\w+)", text)
    if scalar is None:
        raise UnknownInstructionError(f"PTX parameter without a translation: {text.strip()}")
    return _TYPES[scalar[1]], scalar[2]


def _declare_shared(entry: _Entry, text: str, offset: int = 0) -> int:
    for match in re.finditer(r"\.shared\s+\.align\s+(\d+)\s+\.b8\s+(\w+)\[(\d*)\]", text):
        if match[2] in entry.symbols:
            continue
        align = int(match[1])
        offset = -(-offset // align) * align
        entry.symbols[match[2]] = f"{offset}u"
        offset += int(match[3] or 0)
    return offset


def _declare_locals(entry: _Entry, body: str) -> None:
    for match in re.finditer(r"\.local\s+\.align\s+(\d+)\s+\.b8\s+(\w+)\[(\d+)\]", body):
        entry.lines.append(f"alignas({match[1]}) unsigned char {match[2]}[{match[3]}];")
        entry.symbols[match[2]] = f"reinterpret_cast<uint64_t>({match[2]})"


def _declare_registers(entry: _Entry, kind: str, names: str) -> None:
    for name in names.split(","):
        counted = re.fullmatch(r"%(\w+)<(\d+)>", name.strip())
        single = [name.strip()[1:]] if counted is None else [f"{counted[1]}{i}" for i in range(int(counted[2]))]
        for register in single:
            entry.registers[register] = kind


def _statements(body: str) -> Iterator[str]:
    body = re.sub(r"(?m)^\s*\.(?:reg|shared|local|loc|pragma|extern)\b[^;\n]*;?", "", body)
    for part in re.split(r"(\$?\w+:(?!:))|;", re.sub(r"[\n\t]+", " ", body)):
        if part and part.strip(" {}"):
            yield part.strip()


def _function(entry: _Entry) -> str:
    parameters = ", ".join(f"{kind} {name}" for kind, name in entry.parameters)
    used = {name: kind for name, kind in entry.registers.items() if any(f"r_{name}" in line for line in entry.lines)}
    registers = [f"{_TYPES[kind]} r_{name} = 0;" for name, kind in used.items()]
    code = "\n    ".join([*registers, *entry.lines])
    return f"static void {entry.name}({parameters}) {{\n    {code}\n}}\nEMU_KERNEL({entry.name})"


def _translated(entry: _Entry, statement: str) -> str:
    if statement.endswith(":"):
        return f"{statement[:-1].lstrip('$')}:;"
    guard = re.match(r"@(!?)%(\w+)\s+", statement)
    condition = "" if guard is None else f"if ({guard[1]}r_{guard[2]}) "
    rest = statement if guard is None else statement[guard.end() :]
    name, _, operands = rest.partition(" ")
    arguments = [part.strip() for part in re.split(r",(?![^{\[]*[}\]])", operands)] if operands.strip() else []
    try:
        return condition + _instruction(entry, name.split("."), arguments)
    except (KeyError, IndexError, ValueError):
        entry.unknown.add(rest if len(rest) < 60 else name)
        return "std::abort();"


def _instruction(entry: _Entry, name: list[str], arguments: list[str]) -> str:
    operation, kind = name[0], name[-1]

    def value(text: str, as_kind: str = kind) -> str:
        return f"static_cast<{_TYPES[as_kind]}>({_operand(entry, text)})"

    def call(function: str, *sources: str, types: str = "") -> str:
        return _set(entry, arguments[0], f"ptx::{function}{types or f'<{_TYPES[kind]}>'}({', '.join(sources)})")

    if operation in _PLAIN:
        return call(operation, *(value(text) for text in arguments[1 : 1 + _PLAIN[operation]]))
    if operation in _COUNTED:
        return call(operation, value(arguments[1]), value(arguments[2], "u32"))
    if operation in _LOGIC:
        return _set(entry, arguments[0], f"{value(arguments[1])} {_LOGIC[operation]} {value(arguments[2])}")
    if operation in _SPECIALS:
        return _SPECIALS[operation](entry, name, arguments)
    if operation in ("mul", "mad"):
        return _multiplied(entry, name, arguments)
    if operation in ("clz", "popc"):
        return call(operation, value(arguments[1]))
    if operation == "bfi":
        return call("bfi", value(arguments[1]), value(arguments[2]), *(value(text, "u32") for text in arguments[3:]))
    if operation == "bfe":
        return call("bfe", value(arguments[1]), *(value(text, "u32") for text in arguments[2:]))
    if operation == "fma":
        return _set(entry, arguments[0], f"std::fma({', '.join(value(text) for text in arguments[1:])})")
    if operation == "sqrt":
        return _set(entry, arguments[0], f"std::sqrt({value(arguments[1])})")
    if operation == "rcp":
        return _set(entry, arguments[0], f"{_TYPES[kind]}(1) / {value(arguments[1])}")
    raise KeyError(operation)


def _operand(entry: _Entry, text: str) -> str:
    special = re.fullmatch(r"%(n?tid|n?ctaid)\.([xyz])", text)
    if special:
        return f"{_SPECIAL[special[1]]}.{special[2]}"
    if text == "%laneid":
        return "EMU_HOST_LANE"
    if text.startswith("%"):
        entry.registers[text[1:]]  # declared
        return f"r_{text[1:]}"
    real = re.fullmatch(r"0([dDfF])([0-9a-fA-F]+)", text)
    if real:
        kinds = ("double", "uint64_t") if real[1] in "dD" else ("float", "uint32_t")
        return f"ptx::same_bits<{kinds[0]}>({kinds[1]}(0x{real[2]}))"
    if re.fullmatch(r"-?(?:0x[0-9a-fA-F]+|\d+)U?", text):
        number = int(text.rstrip("U"), 0)
        return f"uint64_t({number & (2**64 - 1)}ull)"
    return entry.symbols[text]


def _set(entry: _Entry, target: str, value: str) -> str:
    register = target.split("|")[0]
    if register == "_":
        return f"(void)({value});"
    return f"r_{register[1:]} = static_cast<{_TYPES[entry.registers[register[1:]]]}>({value});"


def _address(entry: _Entry, text: str, space: str) -> str:
    match = re.fullmatch(r"\[\s*(%?[\w$]+)\s*(?:\+\s*(-?\d+))?\s*\]", text)
    if match is None:
        raise ValueError(text)
    base, offset = _operand(entry, match[1]), match[2] or "0"
    if space == "shared":
        return f"(ptx::shared + static_cast<uint32_t>({base} + {offset}))"
    return f"reinterpret_cast<void*>({base} + {offset})"


def _space(name: list[str]) -> str:
    return next(part for part in name if part in ("global", "shared", "local", "param"))


def _move(entry: _Entry, name: list[str], arguments: list[str]) -> str:
    target, source = arguments
    if "{" in target + source:
        return _packed(entry, name[-1], target, source)
    to = entry.registers[target[1:]]
    if source.startswith("%") and source[1:] in entry.registers and to != "pred":
        return _set(entry, target, f"ptx::same_bits<{_TYPES[to]}>({_operand(entry, source)})")
    return _set(entry, target, _operand(entry, source))


def _packed(entry: _Entry, kind: str, target: str, source: str) -> str:
    """Words that become one number, the lowest first, or one that becomes words."""
    words = [part.strip() for part in (source if source.startswith("{") else target).strip("{}").split(",")]
    whole, bits = _TYPES[kind], int(kind[1:]) // len(words)
    if source.startswith("{"):
        parts = [f"static_cast<{whole}>({_operand(entry, word)}) << {i * bits}" for i, word in enumerate(words)]
        return _set(entry, target, " | ".join(f"({part})" for part in parts))
    value = f"static_cast<{whole}>({_operand(entry, source)})"
    return " ".join(_set(entry, word, f"{value} >> {i * bits}") for i, word in enumerate(words))


def _load(entry: _Entry, name: list[str], arguments: list[str]) -> str:
    kind = _TYPES[name[-1]]
    address = _address(entry, arguments[1], _space(name))
    targets = arguments[0].strip("{}").split(",") if arguments[0].startswith("{") else [arguments[0]]
    return " ".join(
        _set(entry, target.strip(), f"ptx::read<{kind}>(static_cast<unsigned char*>({address}) + {i} * sizeof({kind}))")
        for i, target in enumerate(targets)
    )


def _store(entry: _Entry, name: list[str], arguments: list[str]) -> str:
    kind = _TYPES[name[-1]]
    address = _address(entry, arguments[0], _space(name))
    sources = arguments[1].strip("{}").split(",") if arguments[1].startswith("{") else [arguments[1]]
    return " ".join(
        f"ptx::put<{kind}>(static_cast<unsigned char*>({address}) + {i} * sizeof({kind}), "
        f"static_cast<{kind}>({_operand(entry, source.strip())}));"
        for i, source in enumerate(sources)
    )


def _atomic(entry: _Entry, name: list[str], arguments: list[str]) -> str:
    kind, operation = _TYPES[name[-1]], _ATOMICS[name[-2]]
    target, address, value = arguments if name[0] == "atom" else ["_", *arguments]
    call = f"ptx::atomic<{kind}>(ptx::Atomic::{operation}, {_address(entry, address, _space(name))}, "
    return _set(entry, target, f"{call}static_cast<{kind}>({_operand(entry, value)}))")


def _compare(entry: _Entry, name: list[str], arguments: list[str]) -> str:
    kind, relation = _TYPES[name[-1]], name[1]
    left, right = (f"static_cast<{kind}>({_operand(entry, text)})" for text in arguments[1:3])
    ordered = f"({left} == {left} && {right} == {right})"
    if relation in ("num", "nan"):
        result = ordered if relation == "num" else f"!{ordered}"
    elif name[-1].startswith("f") and relation.endswith("u"):
        result = f"(!{ordered} || {left} {_COMPARISONS[relation[:-1]]} {right})"
    elif name[-1].startswith("f"):
        result = f"({ordered} && {left} {_COMPARISONS[relation]} {right})"
    else:
        result = f"({left} {_COMPARISONS[relation]} {right})"
    if name[2] in _LOGIC:
        result = f"{result} {_LOGIC[name[2]]} {_operand(entry, arguments[3])}"
    return _set(entry, arguments[0], result)


def _select(entry: _Entry, name: list[str], arguments: list[str]) -> str:
    kind = _TYPES[name[-1]]
    yes, no = (f"static_cast<{kind}>({_operand(entry, text)})" for text in arguments[1:3])
    return _set(entry, arguments[0], f"{_operand(entry, arguments[3])} ? {yes} : {no}")


def _convert(entry: _Entry, name: list[str], arguments: list[str]) -> str:
    to, source = name[-2], name[-1]
    value = f"static_cast<{_TYPES[source]}>({_operand(entry, arguments[1])})"
    if source.startswith("f") and not to.startswith("f"):
        if name[1] != "rzi":
            raise KeyError("floats to integers otherwise than toward zero")
        return _set(entry, arguments[0], f"ptx::toward_zero<{_TYPES[to]}>({value})")
    if to.startswith("f") and name[1] != "rn" and (to, source) != ("f64", "f32"):
        raise KeyError("conversions to floats otherwise than to nearest")
    return _set(entry, arguments[0], f"static_cast<{_TYPES[to]}>({value})")


def _multiplied(entry: _Entry, name: list[str], arguments: list[str]) -> str:
    kind = name[-1]
    wide = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}.get(kind, kind) if "wide" in name else kind
    left, right = (
        f"static_cast<{_TYPES[wide]}>(static_cast<{_TYPES[kind]}>({_operand(entry, text)}))" for text in arguments[1:3]
    )
    product = f"ptx::{'mul_hi' if 'hi' in name else 'mul'}<{_TYPES[wide]}>({left}, {right})"
    if name[0] == "mad":
        product = f"ptx::add<{_TYPES[wide]}>({product}, static_cast<{_TYPES[wide]}>({_operand(entry, arguments[3])}))"
    return _set(entry, arguments[0], product)


def _not(entry: _Entry, name: list[str], arguments: list[str]) -> str:
    value = f"static_cast<{_TYPES[name[-1]]}>({_operand(entry, arguments[1])})"
    return _set(entry, arguments[0], f"{'!' if name[-1] == 'pred' else '~'}{value}")


def _funnel(entry: _Entry, name: list[str], arguments: list[str]) -> str:
    if "wrap" not in name:
        raise KeyError("clamped funnel shifts")
    sources = ", ".join(f"static_cast<uint32_t>({_operand(entry, text)})" for text in arguments[1:])
    return _set(entry, arguments[0], f"ptx::funnel_{'left' if name[1] == 'l' else 'right'}({sources})")


def _permute(entry: _Entry, name: list[str], arguments: list[str]) -> str:
    sources = ", ".join(f"static_cast<uint32_t>({_operand(entry, text)})" for text in arguments[1:])
    return _set(entry, arguments[0], f"ptx::prmt({sources})")


_SPECIALS: dict[str, Callable[[_Entry, list[str], list[str]], str]] = {
    "mov": _move,
    "ld": _load,
    "st": _store,
    "atom": _atomic,
    "red": _atomic,
    "setp": _compare,
    "selp": _select,
    "cvt": _convert,
    "not": _not,
    "shf": _funnel,
    "prmt": _permute,
    "cvta": lambda entry, name, arguments: _set(entry, arguments[0], _operand(entry, arguments[1])),
    "bra": lambda entry, name, arguments: f"goto {arguments[0].lstrip('$')};",
    "ret": lambda entry, name, arguments: "return;",
    "bar": lambda entry, name, arguments: "__syncthreads();",
    "barrier": lambda entry, name, arguments: "__syncthreads();",
}
