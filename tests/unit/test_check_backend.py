"""emu.testing.check_backend: our own backends pass, seeded faults fail the clause that names them."""

from __future__ import annotations

import shutil
import subprocess
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from fast_suite import most_are_slow

import emu
from emu.testing import HEADER, check_backend
from emu.testing.contract.case import OPERATIONS

FLOOR = {"formats": ["fp16"], "roundings": ["floor"]}
SOURCE = Path(__file__).with_name("small_unit.c")
FEW = {"formats": ["fp16", "fix8f4"], "roundings": ["nearest_even", "floor"], "elements": 64}


def test_the_reference_passes_every_clause():
    report = check_backend("reference", elements=32, formats=["fp16", "fix8f4", "e4m3fnuz"]).require()
    assert report.passed
    assert {clause.status for clause in report.clauses} == {"passed"}
    assert {clause.name.partition(":")[0] for clause in report.clauses} == {*OPERATIONS, "register"}


def test_blocks_of_matrix_units_are_checked_where_they_are_asked_for():
    few = {"formats": ["fp16", "fix8f4"], "operations": ["matmul"], "roundings": ["nearest_even"]}
    report = check_backend("reference", orders=["blocks(4, 24)"], **few).require()
    assert report["matmul: order blocks(4, 24)"].cases == (4, 0)
    faulty = check_backend(reference(matmul=narrower_blocks), orders=["blocks(4, 24)"], **few)
    assert faulty.failed == ["matmul: order blocks(4, 24)"]
    assert "blocks(4, 22)" in faulty["matmul: order blocks(4, 24)"].finding.resembles


def narrower_blocks(right):
    def matmul(a, b, *, mac, **options):
        order = "blocks(4, 22)" if "blocks" in str(mac.order) else mac.order
        other = emu.Mac(mac.product, mac.accumulator, order, mac.rounding, mac.overflow)
        return right(a, b, mac=other, **options, backend="reference")

    return matmul


def test_promoted_sums_that_are_wrong_are_a_failure_as_others_are():
    order = "promote(4, sequential, fp16, toward_zero)"
    few = {"formats": ["fp16"], "operations": ["matmul"], "roundings": ["nearest_even"], "orders": [order]}
    check_backend("reference", **few).require()
    faulty = check_backend(reference(matmul=never_promoted), **few)
    clause = next(name for name in faulty.failed if name.startswith("matmul: order promote"))
    assert "order sequential" in faulty[clause].finding.resembles


def never_promoted(right):
    def matmul(a, b, *, mac, **options):
        order = "sequential" if "promote" in str(mac.order) else mac.order
        other = emu.Mac(mac.product, mac.accumulator, order, mac.rounding, mac.overflow)
        return right(a, b, mac=other, **options, backend="reference")

    return matmul


def test_adds_that_round_as_the_output_stage_does_are_named():
    def nearest(right):
        def matmul(a, b, *, mac, **options):
            other = emu.Mac(mac.product, mac.accumulator, mac.order, "nearest_even", mac.overflow)
            return right(a, b, mac=other, **options, backend="reference")

        return matmul

    few = {"formats": ["fp16"], "operations": ["matmul"], "roundings": ["nearest_even", "floor"]}
    report = check_backend(reference(matmul=nearest), **few)
    assert "adds nearest_even" in report["matmul: adds, floor"].finding.resembles


@pytest.mark.slow
def test_the_numba_backend_passes_every_clause():
    """Slow for what Numba has to compile."""
    check_backend("numba", orders=["sequential", "pairwise", "lanes(4)", "blocks(4, 24)"]).require()


# Seeded faults


def reference(**faulty):
    """emu's own unit with some functions replaced; each takes what the right one takes, and the right one."""
    unit = {}
    for name in OPERATIONS:
        right = getattr(emu, name)
        unit[name] = faulty[name](right) if name in faulty else right
    return {name: unit[name] for name in faulty}


def with_rounding(wrong: dict[str, str]):
    def faulty(right):
        def quantize(x, fmt, *, rounding, overflow):
            return right(x, fmt, rounding=wrong.get(rounding, rounding), overflow=overflow, backend="reference")

        return quantize

    return faulty


