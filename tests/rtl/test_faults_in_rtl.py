"""What is wrong with a unit is named with its operands: wrong bits, x, hangs, latency, and what stalls bring about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rtl_units import OPTIONS, needs, product_vectors, unit_of

from emu.errors import ConfigError, RtlError, ShapeError
from emu.testing.rtl import Constant, Difference, In, Out, Unit
from emu.testing.rtl.arrays import hard_operands
from emu.testing.rtl.bench import HELD, STALLS
from emu.testing.rtl.manners import between
from emu.testing.rtl.simulation import Answers, Simulation
from emu.testing.vectors import Description, make_vectors, write_vectors

pytestmark = needs("icarus")
FACTORS = {"a": In("fix8f4"), "b": In("fix8f4"), "y": Out("fix16f8")}


def test_a_lost_carry_is_found_and_its_waveform_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    finding = unit_of("multiply16_stream", 1).check(product_vectors())
    assert finding is not None
    assert finding.index is not None
    assert f"the first at vector {finding.index}:" in finding.lines[0]
    assert "carry" in finding.causes[0]
    assert finding.lines[-1] == f"waveform: multiply16_stream-vector-{finding.index}.vcd"
    waveform = (tmp_path / f"multiply16_stream-vector-{finding.index}.vcd").read_text()
    assert "$enddefinitions" in waveform
    operands = [f"{int(codes[finding.index]):016b}".lstrip("0") for codes in product_vectors().operands]
    assert all(f"b{code} " in waveform for code in operands)


def test_a_waveform_goes_back_to_the_reset_if_a_fault_needs_it(tmp_path: Path):
    """The ninth result is wrong, whatever its operands."""
    source = tmp_path / "ninth.v"
    source.write_text(
        "module ninth (input clk, input rst, input [7:0] x, output reg [7:0] y);\n"
        "  reg [7:0] count;\n"
        "  always @(posedge clk) begin\n"
        "    count <= rst ? 8'd0 : count + 8'd1;\n"
        "    y <= count == 8'd8 ? 8'hA5 : x;\n"
        "  end\n"
        "endmodule\n"
    )
    vectors = make_vectors(Description(operation="quantize", formats=("fix8f0",), out_format="fix8f0", count=30))
    assert 0xA5 not in vectors.results[:12]
    ports = {"x": In("fix8f0"), "y": Out("fix8f0")}
    unit = Unit(source, "ninth", ports, clock="clk", reset="rst", latency=1, simulator="icarus")
    finding = unit.check(vectors, keep=tmp_path)
    assert finding is not None
    assert finding.index == 8
    assert "b10100101 " in (tmp_path / "ninth-vector-8.vcd").read_text()


def test_the_waveform_lies_beside_vectors_that_are_in_a_folder(tmp_path: Path):
    formats = {"formats": ("fp16", "fp16"), "out_format": "fp16"}
    write_vectors(make_vectors(Description(operation="multiply", **formats, count=200)), tmp_path)
    finding = unit_of("multiply16", 3).check(tmp_path)
    assert finding is not None
    assert list(tmp_path.glob("multiply16-vector-*.vcd"))


def test_flags_alone_are_found(tmp_path: Path):
    vectors = product_vectors()
    index = int(np.flatnonzero(vectors.flags & np.uint64(1))[0])
    vectors.flags[index] ^= np.uint64(1)
    try:
        finding = unit_of("multiply16").check(vectors, keep=tmp_path)
    finally:
        vectors.flags[index] ^= np.uint64(1)
    assert finding is not None
    assert (finding.wrong, finding.index) == (0, None)
    assert finding.lines[-1].endswith(f"multiply16-vector-{index}.vcd")


def test_an_undriven_bit_is_named_with_its_operands():
    unit = unit_of("multiply16", 2)
    assert unit([1.5], [2.0]).tolist() == [3.0]
    with pytest.raises(RtlError) as raised:
        unit(np.array([0x3C00, 0x3555, 0x3555], np.uint16), np.uint16(0x3C00))
    assert str(raised.value).splitlines() == [
        "multiply16 must drive every bit of its results, got x or z in 2 of 3, driven back to back, the first in "
        "vector 1:",
        "  a            0x3555  0|01101|0101010101  0.333251953125",
        "  b            0x3c00  0|01111|0000000000  1.0",
        "  y            0x355X",
        "  flags        0x00",
    ]


def test_operands_that_are_never_taken_are_named():
    with pytest.raises(RtlError) as raised:
        unit_of("multiply16_stream", 6)(np.array([0x3C00, 0x3C00], np.uint16), np.array([0x3C00, 0x5140], np.uint16))
    assert str(raised.value).splitlines() == [
        "multiply16_stream must answer every vector, got none to vector 1 within 200 cycles, driven back to back:",
        "  a            0x3c00  0|01111|0000000000  1.0",
        "  b            0x5140  0|10100|0101000000  42.0",
        "  waiting for its operands to be taken (in_ready=0, out_valid=0)",
        "if it takes longer, give `bound_cycles`",
    ]


def test_one_operand_of_two_that_is_never_taken_is_named(tmp_path: Path):
    vectors = product_vectors(count=900)
    assert 0x8001 in vectors.operands[0]
    with pytest.raises(RtlError, match=r"0x8001(.|\n)*a_ack=0, b_ack=0, y_stb=0(.|\n)*waveform: ") as raised:
        unit_of("multiply16_strobes", 8).check(vectors, keep=tmp_path)
    index = int(np.flatnonzero(vectors.operands[0] == 0x8001)[0])
    assert f"got none to vector {index} within 200 cycles" in str(raised.value)
    assert (tmp_path / f"multiply16_strobes-vector-{index}.vcd").is_file()


def test_a_result_that_never_comes_is_named():
    with pytest.raises(RtlError, match=r"got none to vector 1 (.|\n)*0x80(.|\n)*waiting for its result \(done=0\)"):
        unit_of("mac8_start", 2)([1.0, 1.0], [1.0, -8.0], 0.0)


@pytest.mark.parametrize("stages", [2, 3, 6])
def test_the_latency_is_found(stages: int):
    unit = unit_of("multiply16_pipe", parameters={"STAGES": stages})
    assert unit.latency == stages
    assert unit([3.0], [0.5]).tolist() == [1.5]


def test_the_latency_of_other_handshakes_is_that_of_held_operands():
    assert unit_of("multiply16").latency == 0
    assert unit_of("multiply16_stream").latency == 1
    assert unit_of("mac8_start").latency == 10


@pytest.mark.parametrize(("stated", "stages"), [(2, 3), (4, 3), (0, 2)])
def test_a_wrong_latency_is_found_and_the_right_one_is_said(stated: int, stages: int):
    unit = unit_of("multiply16_pipe", latency=stated, parameters={"STAGES": stages})
    message = (
        f"`latency` of multiply16_pipe must be {stages}, got {stated}: results come after {stages} cycles; "
        f"give latency={stages}"
    )
    for _ in range(2):  # every call says it
        with pytest.raises(ConfigError, match=f"^{message}$"):
            unit([1.0], [1.0])


def test_a_wrong_latency_of_a_handshake_is_found():
    with pytest.raises(ConfigError, match="`latency` of mac8_start must be 10, got 9"):
        unit_of("mac8_start", latency=9)([1.0], [1.0], [1.0])


def test_a_unit_that_needs_its_operands_for_two_cycles_is_named():
    with pytest.raises(RtlError, match="must not depend on how it is driven, got others back to back than held in"):
        unit_of("multiply16_pipe", 4)([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])


def test_a_unit_that_was_refused_stays_so_without_another_simulation(monkeypatch: pytest.MonkeyPatch):
    unit = unit_of("multiply16_pipe", 4)
    with pytest.raises(RtlError, match="must not depend on how it is driven"):
        unit([1.0, 2.0], 1.0)
    monkeypatch.setattr(Simulation, "run", lambda *_: pytest.fail("simulated again"))
    with pytest.raises(RtlError, match="must not depend on how it is driven"):
        unit([1.0, 2.0], 1.0)


def test_a_result_that_stalls_lose_is_named_with_its_vector():
    unit = unit_of("multiply16_stream", 5)
    x = np.arange(1.0, 33)
    difference = unit.compare(x, 1.0)
    assert difference is not None
    assert difference.manner == "with stalls"
    index = difference.index
    assert f"the result of vector {index} was lost; later ones are one place early" in difference.lines or (
        f"the result of vector {index} was lost" in difference.lines
    )
    assert any(line.startswith("  a ") and line.endswith(f" {float(index + 1)}") for line in difference.lines)
    assert any("no answer to vector" in line for line in difference.lines)
    with pytest.raises(RtlError, match="got others with stalls than held"):
        unit(x, 1.0)


def test_one_operand_is_enough_to_see_that_stalls_lose_results():
    with pytest.raises(RtlError, match="got others with stalls than held"):
        unit_of("multiply16_stream", 5)(1.0, 1.0)
    with pytest.raises(RtlError, match="got others with stalls than held"):
        unit_of("multiply16_stream", 7)(1.0, 1.0)


def test_stalls_are_drawn_from_their_seed():
    unit = unit_of("multiply16_stream", 5)
    lines = [str(unit.compare(np.arange(1.0, 33), 1.0, seed=seed)) for seed in (1, 1, 2, 3)]
    assert lines[0] == lines[1]
    assert len(set(lines)) > 1


def test_a_port_that_nothing_drives_is_named(tmp_path: Path):
    source = tmp_path / "floating.v"
    source.write_text("module floating (input [7:0] x, output [7:0] y);\nendmodule\n")
    unit = Unit(source, "floating", {"x": In("fix8f0"), "y": Out("fix8f0")}, simulator="icarus")
    with pytest.raises(RtlError, match=r"got x or z in 1 of 1, (.|\n)*  y            0xzz"):
        unit(1.0)


def test_signals_that_are_undriven_are_shown_where_a_unit_is_stuck(tmp_path: Path):
    source = tmp_path / "deaf.v"
    source.write_text(
        "module deaf (input clk, input in_valid, output in_ready, output reg out_valid,\n"
        "  input [7:0] x, output [7:0] y);\nendmodule\n"
    )
    ports = {"x": In("fix8f0"), "y": Out("fix8f0")}
    options = {"clock": "clk", "handshake": "valid_ready", "signals": {"take": None}, "bound_cycles": 20}
    unit = Unit(source, "deaf", ports, simulator="icarus", **options)  # pyright: ignore
    with pytest.raises(RtlError, match=r"its operands to be taken \(in_ready=z, out_valid=x\)"):
        unit(1.0)


def test_a_result_before_any_operands_is_one_too_many():
    """Without a reset its state is x, which its case statement takes for the last one."""
    ports = {**OPTIONS["multiply16_strobes"]["ports"], "rst": Constant(0)}
    with pytest.raises(RtlError, match="got 1 too many before the first one, driven back to back"):
        unit_of("multiply16_strobes", ports=ports, reset=None)(1.0, 1.0)


def test_a_result_that_comes_twice_is_named():
    difference = unit_of("multiply16_stream", 7).compare(np.arange(1.0, 33), 1.0)
    assert difference is not None
    assert difference.manner == "with stalls"
    assert difference.lines[-1] == f"the result of vector {difference.index - 1} came twice"


def answered(*codes: int, extra: tuple[int, int] = (0, 0)) -> Answers:
    results = np.array(codes, np.uint64)
    return Answers((results,), None, {}, np.zeros(results.size, np.int64), None, extra)


def difference_of(steady: Answers, other: Answers) -> Difference:
    bench = unit_of("multiply16_stream").bench
    seen = between(bench, hard_operands(bench, 4), (HELD, steady), (STALLS, other))
    assert seen is not None
    return seen


def test_a_result_too_many_before_the_first_vector_is_shown_at_the_first_one():
    seen = difference_of(answered(1, 2, 3, 4), answered(1, 2, 3, 4, extra=(1, -1)))
    assert (seen.index, seen.count) == (0, 0)
    assert seen.lines[-1] == "a result came twice"


def test_one_result_that_is_the_next_vectors_by_chance_is_not_called_lost():
    assert not any("lost" in line for line in difference_of(answered(1, 2, 3, 4), answered(1, 2, 4, 9)).lines)
    lost = difference_of(answered(1, 2, 3, 4), answered(1, 3, 4, 9))
    assert lost.lines[-1] == "the result of vector 1 was lost; later ones are one place early"


def test_a_fault_that_only_stalls_show_is_found_by_golden_vectors(tmp_path: Path):
    with pytest.raises(RtlError, match=r"with stalls than back to back(.|\n)*was lost(.|\n)*waveform: "):
        unit_of("multiply16_stream", 5).check(product_vectors(), keep=tmp_path)
    assert list(tmp_path.glob("*.vcd"))


def test_a_right_unit_gives_the_same_in_every_manner():
    x, y = np.arange(1.0, 40), np.float64(0.75)
    for top in ("multiply16", "multiply16_pipe", "multiply16_stream", "multiply16_strobes"):
        assert unit_of(top).compare(x, y) is None


def test_a_unit_that_reads_its_operands_until_it_is_done_says_so():
    x = np.arange(-16.0, 16) / 4
    difference = unit_of("mac8_start", 3).compare(x, x[::-1].copy(), 0.0)
    assert difference is not None
    assert difference.manner == "with stalls"
    assert difference.lines[-1].endswith("if they must stay until the result is there, give holds=True")
    unit = unit_of("mac8_start", 3, holds=True)
    assert unit.compare(x, x[::-1].copy(), 0.0) is None
    assert unit([2.0], [3.0], [0.5]).tolist() == [6.5]


def test_a_result_that_comes_too_early_is_wrong():
    formats = {"formats": ("fix8f4", "fix8f4", "fix16f8"), "out_format": "fix16f8"}
    vectors = make_vectors(Description(operation="fma", **formats, count=60))
    with pytest.raises(RtlError, match="x or z"):  # the first result has not been written
        unit_of("mac8_start", 4)([1.0], [1.0], [1.0])
    assert unit_of("mac8_start").check(vectors) is None


def test_manners_are_not_compared_if_that_is_wanted():
    assert unit_of("multiply16_stream", 5, verify=False)([2.0], [3.0]).tolist() == [6.0]


def test_the_waveform_of_some_operands_is_written(tmp_path: Path):
    path = unit_of("multiply16_pipe").trace([[1.0, 2.0], [3.0, 4.0]], tmp_path / "wave.vcd")
    assert "unit_flags" in path.read_text()
    assert (unit_of("multiply16_pipe").trace([[1.0], [3.0]], tmp_path / "wave.fst")).stat().st_size > 0
    with pytest.raises(ConfigError, match=r"a waveform of icarus must end in .vcd or .fst, got .*wave.png; name it so"):
        unit_of("multiply16_pipe").trace([[1.0], [3.0]], tmp_path / "wave.png")
    with pytest.raises(
        ConfigError, match=r"must lie in a folder that exists, got .*none/wave.vcd; make the folder first"
    ):
        unit_of("multiply16_pipe").trace([[1.0], [3.0]], tmp_path / "none" / "wave.vcd")
    with pytest.raises(ShapeError, match="a waveform must have operands, got empty arrays; give one number at least"):
        unit_of("multiply16_pipe").trace([[], []], tmp_path / "empty.vcd")


def test_an_output_that_never_changes_has_no_latency():
    idle = {"in_valid": Constant(0), "first": Constant(0), "last": Constant(1), **FACTORS}
    with pytest.raises(RtlError, match="must depend on its operands, got the same for 24; check the ports, clock and"):
        unit_of("dot4", ports=idle, handshake="none", signals=None)([1.0], [1.0])


DEAD = """
module dead (input clk, input in_valid, output in_ready, input [7:0] x, output out_valid, output [7:0] y);
  assign in_ready = READY;
  assign out_valid = 1'b0;
  assign y = x;
