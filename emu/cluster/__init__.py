"""Training on many nodes: gradients quantised to as little as one bit, exchanged in stripes or by controllers.

A line is the numbers of a parameter that share levels: all weights that lead to one output, or leave one input. Levels
are the values for which its codes stand. Workers compute gradients. Each owner adds up a stripe, neighbouring lines of
a tensor, of all workers, and sends the sum back; a controller does so for whole layers, and sends parameters back.

settings.py       `[cluster]` of a recipe
codecs/           gradients as codes and levels, with error feedback; the bytes that travel
layout.py         nodes, workers, owners; which lines (columns in the sources) each owner adds up
lines.py          the lines of a parameter
wires.py          messages of all lines, or of those that a step has touched
transport.py      moves bytes between nodes of one process or of many
mpi.py            the channel between processes
nccl.py           the channel between their GPUs
launcher.py       the number of a process among those that MPI started: its rank
sentinel.py       names the rank that died
sigterm.py        SIGTERM as an exception, so that a run writes why it stops
contributions.py  what workers send in each step, and the residuals that they keep
owner_rules.py    what owners do to sums
exchange.py       the two phases: workers to owners, owners to all
controller.py     exchange of whole layers: gradients to controllers, parameters back
parcels.py        messages of several tensors as one parcel
observing.py      which values the codes stand for, for the report
clipping/         gradients clipped layer by layer before they leave a worker
batch_sizes.py    sizes of mini-batches, chosen by measured loss
parallelism.py    how many nodes share a mini-batch, chosen by measured times
lockstep.py       nodes of one process that make decisions together
striped.py        layers divided among several devices
timing/           simulated time of a step

Sources: CN106062786A; Seide et al., Interspeech 2014 (stripes, sizes, numbers of nodes). US 2023/0169333 (controllers,
clipping). US 12,008,475 (gradients of some rows).
"""

from emu.cluster.batch_sizes import kept_size, trial_sizes
from emu.cluster.controller import Controllers, Homes
from emu.cluster.exchange import Exchange
from emu.cluster.layout import Layout, Stripe, stripes_of
from emu.cluster.owner_rules import AdaGradRule, MomentumRule, OwnerRule, Plain
from emu.cluster.parallelism import ParallelismFactor, StepTimes, balanced_workers
from emu.cluster.parcels import ReplicaError
from emu.cluster.transport import Channel, Distributed, RankError, Simulated, Transport

__all__ = [
    "AdaGradRule",
    "Channel",
    "Controllers",
    "Distributed",
    "Exchange",
    "Homes",
    "Layout",
    "MomentumRule",
    "OwnerRule",
    "ParallelismFactor",
    "Plain",
    "RankError",
    "ReplicaError",
    "Simulated",
    "StepTimes",
    "Stripe",
    "Transport",
    "balanced_workers",
    "kept_size",
    "stripes_of",
    "trial_sizes",
]
