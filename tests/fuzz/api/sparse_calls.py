"""Sparse matrices: made from arrays and of SciPy, chosen rows, products, updates of some rows."""

from __future__ import annotations

from .calls import Case, add_options
from .draw import JUNK, NO_FORMATS, Pen, Text


def sparse(pen: Pen) -> Case:
    return pen.pick(
        (_of, _from_dense, _from_dense, _from_scipy, _chosen, _product, _product, _product, _compact, _update)
    )(pen)


def _entries(pen: Pen, name: str, rows: int, columns: int) -> tuple[str, str, str]:
    """data, indices and indptr of a sound matrix."""
    indices: list[int] = []
    starts = [0]
    for _ in range(rows):
        indices += sorted(pen.random.sample(range(columns), pen.random.randint(0, columns)))
        starts.append(len(indices))
    data = pen.array(pen.values(name, len(indices)), (len(indices),))
    dtype = pen.pick(("np.int32", "np.int64", "np.int64", "np.uint8", "'>i4'"))
    return data, f"np.array({indices}, {dtype})", f"np.array({starts}, {dtype})"


def _of(pen: Pen) -> Case:
    name, rows, columns = pen.format(), pen.pick((1, 2, 3)), pen.pick((1, 2, 4))
    data, indices, indptr = _entries(pen, name, rows, columns)
    texts = {
        "data": Text(data),
        "indices": Text(indices),
        "indptr": Text(indptr),
        "shape": Text(f"({rows}, {columns})"),
    }
    texts["fmt"] = pen.written_format(name)
    broken = pen.pick(("", "", "", "data", "indices", "indptr", "shape"))
    wrong = {
        "data": ("None", "'x'", "[None]", "[[1.0]]", "[1.0] * 99", "1.0", "[1j] * 2", "np.ma.masked"),
        "indices": (
            "None",
            "[0.5]",
            "[99]",
            "[-1]",
            "'x'",
            "[[0]]",
            "[2**40]",
            "[None]",
            "np.array([True])",
            "np.array([2**63], np.uint64)",
        ),
        "indptr": (
            "None",
            "[0.0, 1.0]",
            "[]",
            "[0]",
            "[0, 99]",
            "[1, 0]",
            "[-1, 0]",
            "'x'",
            "[[0, 1]]",
            "[0, 2**63]",
            "[0, 2**70]",
        ),
        "shape": (
            "None",
            "3",
            "(1,)",
            "(1, 2, 3)",
            "(-1, 2)",
            "(1.5, 2)",
            "('1', '2')",
            "(2**70, 1)",
            "'12'",
            "(True, True)",
            "(99, 99)",
        ),
    }
    if broken:
        texts[broken] = Text(pen.pick(wrong[broken]), True)
    return Case("emu.sparse.CSR.of", texts, "csr", twist="" if broken else "mutate")


def _from_dense(pen: Pen) -> Case:
    name = pen.format(wide=0.3)
    shape = pen.pick(((2, 3), (3, 2), (1, 1), (0, 2), (2, 0), (3, 4))) if pen.now_and_then(0.85) else pen.shape()
    given = {"x": pen.operand(name, shape, junk=0.1), "fmt": pen.written_format(name)}
    return Case("emu.sparse.CSR.from_dense", given, "csr", twist="mutate" if pen.now_and_then(0.5) else "")


def _from_scipy(pen: Pen) -> Case:
    name = pen.pick(("fix8f0", "fix16f8", "fp16", "fp32", "fix60f4", "fix64f0", "fp64"))
    rows = [[_small(pen) for _ in range(3)] for _ in range(2)]
    dtype = pen.pick(("np.float64", "np.float32", "np.int64", "np.int8"))
    matrix = f"np.array([{', '.join(f'[{chr(44).join(row)}]' for row in rows)}], {dtype})"
    kind = pen.pick(
        (
            "csr_array",
            "csr_matrix",
            "coo_array",
            "csc_array",
            "csr_array",
            "lil_array",
            "bsr_array",
            "dok_array",
            "dia_array",
        )
    )
    text = f"sp.{kind}({matrix})"
    if pen.now_and_then(0.2):
        text = pen.pick(
            (
                f"{text} * 1j",
                "np.eye(2)",
                "None",
                "sp.coo_array(np.array([1, 0, 2]))",
                "emu.sparse.CSR.from_dense([[1.0]], 'fp16')",
                "[[1]]",
                f"{text}.astype(complex)",
            )
        )
        return Case("emu.sparse.CSR.from_scipy", {"x": Text(text, True), "fmt": Text(repr(name))}, "csr")
    given = {"x": Text(text), "fmt": pen.written_format(name)}
    return Case("emu.sparse.CSR.from_scipy", given, "csr", twist="mutate" if pen.now_and_then(0.7) else "")


def _small(pen: Pen) -> str:
    return pen.pick(("0", "0", "1", "2", "-3", "7"))


def _csr(pen: Pen, name: str, rows: int, columns: int) -> str:
    data, indices, indptr = _entries(pen, name, rows, columns)
    wrap = pen.pick(("{}", "{}", "{}", "copy.deepcopy({})", "pickled({})", "copy.copy({})"))
    return wrap.format(f"emu.sparse.CSR.of({data}, {indices}, {indptr}, ({rows}, {columns}), {name!r})")


