"""The reference in SystemVerilog against the definition: exhaustively on small formats, on golden vectors elsewhere.

Yosys reads it and its gates are evaluated; Icarus Verilog, which shares nothing with Yosys, reads and simulates it.
"""

from __future__ import annotations

import shutil
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from proving import description, needs_yosys, reference_answers, simulated_answers

from emu.datapath import Rounding
from emu.datapath.overflow import FIXED_RULES, FLOAT_RULES
from emu.errors import ConfigError, FormatError
from emu.formats import Fixed, Float, Format
from emu.prove.reference import OFFERED
from emu.testing.vectors import Description, Vectors, make_vectors
from emu.testing.vectors.definition import answered

needs_icarus = pytest.mark.skipif(shutil.which("iverilog") is None, reason="no Icarus Verilog to simulate with")
#: Small formats of every kind, by what is special about them.
SMALL = {
    "fixed": "fix6f3",
    "unsigned": "ufix5f2",
    "coarse": "fix5f-2",
    "one bit": "ufix1f0",
    "float": "e3m2",
    "finite": "e2m2 finite nans=top",
    "fnuz": "e3m2 finite nans=negative_zero",
    "flushed": "e3m2 ftz daz",
    "no NaN": "e2m1 finite nans=none",
    "unsigned float": "ue3m2",
    "scale": "ue4m0 finite nans=top no-zero",
    "no fraction": "e3m0 finite nans=none",
    "subnormals alone": "e0m4 finite nans=none",
    "sign and magnitude": "fix5f2 sign-magnitude",
    "hidden one": "e3m2 hidden-one",
    "unsigned hidden one": "ue2m2 nans=none hidden-one",
}


def all_inputs(d: Description) -> Vectors:
    """Every input, with the definition's results."""
    widths = [fmt.width_bits for fmt in d.operand_formats] + [d.n_rbits] * d.is_stochastic
    columns = [np.array(column, np.uint64) for column in zip(*product(*(range(1 << w) for w in widths)), strict=True)]
    d = d.model_copy(update={"count": columns[0].size})
    rbits = columns.pop() if d.is_stochastic else None
    return answered(d, tuple(columns), rbits)


def assert_right(vectors: Vectors, answers: tuple[np.ndarray, np.ndarray]) -> None:
    wrong = (answers[0] != vectors.results) | (answers[1] != vectors.flags)
    first = int(np.argmax(wrong))
    assert not wrong.any(), (
        vectors.description,
        [hex(int(codes[first])) for codes in vectors.operands],
        hex(int(vectors.results[first])), int(vectors.flags[first]),
        hex(int(answers[0][first])), int(answers[1][first]),
    )  # fmt: skip


def assert_everywhere_right(d: Description, **options: int) -> None:
    vectors = all_inputs(d)
    assert_right(vectors, reference_answers(vectors, **options))


@needs_yosys
@pytest.mark.parametrize("out", ["float", "fixed"])
@pytest.mark.parametrize("rounding", ["nearest_even", "jamming"])
def test_a_conversion_is_right_for_every_code(rounding: str, out: str):
    assert_everywhere_right(description("quantize", "e4m4", SMALL[out], rounding=rounding, tininess="after_rounding"))


@needs_yosys
@pytest.mark.parametrize("operation", ["add", "multiply"])
def test_an_operation_is_right_for_every_pair(operation: str):
    assert_everywhere_right(description(operation, "e3m2,e3m2", "e3m2"))


@needs_yosys
def test_a_sum_with_a_sticky_bit_is_right_for_every_pair():
    assert_everywhere_right(description("subtract", "e4m1,e4m1", "e3m2", rounding="floor"), widest=0)


#: Modes, rules and formats are taken in turn, so that each meets each of the others somewhere.
MODES = [mode.value for mode in Rounding]
TININESS = (None, "before_rounding", "after_rounding")


