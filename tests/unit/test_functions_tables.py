"""Function tables: what an entry holds, how stochastic entries are read, and that the cache is only ever a shortcut."""

import ast
import os
from itertools import product

import numpy as np
import pytest
from fast_suite import most_are_slow

from emu.backends.functions import FUNCTIONS, function_table, is_tabled, store, tables
from emu.backends.functions.tables import LEADING_LIMIT, NO_LEADING
from emu.backends.interface import RandomCode, Write, encode_register, encode_stage
from emu.backends.reference.exact import FINITE, INFINITE, NAN, NEW_NAN
from emu.datapath import FLAG_NAMES, OutputStage, StatisticsRegister
from emu.errors import FormatError
from emu.formats import parse

OVERFLOW, UNDERFLOW, INEXACT, INVALID, SUBNORMAL = (1 << i for i in range(5))
BY_ZERO = 1 << FLAG_NAMES.index("division_by_zero")


@pytest.fixture
def make(tmp_path):
    def make(name, source, target, rounding="nearest_even", overflow=None, n_rbits=24):
        return function_table(name, parse(source), OutputStage.of(target, rounding, overflow, n_rbits), folder=tmp_path)

    return make


@pytest.fixture(autouse=True)
def _no_tables_in_memory():
    tables._table.cache_clear()


def code(fmt, value):
    return int(parse(fmt).encode(np.array([value]))[0])


ENTRIES = [
    ("exp", "fp16", "fp16", 0.0, 1.0, 0),
    ("exp", "fp16", "fp16", 12.0, np.inf, OVERFLOW | INEXACT),
    ("exp", "fp16", "fp16", np.inf, np.inf, 0),
    ("exp", "fp16", "fp16", -np.inf, 0.0, 0),
    ("exp", "fp16", "fp16", -20.0, 0.0, UNDERFLOW | INEXACT),
    ("exp", "fp16", "fp16", -12.0, 103 * 2.0**-24, INEXACT | SUBNORMAL),
    ("exp", "fp16", "fp16", 2.0**-24, 1.0, INEXACT),
    ("exp", "fp16", "fix16f8", 12.0, 127.99609375, OVERFLOW | INEXACT),
    ("exp", "fp16", "fix16f8", np.nan, 0.0, INVALID),
    ("log", "fp16", "fp16", 1.0, 0.0, 0),
    ("log", "fp16", "fp16", 0.0, -np.inf, BY_ZERO),
    ("log", "fp16", "fp16", -1.0, np.nan, INVALID),
    ("log", "fp16", "fp16", np.nan, np.nan, 0),
    ("log", "fp16", "fix16f8", 0.0, -128.0, OVERFLOW | INEXACT | BY_ZERO),
    ("log", "fp16", "fix16f8", -1.0, 0.0, INVALID),
    ("tanh", "fp16", "fp16", -np.inf, -1.0, 0),
    ("tanh", "fp16", "fp16", -40.0, -1.0, INEXACT),
    ("tanh", "fp16", "fp16", 2.0**-24, 2.0**-24, INEXACT | SUBNORMAL),
    ("sigmoid", "fp16", "fp16", 0.0, 0.5, 0),
    ("erf", "fp16", "fp16", np.inf, 1.0, 0),
    ("gelu", "fp16", "fp16", -12.0, -0.0, UNDERFLOW | INEXACT),
    ("gelu", "fp16", "fp16", 100.0, 100.0, INEXACT),
    ("rsqrt", "fp16", "fp16", 4.0, 0.5, 0),
    ("rsqrt", "fp16", "fp16", 2.0**-24, 4096.0, 0),
    ("rsqrt", "fp16", "fp16", 2.0, 0.70703125, INEXACT),
    ("rsqrt", "fp16", "fp16", -0.0, -np.inf, BY_ZERO),
    ("rsqrt", "fp16", "fp8_e4m3", 0.0, np.nan, OVERFLOW | INEXACT | INVALID | BY_ZERO),
]