def _chosen(pen: Pen) -> Case:
    x = _csr(pen, "fix8f0", 3, 4)
    sound = (
        "[0]",
        "[2, 0, 2]",
        "slice(1)",
        "slice(None, None, -1)",
        "[-1]",
        "np.array([True, False, True])",
        "[]",
        "slice(5, 9)",
        "np.array([], int)",
    )
    bad = (
        "3",
        "[3]",
        "[-4]",
        "'x'",
        "None",
        "[0.5]",
        "np.array([1.0])",
        "[[0]]",
        "(0, 1)",
        "[True]",
        "1.5",
        "[2**70]",
        "{}",
        "object()",
    )
    is_bad = pen.now_and_then(0.5)
    return Case(f"{x}.__getitem__", {"chosen": Text(pen.pick(bad if is_bad else sound), is_bad)}, free=True)


def _product(pen: Pen) -> Case:
    kind = pen.pick(("matmul", "matmul", "transposed_matmul", "compact_matmul"))
    rows, columns, wide = pen.pick((1, 2, 3)), pen.pick((1, 2, 4)), pen.pick((1, 2, 3))
    name, dense, out = pen.format(), pen.format(), pen.format()
    text = _csr(pen, name, rows, columns)
    x = Text(pen.pick(JUNK[:20]), True) if pen.now_and_then(0.05) else Text(text)
    if x.text.startswith("emu.sparse"):
        x = Text(text)
    argument, height = ("dy", rows) if kind == "transposed_matmul" else ("w", columns)
    shape = (height, wide) if pen.now_and_then(0.9) else pen.shape()
    case = Case(f"emu.sparse.{kind}", {"x": x, argument: pen.operand(dense, shape)}, "sparse")
    case.arguments |= {f"{argument}_format": pen.written_format(dense), "out_format": pen.written_format(out)}
    add_options(pen, case, out, (rows, wide) if kind == "matmul" else None, mac=True)
    if pen.now_and_then(0.06):
        case.twist = "threads" if "out" not in case.arguments and "rbits" not in case.arguments else ""
    return case


def _compact(pen: Pen) -> Case:
    sound = {"rows": "[0, 2]", "values": "np.ones((2, 3), np.float32)", "height": "4", "format": "emu.Fixed(8, 4)"}
    given = {name: Text(text) for name, text in sound.items()}
    wrong = {
        "rows": (
            "[0, 9]",
            "[0, 0]",
            "[1, 0]",
            "[0.5, 1]",
            "None",
            "'x'",
            "[[0, 1]]",
            "[0]",
            "[-1, 2]",
            "[True, False]",
            "np.array([0, 2**63], np.uint64)",
        ),
        "values": (
            "None",
            "[[1.0, 2.0], [1.0, 2.0]]",
            "np.ones(2)",
            "'x'",
            "np.ones((3, 3))",
            "np.array([['a'], ['b']])",
            "np.ones((2, 3), complex)",
        ),
        "height": ("2.5", "None", "'4'", "-1", "0", "nan", "True", "[4]"),
        "format": ("'fix8f4'", "None", "3", "'bogus'"),
    }
    broken = pen.pick(("", *wrong))
    if broken:
        given[broken] = Text(pen.pick(wrong[broken]), True)
    return Case("emu.sparse.Compact", given, twist="" if broken else "mutate")


def _update(pen: Pen) -> Case:
    gradient = "emu.sparse.Compact(np.array([0, 2]), np.ones((2, 3), np.float32), 4, emu.Fixed(8, 4))"
    given = {
        "w": Text(
            pen.pick(
                (
                    "np.ones((4, 3), np.float32)",
                    "np.asfortranarray(np.ones((4, 3), np.float32))",
                    "np.ones((4, 6), np.float32)[:, ::2]",
                )
            )
        ),
        "gradient": Text(gradient),
        "rate": Text(pen.pick(("0.5", "1", "np.float32(0.25)"))),
        "w_format": Text("'fix16f8'"),
        "update_format": Text("'fix16f8'"),
    }
    wrong = {
        "w": (
            "None",
            "[[1.0]]",
            "np.ones((3, 3), np.float32)",
            "frozen(np.ones((4, 3), np.float32))",
            "np.ones((4, 3), '>f4')",
            "np.ones((4, 3), complex)",
            "np.ones((4, 3), object)",
            "np.full((4, 3), 0.3)",
            "np.ones((4, 3), np.int64)",
            "np.ma.array(np.ones((4, 3), np.float32), mask=True)",
        ),
        "gradient": ("None", "np.ones((4, 3))", "'x'", "3"),
        "rate": ("'x'", "None", "1j", "[0.5]", "nan", "object()", "inf"),
        "w_format": NO_FORMATS[:12],
        "update_format": NO_FORMATS[:12],
    }
    if pen.now_and_then(0.6):
        broken = pen.pick(tuple(wrong))
        given[broken] = Text(pen.pick(wrong[broken]), True)
    return Case("emu.sparse.update_rows", given, "update")
