"""The first ten minutes of a GPU: what it is, whether its bits are right, how fast it is. One command, one JSON.

    python benchmarks/first_contact.py --out DIR [--seconds 480] [--rehearse]

Every item runs in a process of its own and is written into DIR/first_contact.json when it is done, so that an item
which fails, hangs or takes the GPU down with it loses nothing but itself. Nothing needs to be installed beside NumPy
and CuPy, nor Numba: what bits must be is in `benchmarks/golden_bits.json`. Items say what they lack.

    versions    Python, NumPy, CuPy, driver, GPU, commit
    compile     every kernel source for every width of its integers: seconds, registers, local memory
    bits        every kernel against the golden hashes; arrays beyond 2**31 elements
    training    20 steps of lenet on three devices, against the golden hashes
    probe       the GPU's own matrix instructions, beside the presets
    speed       the rows of benchmarks/gpu.py
    step        a training step: wall time, time in kernels, launches

`--rehearse` plays the GPU on this processor, with small numbers. `--golden` makes the golden hashes anew, on the host.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
GOLDEN = HERE / "golden_bits.json"
NAME = "first_contact.json"
#: Bits, by the source of the kernels: each a process.
BITS = ("narrow", "elementwise", "functions", "tables", "selection", "products")
DEVICES = ("fixed16", "bf16-mixed", "dlu16")
#: Devices with golden hashes beside them, for the tests on a GPU.
MORE_DEVICES = ("fixed8", "fp16-mixed")
STEPS, BATCH, TEST_IMAGES = 20, 32, 8
ROWS = 10
#: Sources of kernels, and the words of 64 bits they are compiled with.
SOURCES = (
    "narrow",
    "narrow_sums",
    "elementwise",
    "selection",
    "functions",
    "tables",
    "around",
    "in_order",
    "integer_tiles",
    "products",
)
WORDS = (1, 2, 4)
#: More elements than an int32 counts, and how often the block they repeat is found in them.
BEYOND, BLOCK = 2**31 + 2**20 + 5, 2**20
PROBED_TILES = 8
#: Seconds an item gets at most, beside what is left of all.
MOST_SECONDS = {"compile": 120.0, "bits": 60.0, "training": 60.0, "probe": 45.0, "speed": 30.0, "step": 45.0}


# ---- the record -----------------------------------------------------------------------------------------------------


class Record:
    """The JSON: read, changed and replaced as a whole at every entry."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME

    def begin(self, seconds: float, rehearsed: bool) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        items = {name: {"state": "not begun"} for name in item_names()}
        self._write({"complete": False, "rehearsed": rehearsed, "seconds_given": seconds, "items": items})

    def put(self, item: str, **entries: Any) -> None:
        data = self.read()
        data["items"].setdefault(item, {}).update(entries)
        self._write(data)

    def finish(self, **entries: Any) -> None:
        self._write({**self.read(), **entries})

    def read(self) -> dict[str, Any]:
        return json.loads(self.path.read_text(encoding="utf-8"))

    def _write(self, data: dict[str, Any]) -> None:
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        part.replace(self.path)


def item_names() -> list[str]:
    """Return every item, in the order they run."""
    return [
        *("versions", "compile"),
        *(f"bits {source}" for source in BITS),
        "bits beyond 2**31",
        *(f"training {device}" for device in DEVICES),
        "probe",
        *(f"speed {number}" for number in range(1, ROWS + 1)),
        "step",
    ]


# ---- the device -----------------------------------------------------------------------------------------------------


def device_of(rehearse: bool) -> Any:
    """Return the GPU, or this processor in its place; the backend `cuda` launches its kernels there.

    Raises:
        EmuError: there is no GPU; says why.
    """
    import emu.backends.cuda
    from emu.backends import registry
    from emu.backends.cuda import loader

    if rehearse:
        from tests.cuda.cuda_on_host import HostDevice

        loader.status = lambda: loader.Status("ready", "ready")
        device: Any = HostDevice()
    else:
        device = loader.CupyDevice()
    kernels = emu.backends.cuda.CudaKernels(device)
    emu.backends.cuda.on_gpu = lambda: kernels
    registry.forget()
    return device


def architecture_of(device: Any) -> str:
    """Return the compute capability, "90" where a processor plays the GPU."""
    return str(device.xp.cuda.Device().compute_capability) if device.xp is not np else "90"


# ---- items ----------------------------------------------------------------------------------------------------------