@pytest.mark.parametrize(("name", "source", "target", "x", "y", "flags"), ENTRIES)
def test_an_entry_holds_the_written_value_and_its_flags(make, name, source, target, x, y, flags):
    table = make(name, source, target)
    entry = code(source, x)
    np.testing.assert_array_equal(table.values[entry], y)
    assert np.signbit(table.values[entry]) == np.signbit(y)
    assert table.values.dtype == parse(target).carrier
    assert table.flags[entry] == flags, [n for i, n in enumerate(FLAG_NAMES) if table.flags[entry] >> i & 1]


@pytest.mark.parametrize(
    ("name", "source", "x", "exponent", "leading", "kind"),
    [
        ("tanh", "fp16", -np.inf, -1, 0, FINITE),  # exactly -1: one lower
        ("tanh", "fp16", -40.0, -1, -1, FINITE),  # just above -1
        ("tanh", "fp16", 40.0, -1, -1, FINITE),
        ("exp", "fp16", 0.0, 0, 0, FINITE),
        ("exp", "fp16", -(2.0**-24), -1, -1, FINITE),  # rounds to 1, is below
        ("exp", "fp16", -np.inf, NO_LEADING, NO_LEADING, FINITE),
        ("exp", "bf16", 2.0**100, LEADING_LIMIT, LEADING_LIMIT, FINITE),
        ("exp", "bf16", -(2.0**100), -LEADING_LIMIT, -LEADING_LIMIT, FINITE),
        ("exp", "fp16", 1000.0, 1442, 1442, FINITE),
        ("gelu", "fp16", -1000.0, -721349, -721349, FINITE),  # log2(exp(-5e5) / sqrt(2 pi)) = -721348.8
        ("log", "fp16", 0.0, NO_LEADING, NO_LEADING, INFINITE),
        ("log", "fp16", -2.0, NO_LEADING, NO_LEADING, NEW_NAN),
        ("log", "fp16", np.nan, NO_LEADING, NO_LEADING, NAN),
        ("sigmoid", "fp16", 0.0, -1, -1, FINITE),
    ],
)
def test_the_register_exponent_is_that_of_the_exact_value(make, name, source, x, exponent, leading, kind):
    table = make(name, source, "fix16f8")
    entry = code(source, x)
    assert (table.exponent[entry], table.leading[entry], table.kind[entry]) == (exponent, leading, kind)


def test_a_register_observes_the_exact_values_and_flags_are_counted(make):
    table = make("tanh", "fp16", "fix8f4")
    x = np.array([[-np.inf, 0.0, np.nan, 40.0], [0.25, -0.25, 2.0**-20, 1.0]])
    register = StatisticsRegister(lowest=-4, bins=6)
    stage, random = encode_stage(OutputStage.of("fix8f4")), RandomCode(0, 0, 0, 0, None)
    outcome = table.outcome(x, Write(stage, random, encode_register(register, None)))
    register.add_counts(outcome.register, outcome.max_exponent)
    assert register.positive == {-1: 2, -3: 1}  # tanh 40, tanh 1, tanh 0.25
    assert register.negative == {-1: 1, -3: 1}  # -1 exactly, tanh -0.25
    assert (register.none, register.below, register.nonfinite, register.total, register.max_exponent) == (1, 1, 1, 8, 0)
    assert dict(zip(FLAG_NAMES, outcome.flags, strict=True)) == {
        "overflow": 0, "underflow": 1, "inexact": 5, "invalid": 1, "subnormal": 0, "accumulator_overflow": 0,
        "division_by_zero": 0,
    }  # fmt: skip
    np.testing.assert_array_equal(outcome.values, [[-1, 0, 0, 1], [0.25, -0.25, 0, 0.75]])


def test_stochastic_entries_move_exactly_when_random_and_dropped_bits_carry(make):
    table = make("exp", "fp16", "fix16f8", "stochastic", n_rbits=3)
    entry = code("fp16", 1.0)  # e * 256 = 695.88, first three dropped bits of .88 are 7
    assert (table.values[entry] * 256, table.next_values[entry] * 256, table.dropped[entry]) == (695, 696, 7)
    values, flags = table.lookup(np.full(8, entry, np.uint16), n_rbits=3, u=np.arange(8, dtype=np.uint32))
    np.testing.assert_array_equal(values * 256, [695] + [696] * 7)
    assert (flags == INEXACT).all()


