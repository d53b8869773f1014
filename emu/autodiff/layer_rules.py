"""Primitives of layers that are one operation on a datapath: normalisation, attention's softmax, tables, dropout."""

from __future__ import annotations

from emu.autodiff.context import Context, Primitive
from emu.formats import Value


def _gelu(c: Context, x: Value) -> Value:
    return c.run("function", x, function="gelu")


def _gelu_back(c: Context, g: Value, y: Value, x: Value) -> Value:
    """The slope is written in the layer's activation format, as those of the other functions."""
    return c.run("multiply", g, c.run("gelu_slope", x, role="slope"))


def _softmax(c: Context, x: Value) -> Value:
    return c.run("softmax", x, **c.options)


def _softmax_back(c: Context, g: Value, y: Value, x: Value) -> Value:
    return c.run("softmax_gradient", g, y, scale=c.options["scale"])


def _normalise(c: Context, x: Value, gamma: Value, beta: Value, *running: Value) -> Value:
    result = c.run("normalise", x, gamma, beta, *running, training=c.training, **c.options)
    # beside the result lie what the backward pass reads, and the running moments for the next step
    written, c.saved, c.moments = result.array
    return result.with_array(written)


def _normalise_back(c: Context, g: Value, y: Value, x: Value, gamma: Value, *rest: Value) -> Value:
    _, *running = rest
    # running moments outside training are constants: no gradient flows through them
    axes = c.options["axes"] if c.training or not running else ()
    return c.run("normalise_gradient", g, gamma, saved=c.saved, axes=axes, along=c.options["along"])


def _gamma_back(c: Context, g: Value, y: Value, *operands: Value) -> Value:
    return c.run("gamma_gradient", g, saved=c.saved, along=c.options["along"])


def _beta_back(c: Context, g: Value, y: Value, *operands: Value) -> Value:
    return c.run("beta_gradient", g, part="bias", along=c.options["along"])


def _embedding(c: Context, table: Value, tokens: Value) -> Value:
    return c.run("embedding", table, tokens)


def _embedding_back(c: Context, g: Value, y: Value, table: Value, tokens: Value) -> Value:
    return c.run("embedding_gradient", g, tokens, rows=table.shape[0])


def _dropout(c: Context, x: Value) -> Value:
    # the identity: nothing is written, and no random number is drawn
    if not c.training:
        return x
    result = c.run("dropout", x, rate=c.options["rate"])
    written, c.saved = result.array
    return result.with_array(written)


def _dropout_back(c: Context, g: Value, y: Value, x: Value) -> Value:
    if not c.training:
        return g
    return c.run("dropout_gradient", g, saved=c.saved, rate=c.options["rate"])


#: The primitives by name; no gradient flows to some operands of `normalise` and `embedding`.
LAYER_PRIMITIVES: dict[str, Primitive] = {
    "gelu": Primitive(_gelu, (_gelu_back,)),
    "softmax": Primitive(_softmax, (_softmax_back,)),
    "normalise": Primitive(_normalise, (_normalise_back, _gamma_back, _beta_back)),
    "embedding": Primitive(_embedding, (_embedding_back, None)),
    "dropout": Primitive(_dropout, (_dropout_back,)),
}
