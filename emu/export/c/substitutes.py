"""The texts that stand in place of `$` and a name in `text/`."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from emu.datapath import OutputStage, Rounding
from emu.datapath.order import Blocks, Lanes
from emu.datapath.rounding import is_two_s_complement
from emu.export.c.constants import constant_name
from emu.export.c.header import parameters_of, title_of
from emu.export.c.stages import Unit, has_nan
from emu.export.c.widths import below_bits
from emu.formats import Fixed, Float, Format
from emu.testing.vectors import Description
from emu.testing.vectors.conventions import has_payloads, invalid_code


def texts_of(unit: Unit, name: str) -> dict[str, str]:
    """Return the texts for a unit whose function has a name."""
    d, widths, out = unit.description, unit.widths, unit.description.stage.format
    # Units without random bits have no such parameter anywhere, so that compilers find none unused.
    random = unit.options.random
    texts = {
        "name": name,
        "title": title_of(d),
        "version": _version(),
        "words": str(widths.words),
        "lowest": str(widths.lowest),
        "parameters": parameters_of(d),
        # The initial value of `high`, a field of `struct number` that only wide products have.
        "high": ", 0" if widths.wide_products else "",
        # Words that a significand covers once it is shifted by 0 to 63 bits: one more than its own.
        "parts": "3" if widths.wide_products else "2",
        "rbits_parameter": ", uint32_t rbits" if random else "",
        "rbits": ", rbits" if random else "",
        "no_rbits": ", 0" if random else "",
        "fixed_step": _step("&stage->rounding, &value, n, (magnitude & 1) != 0", random, _complement_of_stage(unit)),
        "float_step": _step("&stage->rounding, x, n, odd", random, "false"),
        "integral_step": _step("&TO_INTEGER, &value, n, odd", random, _bool(is_two_s_complement(out))),
        # The sign of a sum that is 0: -0 if rounding goes toward minus infinity.
        "toward_minus": _bool(d.stage.rounding is Rounding.FLOOR),
        "fraction": str(out.fraction_bits if isinstance(out, Float) else 0),
        "last": str(out.emin - out.fraction_bits if isinstance(out, Float) else -out.frac_bits),
        "below": str(below_bits(d.stage)),
        "write_output": _write(unit.output),
    }
    for variable, fmt in zip("abc", d.operand_formats, strict=False):
        texts[f"unpack_{variable}"] = _unpack(fmt, variable)
    if d.operation == "matmul":
        texts |= _of_products(unit)
    return texts | _of_signalling(unit) | _of_stages(unit) | _of_conventions(unit)


def _of_stages(unit: Unit) -> dict[str, str]:
    """Return the C of the stages before the output stage, and the name of what the output stage is given."""
    lines, given = list[str](), "x"
    for i, (name, stage) in enumerate(unit.passed.items(), 1):
        # Random bits are for the output stage alone; stages before it share its writer, and give 0 for them.
        no_rbits = ", 0" if unit.options.random else ""
        lines += [
            f"    const uint64_t code_{i} = {_write(stage)}(&{name}, &{given}{no_rbits}, &raised);",
            f"    const struct number value_{i} = {_unpack(stage.format, f'code_{i}')};",
            f"    const struct exact x_{i} = exact_of(&value_{i});",
        ]
        given = f"x_{i}"
    return {"through": "\n".join(lines), "given": given}


def _of_conventions(unit: Unit) -> dict[str, str]:
    """Return the texts for what arithmetic leaves open: which code is written for NaN and for invalid results."""
    d, fmt = unit.description, unit.description.stage.format
    texts = {"invalid_flags": "INVALID | OVERFLOW" if d.invalid == "indefinite" else "INVALID", "invalid_code": "0"}
    if isinstance(fmt, Fixed):
        texts["invalid_code"] = _hex(invalid_code(d.invalid, fmt))
    names = [name for name, i in _names_of(d).items() if has_payloads(d.operand_formats[i])]
    constants = {name: constant_name(d.operand_formats[_names_of(d)[name]]) for name in names}
    # Two passes over the operands: the first signalling NaN wins, if there is none the first NaN.
    orders = ["is_signalling", "is_nan"] if d.nan == "signalling_first" else ["is_nan"]
    passes = [
        line
        for test in orders
        for name in names
        for line in (
            f"    if ({test}(&{constants[name]}, {name}))",
            f"        return quieted(&{constants[name]}, {name});",
        )
    ]
    is_passed = d.nan != "canonical"
    return texts | {
        "result": constant_name(fmt),
        "made_nan": _hex(d.made_nan),
        "nan_passed": "\n".join(passes),
        "passed_operands": ", ".join(f"uint64_t {name}" for name in names),
        "passed": f"passed_nan({', '.join(names)})" if is_passed else _hex(d.made_nan),
    }


def _hex(code: int) -> str:
    return f"UINT64_C({code:#x})"


def _of_signalling(unit: Unit) -> dict[str, str]:
    """Return the texts of the search for signalling NaNs among operands."""
    d = unit.description
    is_product = d.operation == "matmul"
    formats = {name: constant_name(d.operand_formats[i]) for name, i in _names_of(d).items() if i in unit.signalling}
    arrays = [name for name in formats if is_product and name != "addend"]
    codes = [name for name in formats if name not in arrays]
    return {
        **_parameters("signalling", arrays, codes),
        "signalling_in_terms": " || ".join(f"is_signalling(&{formats[name]}, {name}[i])" for name in arrays),
        "signalling_alone": " || ".join(f"is_signalling(&{formats[name]}, {name})" for name in codes) or "false",
    }


def _names_of(description: Description) -> dict[str, int]:
    """Return the numbers of operands by their names in C."""
    names = ("a", "b", "addend" if description.operation == "matmul" else "c")
    return {name: i for i, name in enumerate(names[: len(description.formats)])}


def _parameters(prefix: str, arrays: list[str], codes: list[str]) -> dict[str, str]:
    """Return the parameters of a function that takes arrays and codes, and the arguments of its call."""
    # An array brings its length `k`, which stands between arrays and codes in declaration and call alike.
    declared = [f"const uint64_t *{name}" for name in arrays] + ["size_t k"] * bool(arrays)
    return {
        f"{prefix}_operands": ", ".join([*declared, *(f"uint64_t {name}" for name in codes)]),
        f"{prefix}_given": ", ".join([*arrays, *(["k"] if arrays else []), *codes]),
    }


def _of_products(unit: Unit) -> dict[str, str]:
    d, mac = unit.description, unit.mac
    a, b = d.operand_formats[:2]
    texts = {
        "unpack_a_i": _unpack(a, "a[i]"),
        "unpack_b_i": _unpack(b, "b[i]"),
        "term": "product_of(&left, &right)" if unit.product is None else "term_of(&left, &right, &raised)",
        "total": "state",
        **_any_nan(d),
    }
    if len(d.operand_formats) > 2:
        texts["unpack_addend"] = _unpack(d.operand_formats[2], "addend")
    if unit.product is not None:
        fmt = unit.product.format
        texts |= {
            "write_product": _write(unit.product),
            "unpack_term": _unpack(fmt, "code"),
            "term_is_infinite": _is_infinite(fmt, "term"),
        }
    if unit.accumulator is not None:
        fmt = unit.accumulator.format
        texts |= {
            "write_accumulator": _write(unit.accumulator),
            "content_is_infinite": _is_infinite(fmt, "content"),
            "mac_toward_minus": _bool(mac.rounding is Rounding.FLOOR),
            **{f"unpack_{variable}": _unpack(fmt, variable) for variable in ("code", "state", "sum", "total")},
        }
    if isinstance(mac.order, Lanes):
        # A tree over `count` lanes has ceil(log2(count)) levels, which is the bit length of count - 1.
        texts |= {"lanes": str(mac.order.count), "levels": str((mac.order.count - 1).bit_length())}
    if isinstance(mac.order, Blocks):
        texts |= _of_blocks(unit, mac.order)
    return texts


def _of_blocks(unit: Unit, order: Blocks) -> dict[str, str]:
    a, b = unit.description.operand_formats[:2]
    assert unit.accumulator is not None
    held = unit.accumulator.format
    assert isinstance(a, Float)
    assert isinstance(b, Float)
    assert isinstance(held, Float)
    return {
        "unpack_a_k": _unpack(a, "block->a[k]"),
        "unpack_b_k": _unpack(b, "block->b[k]"),
        "block_n": str(order.n),
        "block_period": str(len(order.indices)),
        "block_kept": str(order.fraction_bits),
        # Significands are integers. A product's has fraction_a + fraction_b bits behind its binary point, so the
        # exponent of its leading place is its own plus that; `block.c` aligns by it.
        "product_point": str(a.fraction_bits + b.fraction_bits),
        "sum_point": str(held.fraction_bits),
        "min_exponent": str(order.min_exponent),
        "total": "total" if order.addend == "after" else "state",
    }


def _version() -> str:
    try:
        return version("emu-numerics")
    except PackageNotFoundError:
        return "(not installed)"


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _complement_of_stage(unit: Unit) -> str:
    return "!format->is_sign_magnitude" if unit.options.sign_magnitude else "true"


def _step(arguments: str, random: bool, complement: str) -> str:
    """Return the call for a step; `complement` is whether negative numbers are in two's complement."""
    return f"step_of({arguments}, {complement}, rbits)" if random else f"step_by_table({arguments})"


