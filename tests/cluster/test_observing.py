"""What codes stood for, and what nodes hold back: the tables that people look at."""

from __future__ import annotations

import numpy as np
from test_cluster_training import loop, trained

from emu.cluster.codecs import Address, Memory, codec_of
from emu.cluster.observing import code_counts
from emu.training.folders.run_folder import RunFolder
from emu.training.loop.run_to_end import run_to_end


def test_codes_of_the_published_example_stood_for_its_values():
    gradient = np.array([[0.5, -0.25, 1.5, -0.75]], np.float32)
    codec, memory = codec_of(1), Memory.empty(1, 4)
    message = codec.encode(gradient, memory, Address())
    rms = np.sqrt(np.mean(gradient.astype(np.float64) ** 2))
    expected = sorted((int(v >= 0), (1.0 if v >= 0 else -0.5) / rms, np.floor(v / rms * 8) / 8, 1) for v in gradient[0])
    assert sorted(tuple(count) for count in code_counts(codec, message, memory)) == expected


def test_every_finite_value_is_counted_once_and_what_lies_far_out_in_the_outermost_bins():
    rng = np.random.default_rng(5)
    gradient = rng.normal(size=(3, 1000)).astype(np.float32)
    gradient[0, 0], gradient[1, 1], gradient[2, 2] = 1000, np.nan, -np.inf
    for bits in (1, 3, 8):
        codec, memory = codec_of(bits), Memory.empty(3, 1000)
        found = list(code_counts(codec, codec.encode(gradient, memory, Address()), memory))
        assert all(-4 <= count.bin < 4 for count in found)
    codec, memory = codec_of(1), Memory.empty(1, 1000)
    plain = gradient[:1]
    plain[0, 0] = 100
    found = list(code_counts(codec, codec.encode(plain, memory, Address()), memory))
    assert sum(count.values for count in found) == 1000
    assert sum(count.values for count in found if count.bin == 3.875) == 1


def test_gradients_as_they_are_and_nothing_but_zeros_have_no_codes_to_show():
    codec, memory = codec_of(32), Memory.empty(1, 4)
    assert not list(code_counts(codec, codec.encode(np.ones((1, 4), np.float32), memory, Address()), memory))
    codec = codec_of(1)
    assert not list(code_counts(codec, codec.encode(np.zeros((1, 4), np.float32), memory, Address()), memory))


def test_a_run_writes_bytes_norms_and_codes_at_every_log_point(tmp_path):
    found = loop(cluster__nodes=2)
    run = run_to_end(found, RunFolder.create(tmp_path / "run"))
    folder = RunFolder.open(run.path)
    sent = folder.read_table("cluster")
    assert sent["step"] == [3, 6]
    assert sent["bytes_sent"] == [found.log.metrics()["bytes_sent"] // 2, found.log.metrics()["bytes_sent"]]
    codes = folder.read_table("codes")
    sizes = {state.name: state.master.array.size for state in found.bench.model.states}
    for step in (3, 6):
        at = [i for i, s in enumerate(codes["step"]) if s == step]
        for tensor, size in sizes.items():
            assert sum(codes["values"][i] for i in at if codes["tensor"][i] == tensor) == size
    norms = folder.read_table("residuals")
    assert {"worker", "owner"} == set(norms["holder"])
    last = {
        (t, h): n
        for s, t, h, n in zip(*(norms[c] for c in ("step", "tensor", "holder", "norm")), strict=True)
        if s == 6
    }
    system = next(system for system in found.systems if system.key == "cluster")
    for tensor in sizes:
        for holder in ("worker", "owner"):
            kept = [
                array.astype(np.float64).ravel()
                for name, array in system.arrays().items()
                if name.startswith(f"{holder}/{tensor}/") and name.endswith("@0/residual")
            ]
            if kept:
                assert last[tensor, holder] == np.sqrt(np.sum(np.square(np.concatenate(kept))))


def test_a_run_without_a_cluster_writes_none_of_them(tmp_path):
    run = run_to_end(trained(0), RunFolder.create(tmp_path / "run"))
    assert not [path for path in run.path.iterdir() if path.stem in ("cluster", "residuals", "codes")]