def versions(record: Record, item: str, rehearse: bool) -> None:
    """What is here; each fact by itself, so that a missing one hides no other."""
    from emu.backends.cuda import loader, nvrtc

    def cupy_fact(read: Callable[[Any], Any]) -> Callable[[], Any]:
        return lambda: read(__import__("cupy"))

    facts: dict[str, Callable[[], Any]] = {
        "python": lambda: platform.python_version(),
        "numpy": lambda: np.__version__,
        "emu": lambda: __import__("emu").__version__,
        "commit": lambda: _output("git", "-C", str(ROOT), "rev-parse", "HEAD"),
        "cuda backend": lambda: loader.status()._asdict(),
        "nvrtc": nvrtc.version,
        "cupy": cupy_fact(lambda cupy: cupy.__version__),
        "cuda runtime": cupy_fact(lambda cupy: cupy.cuda.runtime.runtimeGetVersion()),
        "driver": cupy_fact(lambda cupy: cupy.cuda.runtime.driverGetVersion()),
        "gpu": cupy_fact(_properties),
        "nvidia-smi": lambda: _output("nvidia-smi", "--query-gpu=name,driver_version,clocks.max.sm", "--format=csv"),
        **{name: lambda name=name: __import__(name).__version__ for name in ("numba", "pydantic", "torch")},
    }
    for name, fact in facts.items():
        try:
            found = fact()
        except Exception as error:
            found = _said(error)
        record.put(item, **{name: found})


def _properties(cupy: Any) -> dict[str, Any]:
    found = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    names = ("major", "minor", "multiProcessorCount", "totalGlobalMem", "l2CacheSize", "clockRate", "memoryClockRate")
    return {"name": found["name"].decode(), **{name: found[name] for name in names if name in found}}


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()


def compile_all(record: Record, item: str, rehearse: bool) -> None:
    """Every source, in threads; then what each kernel takes of the GPU."""
    from emu.backends.cuda import loader, nvrtc

    architecture = "90" if rehearse or loader.status().state != "ready" else architecture_of(loader.CupyDevice())
    record.put(item, architecture=architecture, nvrtc=nvrtc.version())

    def one(place: tuple[str, int]) -> tuple[str, int, float, Path]:
        began = time.perf_counter()
        path = loader.compiled(*(place[0], architecture, place[1]))
        return *place, time.perf_counter() - began, path

    places = [(source, words) for source in SOURCES for words in WORDS]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for source, words, seconds, path in pool.map(one, places):
            entry: dict[str, Any] = {"seconds": round(seconds, 2), "bytes": path.stat().st_size}
            if loader.status().state == "ready" and not rehearse:
                entry["kernels"] = _kernels_of(source, path)
            record.put(item, **{f"{source}, {words} words": entry})


def _kernels_of(source: str, path: Path) -> dict[str, Any]:
    import re

    import cupy

    text = (ROOT / "kernels" / f"{source}.cu").read_text(encoding="utf-8")
    module, found = cupy.RawModule(path=str(path)), {}
    for name in re.findall(r"^EMU_KERNEL\((\w+)\)", text, re.MULTILINE):
        kernel = module.get_function(name)
        names = ("num_regs", "local_size_bytes", "shared_size_bytes", "max_threads_per_block")
        found[name] = {attribute: getattr(kernel, attribute) for attribute in names}
    return found


def bits(record: Record, item: str, rehearse: bool) -> None:
    """The cases of one source of kernels against their golden hashes."""
    import contact_cases

    device, source = device_of(rehearse), item.removeprefix("bits ")
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))["cases"]
    right, wrong = 0, dict[str, str]()
    for name, case in contact_cases.cases():
        if not name.startswith(source) or (rehearse and str(contact_cases.LARGE) in name):
            continue
        try:
            found = case(device.xp.asarray, "cuda").sha256()
        except Exception as error:
            found = _said(error)
        right += found == golden[name]
        if found != golden[name]:
            wrong[name] = found
        record.put(item, right=right, wrong=wrong)
    if wrong:
        raise AssertionError(f"{len(wrong)} of {right + len(wrong)} cases have other bits")


