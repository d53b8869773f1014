"""Training on many nodes: gradients quantised to as little as one bit, exchanged in stripes.

codecs/         gradients as codes and levels, with error feedback; the bytes that travel
layout.py       nodes, workers, owners; which columns each owner adds up
transport.py    what moves bytes between nodes
owner_rules.py  what owners do to sums
exchange.py     the two phases: workers to owners, owners to all
batch_search.py sizes of mini-batches by measured loss
parallelism.py  how many nodes share a mini-batch, by measured times
lockstep.py     nodes of one process that decide together on their way
striped.py      layers whose units lie on several devices

Source: CN106062786A; Seide et al., Interspeech 2014.
"""

from emu.cluster.batch_search import kept_size, trial_sizes
from emu.cluster.exchange import Exchange, ReplicaError
from emu.cluster.layout import Layout, Stripe, stripes_of
from emu.cluster.owner_rules import AdaGradRule, MomentumRule, OwnerRule, Plain
from emu.cluster.parallelism import ParallelismFactor, StepTimes, balanced_workers
from emu.cluster.transport import Simulated, Transport

__all__ = [
    "AdaGradRule",
    "Exchange",
    "Layout",
    "MomentumRule",
    "OwnerRule",
    "ParallelismFactor",
    "Plain",
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
