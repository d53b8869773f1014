"""Training on many nodes: gradients quantised to as little as one bit, exchanged in stripes.

codecs/       gradients as codes and levels, with error feedback; the bytes that travel
stripes.py    which columns each owner adds up
exchange.py   the two phases: nodes to owners, owners to nodes

Source: SYSTEMS C; US CN106062786A and Seide et al., Interspeech 2014. See docs/design/training.md.
"""