@needs_yosys
@pytest.mark.slow
@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("out", SMALL)
def test_every_conversion_is_right_in_four_modes(out: str, number: int):
    """Each mode takes its turn, with several formats."""
    turn = 4 * list(SMALL).index(out) + number
    rounding = MODES[turn % len(MODES)]
    rules = FIXED_RULES if "fix" in SMALL[out] else FLOAT_RULES
    for source in ("e4m3", "fix8f4"):
        options = {"overflow": rules[turn % len(rules)].value, "tininess": TININESS[turn // 2 % 3]}
        assert_everywhere_right(description("quantize", source, SMALL[out], rounding=rounding, n_rbits=3, **options))


@needs_yosys
@pytest.mark.slow
@pytest.mark.parametrize("out", SMALL)
def test_each_operation_is_right_for_every_pair(out: str):
    operation = ("add", "subtract", "multiply")[list(SMALL).index(out) % 3]
    for turn, formats in enumerate(
        ("e3m2,e3m2", "fix5f2,fix5f3", "e2m2,fix4f1", "ufix4f2,fix4f0"), list(SMALL).index(out)
    ):
        rounding = ("nearest_even", "floor", "stochastic_nearest_even")[turn % 3]
        d = description(operation, formats, SMALL[out], rounding=rounding, n_rbits=2)
        assert_everywhere_right(d, widest=(0, 64)[turn % 2])


@needs_yosys
@pytest.mark.slow
@pytest.mark.parametrize("out", SMALL)
def test_a_fused_sum_is_right_for_every_triple(out: str):
    rounding = ("nearest_even", "floor", "to_odd")[list(SMALL).index(out) % 3]
    for formats, widest in (("e2m2,e2m1,e3m1", 0), ("fix4f2,e2m1,fix5f1", 64), ("e2m1,e2m1,e2m2", 64)):
        assert_everywhere_right(description("fma", formats, SMALL[out], rounding=rounding), widest=widest)


def random_format(rng: np.random.Generator, widest: int) -> Format:
    while True:
        try:
            if rng.random() < 0.4:
                return Fixed(int(rng.integers(1, widest)), int(rng.integers(-6, 30)), bool(rng.integers(2)))
            options = {
                "infinities": bool(rng.integers(2)),
                "nans": str(rng.choice(["ieee", "ieee", "top", "negative_zero", "none"])),
                "ftz": rng.random() < 0.2,
                "daz": rng.random() < 0.2,
                "signed": rng.random() < 0.8,
                "zero": rng.random() < 0.9,
            }
            bits = int(rng.integers(0, 9)), int(rng.integers(0, 24))
            bias = None if rng.random() < 0.7 else int(rng.integers(-20, 100))
            return Float(*bits, bias, **options)
        except FormatError:
            continue


def random_description(seed: int, operation: str, widest: int = 40) -> Description:
    rng = np.random.default_rng(seed)
    while True:
        formats = tuple(str(random_format(rng, widest)) for _ in range({"quantize": 1, "fma": 3}.get(operation, 2)))
        out = random_format(rng, widest)
        rules = FIXED_RULES if isinstance(out, Fixed) else FLOAT_RULES
        tininess = None if rng.random() < 0.4 else str(rng.choice(["before_rounding", "after_rounding"]))
        try:
            return Description(
                operation=operation,
                formats=formats,
                out_format=str(out),
                rounding=str(rng.choice([mode.value for mode in Rounding])),
                overflow=str(rng.choice([rule.value for rule in rules])),
                n_rbits=int(rng.integers(1, 33)),
                tininess=tininess,
                count=400,
                seed=seed,
            )
        except (ConfigError, FormatError):
            continue


@needs_yosys
@pytest.mark.parametrize("operation", ["quantize", "add"])
def test_a_random_operation_is_right_on_golden_vectors(operation: str):
    vectors = make_vectors(random_description(1, operation))
    assert_right(vectors, reference_answers(vectors))


@needs_yosys
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize("operation", [name for name in OFFERED if name != "fma"])
def test_random_operations_are_right_on_golden_vectors(operation: str, seed: int):
    """Fused sums of wide formats take Yosys minutes; those that the other simulator reads are of all widths."""
    vectors = make_vectors(random_description(seed, operation))
    assert_right(vectors, reference_answers(vectors, widest=(0, 64)[seed % 2]))


@needs_icarus
@pytest.mark.parametrize("operation", OFFERED)
def test_another_simulator_reads_the_reference_alike(operation: str, tmp_path: Path):
    vectors = make_vectors(random_description(40, operation))
    assert_right(vectors, simulated_answers(vectors, tmp_path))


@needs_icarus
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(41, 45))
@pytest.mark.parametrize("operation", OFFERED)
def test_another_simulator_reads_random_operations_alike(operation: str, seed: int, tmp_path: Path):
    vectors = make_vectors(random_description(seed, operation, widest=64))
    assert_right(vectors, simulated_answers(vectors, tmp_path))


@needs_icarus
@pytest.mark.parametrize(
    ("operation", "formats", "out"),
    [
        ("quantize", "fp32", "fp16"),
        ("fma", "fp16,fp16,fp16", "fp16"),
        ("quantize", "fp16", "fix12f0"),
        ("add", "fp16,bf16", "fp16"),
    ],
)
def test_flags_of_ieee_754_are_those_of_the_definition(operation: str, formats: str, out: str, tmp_path: Path):
    """Signalling NaN are invalid, and conversions to integers have one flag at a time."""
    vectors = make_vectors(description(operation, formats, out, count=1000, flags="ieee"))
    assert len({*vectors.flags.tolist()}) > 2
    assert_right(vectors, simulated_answers(vectors, tmp_path))


@needs_icarus
@pytest.mark.slow
@pytest.mark.parametrize("operation", OFFERED)
def test_wide_formats_are_right(operation: str, tmp_path: Path):
    formats = ",".join(["fp64"] * {"quantize": 1, "fma": 3}.get(operation, 2))
    for out in ("fp32", "fix64f20"):
        vectors = make_vectors(description(operation, formats, out, rounding="floor", count=300))
        assert_right(vectors, simulated_answers(vectors, tmp_path))


CONVENTIONS = {
    "first NaN": description("multiply", "e3m2,e2m3", "e3m3", nan="first", nan_code="0x7c"),
    "first signalling NaN": description("add", "e3m2,e3m2", "e4m1", nan="signalling_first"),
    "NaN of a narrower format": description("quantize", "e4m3", "e3m2", nan="first", flags="emu"),
    "indefinite": description("multiply", "e3m2,e3m1", "fix6f0", invalid="indefinite", rounding="toward_zero"),
    "largest": description("quantize", "e4m3", "ufix6f0", invalid="largest", flags="ieee"),
    "one stage": description("add", "fix6f2,fix5f3", "fix4f1", stages=["fix6f2 floor saturate"]),
    "two stages": description("multiply", "e3m1,e2m2", "fix5f1", stages=["e3m2 toward_zero", "fix6f2 wrap"]),
    "a stage that flushes": description(
        "quantize", "e4m3 daz", "e4m2", stages=["e3m2 ftz daz"], tininess="before_rounding"
    ),
}  # fmt: skip


@needs_yosys
@pytest.mark.parametrize("name", CONVENTIONS)
def test_conventions_are_right_for_every_input(name: str):
    assert_everywhere_right(CONVENTIONS[name])