def changed(change):
    """A function whose result is changed afterwards."""

    def faulty(right):
        def quantize(x, fmt, *, rounding, overflow):
            return change(right(x, fmt, rounding=rounding, overflow=overflow, backend="reference"), fmt)

        return quantize

    return faulty


def wrapping(right):
    def quantize(x, fmt, *, rounding, overflow):
        rule = "wrap" if overflow == "saturate" else overflow
        return right(x, fmt, rounding=rounding, overflow=rule, backend="reference")

    return quantize


def flushed(values, fmt):
    least = fmt.smallest_normal if isinstance(fmt, emu.Float) else 0
    return np.where(np.abs(values) < least, np.copysign(values.dtype.type(0), values), values)


def one_off(right):
    """A register that puts negative powers of two where positive ones go."""

    def quantize(x, fmt, *, rounding, overflow, register, x_format=None):
        nudged = np.where((x < 0) & (np.frexp(x)[0] == -0.5), x * (1 + 2.0**-20), x) if x_format is None else x
        right(nudged, fmt, register=register, x_format=x_format, backend="reference")
        return right(x, fmt, rounding=rounding, overflow=overflow, x_format=x_format, backend="reference")

    return quantize


def in_order(wrong: str):
    def faulty(right):
        def matmul(a, b, *, mac, **options):
            order = wrong if str(mac.order) == "sequential" else mac.order
            other = emu.Mac(mac.product, mac.accumulator, order, mac.rounding, mac.overflow)
            return right(a, b, mac=other, **options, backend="reference")

        return matmul

    return faulty