endmodule
"""


@pytest.mark.parametrize(
    ("signals", "ready", "what"),
    [
        ({"take": None}, 1, r"its result \(in_ready=1, out_valid=0\)"),
        ({"take": None, "result": None}, 0, r"its operands to be taken \(in_ready=0\)"),
    ],
)
def test_a_unit_that_never_answers_has_no_latency(signals: dict[str, None], ready: int, what: str, tmp_path: Path):
    source = tmp_path / "dead.v"
    source.write_text(DEAD.replace("READY", f"1'b{ready}"))
    options: dict[str, Any] = {"clock": "clk", "handshake": "valid_ready", "signals": signals, "bound_cycles": 50}
    ports = {"x": In("fix8f0"), "y": Out("fix8f0")}
    message = rf"dead must answer every vector, got none to vector 0 within 50 cycles(.|\n)*waiting for {what}"
    with pytest.raises(RtlError, match=message):
        _ = Unit(source, "dead", ports, **options, simulator="icarus").latency
    with pytest.raises(RtlError, match=message):
        Unit(source, "dead", ports, **options, simulator="icarus")([1.0])
    with pytest.raises(RtlError, match=message):
        Unit(source, "dead", ports, **options, simulator="icarus", latency=3)([1.0])


def test_results_that_do_not_settle_have_no_latency():
    """A sum of all operands so far grows as long as they are held."""
    ports = {"in_valid": Constant(1), "first": Constant(0), "last": Constant(1), **FACTORS}
    with pytest.raises(RtlError, match="must settle while its operands are held, got changes after 1000 cycles; give"):
        unit_of("dot4", 1, ports=ports, handshake="none", signals=None)([1.0], [1.0])


def test_each_port_of_results_is_compared(tmp_path: Path):
    d = Description(
        operation="divide", formats=("fix8f0", "fix8f0"), out_format="fix8f0", rounding="toward_zero", count=300,
        also=["remainder fix8f0"],
    )  # fmt: skip
    assert unit_of("divide8").check(make_vectors(d)) is None
    finding = unit_of("divide8", 1).check(make_vectors(d), keep=tmp_path)
    assert finding is not None
    assert finding.lines[0].startswith("port r: ")
    with pytest.raises(ConfigError, match="fix8f0, fix8f0, got fix8f0; describe the other results with `also`"):
        unit_of("divide8").check(make_vectors(d.model_copy(update={"also": ()})))
