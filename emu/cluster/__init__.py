"""Training on many nodes: gradients quantised to as little as one bit, exchanged in stripes.

codecs/         gradients as codes and levels, with error feedback; the bytes that travel
layout.py       nodes, workers, owners; which columns each owner adds up
transport.py    what moves bytes between nodes
owner_rules.py  what owners do to sums
exchange.py     the two phases: workers to owners, owners to all
lockstep.py     nodes of one process that decide together on their way
striped.py      layers whose units lie on several devices

Source: CN106062786A; Seide et al., Interspeech 2014.
"""

from emu.cluster.exchange import Exchange, ReplicaError
from emu.cluster.layout import Layout, Stripe, stripes_of
from emu.cluster.owner_rules import AdaGradRule, MomentumRule, OwnerRule, Plain
from emu.cluster.transport import Simulated, Transport

__all__ = [
    "AdaGradRule",
    "Exchange",
    "Layout",
    "MomentumRule",
    "OwnerRule",
    "Plain",
    "ReplicaError",
    "Simulated",
    "Stripe",
    "Transport",
    "stripes_of",
]