def test_stochastic_entries_of_negative_values_start_from_the_floor_in_fixed_point_and_from_zero_in_floats(make):
    entry = code("fp16", 0.5)  # log 0.5 * 256 = -177.45
    fixed = make("log", "fp16", "fix16f8", "stochastic", n_rbits=8)
    assert (fixed.values[entry] * 256, fixed.next_values[entry] * 256) == (-178, -177)
    assert fixed.dropped[entry] == int((178 - 177.4456782334592) * 256)
    floating = make("log", "fp16", "fp16", "stochastic", n_rbits=8)
    assert (floating.values[entry] * 2048, floating.next_values[entry] * 2048) == (-1419, -1420)  # 1419.565
    assert floating.dropped[entry] == int(0.5654258676736 * 256)


def test_entries_whose_dropped_bits_round_up_to_a_whole_step_always_move(make):
    """exp of -2**-30 is just below 1: the first r bits below its last place are ones, and round up to 2**r."""
    entry = code("bf16", -(2.0**-30))
    table = make("exp", "bf16", "fix16f8", "stochastic", n_rbits=8)
    assert (table.values[entry], table.dropped[entry]) == (255 / 256, 255)
    table = make("exp", "bf16", "fix16f8", "stochastic_nearest_even", n_rbits=8)
    assert (table.values[entry], table.dropped[entry]) == (1.0, 0)


def test_exact_values_never_move(make):
    for target in ("fp16", "fix16f8"):
        table = make("rsqrt", "fp16", target, "stochastic", n_rbits=32)
        for x in (4.0, 1.0, 0.25, np.inf):
            assert table.dropped[code("fp16", x)] == 0


NARROW = (
    "fix8f4", "ufix8f8", "fp8_e4m3", "e5m2 daz", "fix1f0", "e2m1 finite nans=none", "e11m4", "fix16f1000", "fix16f-900",
)  # fmt: skip


@most_are_slow(
    ("name", "source"),
    product(FUNCTIONS, NARROW),
    keep=lambda name, source: (sorted(FUNCTIONS).index(name) + NARROW.index(source)) % 3 == 0,
)
def test_every_small_format_has_its_table(make, name, source):
    for target in ("fp16", "fix8f4"):
        table = make(name, source, target, "stochastic")
        assert table.values.shape == table.exponent.shape == table.dropped.shape == (parse(source).n_codes,)


def test_subnormal_arguments_count_as_zero_under_daz(make):
    assert make("exp", "fp16 daz", "fp16", "ceil").values[1] == 1.0
    assert make("exp", "fp16", "fp16", "ceil").values[1] > 1.0


def test_wide_and_wild_results_are_found_without_evaluating_them(make):
    """tanh(2**127) differs from 1 after 10**38 digits, exp of it has as many."""
    big = code("bf16", 2.0**127)
    assert make("tanh", "bf16", "fp64", "floor").values[big] == 1 - 2.0**-53
    assert make("gelu", "bf16", "fp64", "floor").values[big] == np.nextafter(2.0**127, 0)
    assert make("exp", "bf16", "fix16f8", "floor", "wrap").values[big] == parse("fix16f8").max
    assert make("exp", "bf16", "fp64", "ceil").values[code("bf16", -(2.0**127))] == 2.0**-1074


def test_arrays_of_a_table_cannot_be_changed(make):
    table = make("exp", "fix8f4", "fix8f4")
    with pytest.raises(ValueError, match="read-only"):
        table.values[0] = 1


