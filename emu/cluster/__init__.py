"""Training on many nodes: gradients quantised to as little as one bit, exchanged in stripes.

codecs/         gradients as codes and levels, with error feedback; the bytes that travel
layout.py       nodes, workers, owners; which columns each owner adds up
lines.py        which numbers of a parameter share levels: its columns
transport.py    what moves bytes between nodes
owner_rules.py  what owners do to sums
exchange.py     the two phases: workers to owners, owners to all
controller.py   whole layers to controllers, parameters back
parcels.py      messages of several tensors as one parcel
clipping/       gradients clipped layer by layer before they leave a worker
lockstep.py     nodes of one process that decide together on their way
striped.py      layers whose units lie on several devices

Source: CN106062786A; Seide et al., Interspeech 2014.
"""

from emu.cluster.controller import Controllers
from emu.cluster.exchange import Exchange
from emu.cluster.layout import Layout, Stripe, stripes_of
from emu.cluster.owner_rules import AdaGradRule, MomentumRule, OwnerRule, Plain
from emu.cluster.parcels import ReplicaError
from emu.cluster.transport import Simulated, Transport

__all__ = [
    "AdaGradRule",
    "Controllers",
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