def _unpack(fmt: Format, code: str) -> str:
    return f"unpack_{'fixed' if isinstance(fmt, Fixed) else 'float'}(&{constant_name(fmt)}, {code})"


def _write(stage: OutputStage) -> str:
    return f"write_{'fixed' if isinstance(stage.format, Fixed) else 'float'}"


def _is_infinite(fmt: Format, number: str) -> str:
    """Return the condition that a result is infinite, or what stands for it: NaN, or 0 if there is neither."""
    has_any = isinstance(fmt, Float) and (fmt.infinities or fmt.nans != "none")
    return f"{number}.kind != FINITE" if has_any else f"{number}.significand == 0"


def _any_nan(description: Description) -> dict[str, str]:
    """Return the texts of the search for NaN among operands."""
    formats = description.operand_formats
    may_be = {name: formats[i] for name, i in _names_of(description).items() if has_nan(formats[i])}
    arrays = [name for name in may_be if name != "addend"]
    texts = _parameters("nan", arrays, [name for name in may_be if name == "addend"])
    in_terms = [f"{_unpack(may_be[name], f'{name}[i]')}.kind == NOT_A_NUMBER" for name in arrays]
    in_addend = f"{_unpack(may_be['addend'], 'addend')}.kind == NOT_A_NUMBER" if "addend" in may_be else "false"
    return texts | {
        "nan_in_terms": " || ".join(in_terms),
        "nan_in_addend": in_addend,
        "any_nan": f"any_nan({texts['nan_given']})" if may_be else "false",
    }