def beyond(record: Record, item: str, rehearse: bool) -> None:
    """More elements than an int32 counts: every block of the result is the first one's, and so are the counts."""
    import contact_cases

    import emu

    device = device_of(rehearse)
    block, whole = (1024, 5 * 1024 + 5) if rehearse else (BLOCK, BEYOND)
    numbers = device.xp.asarray(contact_cases.floats(block))
    x = device.xp.empty(whole, np.float32)
    for start in range(0, whole, block):
        x[start : start + block] = numbers[: whole - start]
    flags, once, rest = emu.Flags(), emu.Flags(), emu.Flags()
    result = emu.quantize(x, "fp16", flags=flags, backend="cuda").view(np.int32)
    expected = emu.quantize(numbers, "fp16", flags=once, backend="cuda").view(np.int32)
    emu.quantize(numbers[: whole % block], "fp16", flags=rest, backend="cuda")
    same = all(
        bool((result[start : start + block] == expected[: whole - start]).all()) for start in range(0, whole, block)
    )
    counted = [whole // block * a + b for a, b in zip(once.counts(), rest.counts(), strict=True)]
    record.put(item, elements=whole, blocks_equal=same, counts_equal=counted == list(flags.counts()))
    if not (same and counted == list(flags.counts())):
        raise AssertionError("an element beyond 2**31 is another one than below")


def training(record: Record, item: str, rehearse: bool) -> None:
    """Steps of lenet; hashes of weights and registers."""
    device, name = device_of(rehearse), item.removeprefix("training ")
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))["training"][name]
    steps = 1 if rehearse else STEPS
    hashes, seconds = trained(name, "cuda", steps, device)
    same = hashes == golden[str(steps)]
    record.put(item, steps=steps, first_step_s=round(seconds[0], 3), later_step_s=seconds[-1], hashes_equal=same)
    if not same:
        raise AssertionError(f"{name}: weights and registers are {hashes}, golden ones {golden[str(steps)]}")


def trained(name: str, backend: str, steps: int, device: Any = None) -> tuple[list[str], list[float]]:
    """Return hashes of weights and registers behind some steps, and seconds of each step."""
    loop, seconds = loop_of(name, backend), list[float]()
    for _ in range(steps):
        began = time.perf_counter()
        loop.advance()
        if device is not None:
            device.finish()
        seconds.append(time.perf_counter() - began)
    return [loop.bench.model.sha256(), loop.log.registers().sha256()], seconds


def loop_of(name: str, backend: str) -> Any:
    import emu
    from emu.training.loop import Loop
    from emu.training.workbench import Workbench

    settings = {"data.test_images": TEST_IMAGES, "training.batch": BATCH, "training.steps": STEPS}
    return Loop(Workbench.of(emu.model("lenet").with_settings(settings), emu.device(name), backend))


def probe(record: Record, item: str, rehearse: bool) -> None:
    """The GPU's own matrix instructions."""
    from emu.backends.cuda.loader import compiled
    from emu.testing.matrix_probe import ask, cases_of, compare, instructions_of, page, unit_of

    if rehearse:
        record.put(item, compiled_bytes=compiled("probes/matrix_units", "90").stat().st_size)
        return
    device = device_of(False)
    architecture = architecture_of(device)
    name = _properties(device.xp)["name"]
    answers: list[Any] = []
    for instruction in instructions_of(architecture):
        unit, cases = unit_of(instruction, architecture), cases_of(instruction, PROBED_TILES)
        answers += [compare(instruction, unit, case, ask(device, instruction, case)) for case in cases]
        record.put(item, page=page(name, architecture, answers))


def speed(record: Record, item: str, rehearse: bool) -> None:
    """One row of the table, beside its limit."""
    import gpu

    row = gpu.rows()[int(item.removeprefix("speed ")) - 1]
    device = device_of(rehearse)
    record.put(item, row=row.name)
    sides = row.sides(device, True)  # bits compared
    if rehearse:
        for side in sides:
            if side is not None:
                side()
        return
    record.put(item, **dict(zip(gpu.COLUMNS, gpu.measured(row, device), strict=True)))


def step(record: Record, item: str, rehearse: bool) -> None:
    """A training step of lenet: seconds by the wall and in kernels, launches of emu's kernels."""
    device = device_of(rehearse)
    for name in DEVICES:
        loop = loop_of(name, "cuda")
        for _ in range(1 if rehearse else 3):
            loop.advance()
        device.finish()
        walls: list[float] = []
        for _ in range(1 if rehearse else 10):
            began = time.perf_counter()
            loop.advance()
            device.finish()
            walls.append(time.perf_counter() - began)
        with timed_launches(device) as spent:
            loop.advance()
            device.finish()
        by_kernel: dict[str, list[float]] = {}
        for kernel, read in spent:
            by_kernel.setdefault(kernel, []).append(read())
        busy = {kernel: [len(each), round(sum(each), 6)] for kernel, each in by_kernel.items()}
        wall = float(np.median(walls))
        total = sum(seconds for _, seconds in busy.values())
        record.put(item, **{name: {"wall_s": wall, "busy_s": total, "launches": len(spent), "by_kernel": busy}})


@contextmanager
def timed_launches(device: Any) -> Iterator[list[tuple[str, Callable[[], float]]]]:
    """Give the kernels launched meanwhile, each with what reads its seconds."""
    spent: list[tuple[str, Callable[[], float]]] = []
    launch = device.launch

    def timed(source: str, kernel: str, *rest: Any) -> None:
        if device.xp is np:
            began = time.perf_counter()
            launch(source, kernel, *rest)
            seconds = time.perf_counter() - began
            spent.append((kernel, lambda: seconds))
            return
        events = [device.xp.cuda.Event() for _ in range(2)]
        events[0].record()
        launch(source, kernel, *rest)
        events[1].record()
        spent.append((kernel, lambda: device.xp.cuda.get_elapsed_time(*events) / 1e3))

    device.launch = timed
    try:
        yield spent
    finally:
        del device.launch