def one_short(right):
    """A vector unit that leaves out the element after its last full group of four."""

    def quantize(x, fmt, *, rounding, overflow):
        y = right(x, fmt, rounding=rounding, overflow=overflow, backend="reference")
        y[len(y) // 4 * 4 :] = 0
        return y

    return quantize


FAULTS = {
    "a wrong tie": (
        {"quantize": with_rounding({"nearest_even": "nearest_away"})}, "quantize: nearest_even, ties", "nearest_away"),
    "truncation": (
        {"quantize": with_rounding({"nearest_even": "toward_zero"})}, "quantize: nearest_even, between", "toward_zero"),
    "wrap for saturate": ({"quantize": wrapping}, "quantize: overflow, saturate", "wrap"),
    "lost -0": ({"quantize": changed(lambda y, _: y + 0)}, "quantize: sign of zero", "lost signs of zero"),
    "flushed subnormals": ({"quantize": changed(flushed)}, "quantize: subnormals", "flushed subnormals"),
    "a register one off": ({"quantize": one_off}, "register: negative powers of two", ""),
    "a wrong order": ({"matmul": in_order("pairwise")}, "matmul: order sequential", "order pairwise"),
}  # fmt: skip
#: Clauses that see a fault besides the one that names it.
ALSO = {
    "a wrong tie": ("quantize: around zero", "quantize: subnormals", "quantize: overflow"),
    "truncation": ("quantize: around zero", "quantize: subnormals", "quantize: overflow", "quantize: nearest_even"),
    "wrap for saturate": (),
    "lost -0": ("quantize: sign of what", "quantize: around zero"),
    "flushed subnormals": ("quantize: around zero",),
    "a register one off": (),
    "a wrong order": ("matmul: rounded products", "matmul: adds", "matmul: addend"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_seeded_fault_fails_the_clause_that_names_it_and_says_what_it_looks_like(fault):
    functions, name, looks_like = FAULTS[fault]
    report = check_backend(reference(**functions), **FEW)
    assert name in report.failed
    assert [other for other in report.failed if other != name and not other.startswith(ALSO[fault] or "-")] == []
    finding = report[name].finding
    assert looks_like in finding.resembles
    assert not report.passed


def test_a_failure_is_shrunk_to_one_element_and_shown_in_codes_fields_and_values():
    functions, name, _ = FAULTS["a wrong tie"]
    clause = check_backend(reference(**functions), formats=["fp16"], operations=["quantize"])[name]
    assert clause.finding.case.shape == (1,)
    x = clause.finding.case.operands[0].item()
    right, wrong = (emu.quantize(x, "fp16", rounding=mode).item() for mode in ("nearest_even", "nearest_away"))
    lines = str(clause).splitlines()
    assert lines[0].split() == ["FAILED", "quantize:", "nearest_even,", "ties", "1", "of", "1", "cases"]
    assert "reals to fp16, nearest_even, ieee" in lines[1]
    assert f"x         {x!r} = {x.hex()}" in str(clause)
    assert [line.split()[-1] for line in lines if "actual" in line or "expected" in line] == [repr(wrong), repr(right)]
    assert lines[-1].split() == ["distance", "1", "ulp"]
    assert f"at index ({clause.finding.index[0]},)" in str(clause)


def test_a_wrong_sum_is_shrunk_to_one_output_and_the_terms_it_needs():
    functions, name, _ = FAULTS["a wrong order"]
    finding = check_backend(reference(**functions), formats=["fp16"], operations=["matmul"])[name].finding
    assert finding.case.shape == (1, 1)
    assert len(finding.index) == 2
    assert finding.case.operands[0].shape[1] <= 4
    assert any(line.startswith("a[0] ") for line in finding.picture)


def test_only_the_cases_with_a_wrong_answer_count_as_wrong():
    def quantize(x, *, fmt, rounding, overflow):
        right = emu.quantize(x, fmt, rounding=rounding, overflow=overflow, backend="reference")
        return right * 2 if fmt == emu.parse("fp16") else right

    options = {"formats": ["fp16", "bf16", "e5m2"], "roundings": ["nearest_even"], "operations": ["quantize"]}
    ties = check_backend(quantize, **options)["quantize: nearest_even, ties"]
    assert (ties.status, ties.cases) == ("FAILED", (3, 1))
    assert "1 of 3 cases" in str(ties)


def test_a_fault_that_needs_neighbours_keeps_them():
    report = check_backend(reference(quantize=one_short), formats=["fp16"], roundings=["floor"], elements=63)
    finding = report["quantize: floor, between"].finding
    assert 1 <= finding.case.shape[0] < 4  # alone it fails too: a group that is not full


# What a unit offers


def test_a_bare_function_of_one_format_is_asked_only_for_what_its_arguments_allow():
    def multiply(a, b):
        with np.errstate(all="ignore"):
            return a.astype(np.float16) * b.astype(np.float16)

    report = check_backend(multiply, formats=["fp16"]).require()
    assert report.named("passed") == ["multiply: nearest_even", "multiply: zeros", "multiply: infinities and NaN"]
    assert report["multiply: floor"].reason == "`multiply` takes no `rounding`"
    assert report["quantize: NaN"].reason == "there is no `quantize`"
    assert report["multiply: zeros"].cases == (1, 0)
    many = check_backend(multiply, formats=["fp16", "bf16"])
    assert many.named("passed") == []
    assert many["multiply: nearest_even"].reason == "`multiply` takes no `out_format`"
    with pytest.raises(AssertionError, match="no clause of the contract is offered"):
        many.require()


def test_modules_objects_and_mappings_of_functions_are_units():
    few = {"formats": ["fp16"], "roundings": ["floor"], "operations": ["sqrt", "add"], "elements": 16}
    sqrt, add = (partial(function, backend="reference") for function in (emu.sqrt, emu.add))
    module = ModuleType("unit")
    module.sqrt, module.add = sqrt, add
    units = [module, SimpleNamespace(sqrt=sqrt), {"add": add}]
    assert [len(check_backend(unit, **few).require().named("passed")) for unit in units] == [6, 3, 3]


def test_not_implemented_is_not_offered_and_other_errors_are_failures():
    def sqrt(a, *, rounding, **options):
        if rounding == "floor":
            raise NotImplementedError("no directed modes")
        if rounding == "ceil":
            return NotImplemented
        raise ZeroDivisionError("oops")

    report = check_backend(sqrt, operations=["sqrt"], formats=["fp16"], roundings=["floor", "ceil", "to_odd"])
    assert report["sqrt: floor"].reason == "no directed modes"
    assert report["sqrt: ceil"].reason == "it returns NotImplemented"
    assert report.failed == ["sqrt: to_odd", "sqrt: zeros"]
    assert "raised    ZeroDivisionError: oops" in str(report["sqrt: to_odd"])
    assert "elements differ" not in str(report["sqrt: to_odd"])


def test_codes_are_answers_too_and_wrong_shapes_and_values_outside_the_format_are_failures():
    few = {"operations": ["sqrt"], "formats": ["fp16"], "roundings": ["floor"]}

    def coded(a, *, out_format, rounding):
        return out_format.encode(emu.sqrt(a, out_format=out_format, rounding=rounding, backend="reference"))

    check_backend({"sqrt": coded}, **few).require()
    shorter = check_backend({"sqrt": lambda a, rounding: a[:-1]}, **few)
    assert "returned shape (0,), expected (1,)" in str(shorter["sqrt: floor"])
    wide = check_backend({"sqrt": lambda a, rounding: np.full(a.shape, 0.1)}, **few)
    assert "`returned` does not hold values of fp16" in str(wide["sqrt: floor"])
    # how many elements are wrong is not known of such an answer
    assert "elements differ" not in str(wide["sqrt: floor"])


def test_flags_are_checked_one_by_one_as_far_as_the_unit_counts_them():
    def quantize(x, fmt, *, rounding, overflow, flags):
        counted = emu.Flags()
        y = emu.quantize(x, fmt, rounding=rounding, overflow=overflow, flags=counted, backend="reference")
        flags.overflow, flags.inexact, flags.underflow = counted.overflow, counted.inexact + 1, None
        return y

    report = check_backend({"quantize": quantize}, **FEW)
    assert report["quantize: flag overflow"].status == "passed"
    assert report["quantize: flag inexact"].status == "FAILED"
    assert "inexact = " in str(report["quantize: flag inexact"])
    assert report["quantize: flag underflow"].reason == "`quantize` does not count underflow"
    assert report["register: leading bits"].reason == "`quantize` takes no `register`"


def test_a_unit_may_spoil_its_operands():
    def sqrt(a, *, out_format, rounding):
        y = emu.sqrt(a, out_format=out_format, rounding=rounding, backend="reference")
        a[:] = 7
        return y

    check_backend({"sqrt": sqrt}, formats=["fp16"], roundings=["floor"]).require()


def test_a_format_without_zero_is_no_accumulator_and_everything_else_is_asked():
    few = {"roundings": ["nearest_even"], "operations": ["quantize", "matmul"], "elements": 8}
    report = check_backend("reference", formats=["fp8_e8m0", "fp16"], **few).require()
    assert not report.named("not offered")
    alone = check_backend("reference", formats=["fp8_e8m0"], **few).require()
    assert alone["matmul: exact unit"].status == "passed"
    assert alone["matmul: order sequential"].status == "not offered"


@pytest.mark.parametrize(
    ("unit", "options", "sentence"),
    [
        ({"relu": emu.relu}, {}, "a unit must have functions named quantize, add, .* matmul; got 'relu'"),
        (3, {}, "a unit must have functions .*; 3 has none"),
        ({"quantize": max}, {}, "`quantize` of a unit must say its parameters, got <built-in function max> without"),
        ("reference", {"operations": ["relu"]}, "`operations` must be among quantize, .*, got 'relu'"),
        ("reference", {"formats": []}, "`formats` and `roundings` must name at least one each"),
        ("reference", {"formats": ["fix8f?"]}, "must have its binary point in place"),
        ("nowhere.so", {}, "`implementation` must be a shared library, got nowhere.so"),
    ],
)
def test_what_cannot_be_checked_is_refused(unit, options, sentence):
    with pytest.raises(emu.EmuError, match=sentence):
        check_backend(unit, **options)


def test_a_report_shows_every_clause_and_counts_them():
    report = check_backend({"sqrt": partial(emu.sqrt, backend="reference")}, operations=["sqrt", "add"], **FLOOR)
    assert str(report).splitlines()[-1] == "3 passed, 0 FAILED, 3 not offered"
    assert len(str(report).splitlines()) == len(report.clauses) + 1
    with pytest.raises(KeyError, match="sqrt: ceil"):
        report["sqrt: ceil"]


# A shared library

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc compiles the example")


def compiled(folder: Path, *options: str, source: Path = SOURCE) -> Path:
    library = folder / "unit.so"
    flags = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", *options, f"-I{HEADER.parent}"]
    subprocess.run(["gcc", *flags, str(source), "-o", str(library), "-lm"], check=True)
    return library


@needs_gcc
def test_the_example_in_c_passes_what_it_offers(tmp_path):
    """An implementation that shares no code with ours: integers in C against the reference."""
    report = check_backend(compiled(tmp_path)).require()
    offered = {name.partition(",")[0].partition(": ")[0] for name in report.named("passed")}
    assert offered == {"quantize", "register", "multiply", "matmul"}
    assert report["quantize: stochastic, recorded bits"].status == "passed"
    assert report["add: floor"].reason == "`emu_elementwise` returns EMU_NOT_OFFERED"
    assert report["matmul: flag accumulator_overflow"].status == "not offered"


@needs_gcc
def test_a_library_is_not_asked_for_orders_that_its_interface_cannot_say(tmp_path):
    source = tmp_path / "matmul.c"
    source.write_text("long emu_matmul(void) { return 7; }\n")
    promoted = "promote(4, sequential, fp16, toward_zero)"
    few = {**FEW, "operations": ["matmul"], "orders": [promoted, "sequential"]}
    report = check_backend(compiled(tmp_path, source=source), **few)
    assert report[f"matmul: order {promoted}"].reason == "`emu_mac` describes no promoted sums"
    assert report["matmul: order sequential"].status == "FAILED"


FAULTS_IN_C = {
    1: ("quantize: nearest_even, ties", "nearest_away"),
    2: ("quantize: nearest_even, between", "toward_zero"),
    3: ("quantize: overflow, saturate", "wrap"),
    4: ("quantize: sign of zero", "lost signs of zero"),
    5: ("quantize: subnormals", "flushed subnormals"),
    6: ("register: negative powers of two", ""),
    7: ("matmul: rounded products", ""),
}


@needs_gcc
@most_are_slow("fault", FAULTS_IN_C, keep=[1, 7])
def test_a_fault_compiled_into_the_example_is_named(fault, tmp_path):
    report = check_backend(
        compiled(tmp_path, f"-DFAULT={fault}"), formats=["fp16", "fix8f4"], roundings=["nearest_even", "to_odd"]
    )
    name, looks_like = FAULTS_IN_C[fault]
    assert name in report.failed
    assert looks_like in report[name].finding.resembles
    untouched = {"quantize: values stay", "quantize: to_odd, between", "quantize: to_odd, ties", "quantize: NaN"}
    assert not untouched & set(report.failed)


@needs_gcc
def test_a_library_without_our_functions_or_with_a_strange_answer_is_named(tmp_path):
    empty = tmp_path / "empty.c"
    empty.write_text("int unrelated;\n")
    with pytest.raises(emu.ConfigError, match=r"must have emu_elementwise or emu_matmul, .*unit\.so has neither"):
        check_backend(compiled(tmp_path, source=empty))
    (tmp_path / "other").mkdir()
    empty.write_text("long emu_elementwise(void) { return 7; }\n")
    report = check_backend(compiled(tmp_path / "other", source=empty), **FEW)
    assert "ValueError: `emu_elementwise` must return 0 or 1, got 7" in str(report["sqrt: floor"])
    assert report["matmul: exact unit"].reason == "there is no `emu_matmul`"


def test_the_header_numbers_modes_rules_flags_and_operations_as_emu_does():
    text = HEADER.read_text()
    for names in (emu.Rounding, emu.Overflow):
        listed = ", ".join(f"EMU_{name.value.upper()}" for name in names)
        assert listed in " ".join(text.replace("\n", " ").split())
    assert "EMU_QUANTIZE, EMU_ADD, EMU_SUBTRACT, EMU_MULTIPLY, EMU_DIVIDE, EMU_FMA, EMU_SQRT, EMU_REMAINDER" in text