def test_a_table_is_made_once_then_found_in_memory_then_on_disk(make, tmp_path, monkeypatch):
    made = []
    original = tables._make
    monkeypatch.setattr(tables, "_make", lambda *a: made.append(1) or original(*a))
    first = make("exp", "fix8f4", "fix8f4")
    assert make("exp", "fix8f4", "fix8f4") is first
    tables._table.cache_clear()
    again = make("exp", "fix8f4", "fix8f4")
    assert len(made) == 1
    for name in ("values", "flags", "leading", "exponent", "negative", "kind", "dropped"):
        np.testing.assert_array_equal(getattr(again, name), getattr(first, name))
        assert getattr(again, name).dtype == getattr(first, name).dtype
        assert not getattr(again, name).flags.writeable
    make("exp", "fix8f4", "fix8f4", "floor")
    assert len(made) == 2
    assert [p.suffix for p in tmp_path.iterdir()] == [".npz", ".npz"]


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 not a zip", None])
def test_a_damaged_file_counts_as_absent(make, tmp_path, damage):
    first = make("log", "fix8f4", "fix8f4")
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if damage is None else damage)
    tables._table.cache_clear()
    np.testing.assert_array_equal(make("log", "fix8f4", "fix8f4").values, first.values)
    assert path.read_bytes()[:4] == b"PK\x03\x04"
    assert len(path.read_bytes()) > 100


def test_a_file_of_another_key_or_with_other_arrays_counts_as_absent(tmp_path):
    path = tmp_path / "x.npz"
    store.save(path, "one", {"values": np.zeros(3)})
    assert store.load(path, "two") is None
    assert set(store.load(path, "one")) == {"values"}


def test_a_single_array_in_the_place_of_a_table_counts_as_absent(tmp_path):
    with (tmp_path / "x.npz").open("wb") as file:
        np.save(file, np.zeros(3))
    assert store.load(tmp_path / "x.npz", "one") is None


def test_pickled_arrays_are_refused(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, key=np.array("one"), values=np.array([print], dtype=object))
    assert store.load(path, "one") is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_cannot_be_written_is_no_error(tmp_path):
    tmp_path.chmod(0o500)
    function_table("exp", parse("fix8f4"), OutputStage.of("fix8f4"), folder=tmp_path / "sub")


def test_a_path_that_is_no_folder_is_no_error(tmp_path):
    (tmp_path / "file").write_text("")
    table = function_table("exp", parse("fix8f4"), OutputStage.of("fix8f4"), folder=tmp_path / "file")
    assert table.values[0] == 1


def test_the_file_name_depends_on_the_sources(tmp_path, monkeypatch):
    before = store.path_of(tmp_path, "k")
    monkeypatch.setattr(store, "sources_digest", lambda: "other")
    assert store.path_of(tmp_path, "k") != before


def test_the_sources_of_tables_are_all_that_what_computes_them_imports():
    package = store._PACKAGE
    covered = {path for pattern in store._SOURCES for path in package.glob(pattern)}
    waiting, seen = list(package.glob("backends/functions/*.py")), set()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        imports = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ImportFrom)]
        names = [f"{node.module}.{alias.name}" for node in imports for alias in node.names]
        for name in [*names, *(str(node.module) for node in imports)]:
            places = package.parent / name.replace(".", "/")
            waiting += [p for p in (places.with_suffix(".py"), places / "__init__.py") if p.is_file()]
    deciding = {p for p in seen if p.relative_to(package).parts[0] in ("backends", "formats", "datapath")}
    assert len(deciding) > 30
    assert not {str(p.relative_to(package)) for p in deciding - covered}


def test_inputs_of_more_than_16_bits_have_no_table():
    assert is_tabled(parse("fp16"))
    assert not is_tabled(parse("fp32"))
    with pytest.raises(FormatError, match=r"at most 16 bits, fp32 has 32; wider inputs are computed in float64"):
        function_table("exp", parse("fp32"), OutputStage.of("fp16"))


def test_unknown_functions_and_inputs_outside_float64_are_refused():
    with pytest.raises(FormatError, match="got 'tanhh'; did you mean 'tanh'"):
        function_table("tanhh", parse("fp16"), OutputStage.of("fp16"))
    with pytest.raises(FormatError, match=r"those of fix16f2000 are not; move its point"):
        function_table("exp", parse("fix16f2000"), OutputStage.of("fp16"))