ITEMS: dict[str, Callable[[Record, str, bool], None]] = {
    "versions": versions,
    "compile": compile_all,
    "bits beyond 2**31": beyond,
    "bits": bits,
    "training": training,
    "probe": probe,
    "speed": speed,
    "step": step,
}


def work_of(item: str) -> Callable[[Record, str, bool], None]:
    return ITEMS.get(item) or ITEMS[item.split()[0]]


# ---- running them ---------------------------------------------------------------------------------------------------


def run_item(folder: Path, item: str, rehearse: bool) -> None:
    """Run one item, in this process."""
    record = Record(folder)
    began = time.perf_counter()
    try:
        work_of(item)(record, item, rehearse)
        record.put(item, state="done")
    except Exception as error:
        from emu.errors import BackendUnavailable

        lacks = isinstance(error, BackendUnavailable | ModuleNotFoundError)
        record.put(item, state="lacks something" if lacks else "failed", reason=_said(error))
    record.put(item, took_s=round(time.perf_counter() - began, 2))


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:600]}"


def run_all(folder: Path, seconds: float, rehearse: bool) -> int:
    """Run every item in a process of its own, as long as there is time; return how many failed."""
    record, began = Record(folder), time.monotonic()
    record.begin(seconds, rehearse)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))}
    environment.setdefault("EMU_CACHE_DIR", str(folder / "cache"))
    for item in item_names():
        left = seconds - (time.monotonic() - began)
        if left < 5:
            record.put(item, state="no time was left")
            continue
        command = [
            sys.executable,
            __file__,
            "--out",
            str(folder),
            "--item",
            item,
            *(["--rehearse"] if rehearse else []),
        ]
        limit = min(left, MOST_SECONDS.get(item.split()[0], 60.0))
        record.put(item, state="begun")
        started = time.monotonic()
        try:
            done = subprocess.run(
                command, env=environment, timeout=limit, check=False, capture_output=True, text=True, errors="replace"
            )
            if record.read()["items"][item]["state"] == "begun":
                record.put(
                    item, state="failed", reason=f"the process ended with {done.returncode}: {done.stderr[-600:]}"
                )
        except subprocess.TimeoutExpired:
            record.put(item, state="failed", reason=f"not done after {limit:.0f} s")
        record.put(item, with_process_s=round(time.monotonic() - started, 2))
        print(f"{time.monotonic() - began:6.1f} s  {item}: {_line(record.read()['items'][item])}", flush=True)
    states = [entry["state"] for entry in record.read()["items"].values()]
    counts = {state: states.count(state) for state in sorted(set(states))}
    record.finish(complete=True, took_s=round(time.monotonic() - began, 1), states=counts)
    print(f"{record.path}: {', '.join(f'{count} {state}' for state, count in counts.items())}")
    return counts.get("failed", 0)


def _line(entry: dict[str, Any]) -> str:
    return entry["state"] + (f" ({entry['reason'].splitlines()[0][:150]})" if "reason" in entry else "")


def make_golden() -> None:
    """Write the golden hashes: the reference's and Numba's, which must agree."""
    import contact_cases

    found: dict[str, str] = {}
    for name, case in contact_cases.cases():
        found[name] = case(np.asarray, "reference").sha256()
        if case(np.asarray, "numba").sha256() != found[name]:
            sys.exit(f"backends disagree about {name!r}")
    runs = {
        device: {str(steps): trained(device, "numba", steps)[0] for steps in (1, STEPS)}
        for device in DEVICES + MORE_DEVICES
    }
    GOLDEN.write_text(json.dumps({"cases": found, "training": runs}, indent=1) + "\n", encoding="utf-8")
    print(f"{GOLDEN}: {len(found)} cases, {len(runs)} devices")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder of the JSON")
    parser.add_argument("--seconds", type=float, default=480.0, help="no item begins or runs behind this time")
    parser.add_argument("--rehearse", action="store_true", help="this processor plays the GPU")
    parser.add_argument("--golden", action="store_true", help="make the golden hashes anew")
    parser.add_argument("--item", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    sys.path[:0] = [str(ROOT), str(HERE)]
    if given.golden:
        make_golden()
        return 0
    if given.out is None:
        parser.error("--out DIR must say where the JSON goes")
    if given.item:
        run_item(given.out, given.item, given.rehearse)
        return 0
    return 1 if run_all(given.out, given.seconds, given.rehearse) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
