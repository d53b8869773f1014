"""Muon: the momentum of a matrix, made orthogonal by an iteration of products; Adam moves everything else.

    m = momentum * m + g                                                role momentum
    n = momentum * m + g                                                role momentum
    size = sqrt(sum of n * n) + S * eps                                 role norm, on the host
    x = n / size, transposed if it has more rows than columns           role orthogonal
    of each iteration                                                   role orthogonal
        gram = x x^T;  square = gram gram
        poly = b * gram + (c * square)
        x = a * x + (poly x)
    update = -rate * sqrt(max(1, rows / columns)) * x                   role update
    update = update - rate * decay * master         (if decay > 0)      role update
    master = master + update                                            role master

A matrix is the weight of a layer that multiplies by it; its rows are along the first axis: (outputs, inputs), and of
a convolution (outputs, channels * height * width). Of a transposed convolution, and of a factor of an ONNX graph that
stands on the right, the rows are inputs: (inputs, outputs), (channels, outputs * height * width). The three products
of an iteration run on the layer's forward unit (`[precision.mac]`); what they read and write has the format of role
`orthogonal`, which is that of the weights unless the device has a table for it. Elements are multiplied with one
rounding; a product of elements to which a number is added is a fused multiply-add. S is the scale that gradients and
momentum carry, 1 without loss scaling; it cancels in x. If squares overflow to infinity, size is infinite and x is 0;
if an element of n is infinite itself, x is NaN.

Source: Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024,
https://kellerjordan.github.io/posts/muon/. That sums and roundings are placed as above is our choice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase

from typing_extensions import override

from emu.autodiff import Runner, Value
from emu.errors import ConfigError, nearest_name
from emu.formats import Format
from emu.formats.integers import as_integer
from emu.optim.adaptive import Adam
from emu.optim.optimiser import Optimiser, ParameterState, UpdateRunner, move_master, scalar, zeros

ORTHOGONAL, _SLOT = "orthogonal", "momentum"
#: a, b, c of x = a x + b (x x^T) x + c (x x^T)^2 x. They are chosen for a steep slope at 0: five iterations bring
#: singular values from 0.01 to 1 into 0.68..1.14, not to 1 (the source, "Tuning the coefficients").
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
#: Added to the norm, so that a matrix of zeros stays one.
EPS = 1e-7


def globs_of(layers: str | Sequence[str]) -> tuple[str, ...]:
    """Return globs of layers; one text is one glob."""
    return (layers,) if isinstance(layers, str) else tuple(layers)


class Muon(Optimiser):
    """Momentum made orthogonal for matrices, Adam for all other parameters and for the layers that are named.

    Attributes:
        learning_rate: rate of matrices where that of Adam is `adam_learning_rate`; a schedule changes both alike.
        momentum: share of the previous direction.
        weight_decay: lambda of matrices, times rate and parameter, apart from the gradient.
        iterations: how often a direction is multiplied.
        adam_layers: globs of layers whose matrices Adam moves; one text is one glob.
        adam_learning_rate: rate of Adam.
        adam: moves what is no matrix, and `adam_layers`.

    Raises:
        ConfigError: `learning_rate` is not above 0.
        FormatError: `iterations` is no integer, or below 1.
    """

    def __init__(
        self,
        learning_rate: float = 0.02,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        iterations: int = 5,
        adam_layers: Sequence[str] = (),
        adam_learning_rate: float = 3e-4,
        adam: Adam | None = None,
    ) -> None:
        # Adam's rate changes in the ratio in which this one does; NaN is refused, too
        if not learning_rate > 0:
            raise ConfigError(
                f"`learning_rate` of optimiser 'muon' must be above 0, got {learning_rate}; choose a larger one"
            )
        self.learning_rate, self.momentum, self.weight_decay = learning_rate, momentum, weight_decay
        self.iterations = as_integer("iterations", iterations, 1)
        # a text is a sequence of letters
        self.adam_layers = globs_of(adam_layers)
        self.adam_learning_rate = adam_learning_rate
        self.adam = Adam() if adam is None else adam

    # ---- which parameters ----

    @override
    def require(self, states: Sequence[ParameterState]) -> None:
        matrices = [state.layer for state in states if state.is_matrix]
        for glob in self.adam_layers:
            # without any matrix the error below says more
            if matrices and not any(fnmatchcase(layer, glob) for layer in matrices):
                raise ConfigError(
                    f"`adam_layers` of optimiser 'muon' must match a layer that has a matrix, got "
                    f"{glob!r}{nearest_name(glob, matrices)}"
                )
        if not any(map(self._moves, states)):
            got = f"`adam_layers` that name all of {', '.join(matrices)}" if matrices else "a network without any"
            raise ConfigError(f"optimiser 'muon' must have a matrix to move, got {got}; choose optimiser 'adam'")

    def _moves(self, state: ParameterState) -> bool:
        """Return whether a parameter's momentum is made orthogonal."""
        return state.is_matrix and not any(fnmatchcase(state.layer, glob) for glob in self.adam_layers)

    @override
    def start(self, state: ParameterState, format_of: Callable[[str], Format]) -> None:
        """Start a matrix's previous direction at 0, and the means of any other parameter."""
        if self._moves(state):
            state.slots[_SLOT] = zeros(state, format_of(_SLOT))
        else:
            self.adam.start(state, format_of)

    @property
    @override
    def slot_powers(self) -> Mapping[str, int]:
        """The previous direction grows with the gradient; Adam's slots are its own."""
        return {_SLOT: 1, **self.adam.slot_powers}

    @property
    @override
    def is_still(self) -> bool:
        """False: each element of a direction depends on all of them."""
        return False

    @override
    def roles(self, state: ParameterState) -> frozenset[str]:
        return frozenset((_SLOT, "norm", ORTHOGONAL)) if self._moves(state) else self.adam.roles(state)

    # ---- a step ----

    @override
    def apply(
        self, state: ParameterState, gradient: Value, rate: float, step: int, runner: Runner, scale: float = 1.0
    ) -> None:
        if not self._moves(state):
            # a schedule's share of the rate is 1 where it is constant, so that Adam's rate is the recipe's
            self.adam.apply(state, gradient, rate / self.learning_rate * self.adam_learning_rate, step, runner, scale)
            return
        parameter, momentum = UpdateRunner(runner, state), scalar(self.momentum)
        state.slots[_SLOT] = parameter.run("fma", _SLOT, state.slots[_SLOT], momentum, gradient)
        # Nesterov's look-ahead: the gradient plus the new direction times momentum
        ahead = parameter.run("fma", _SLOT, state.slots[_SLOT], momentum, gradient, step=".ahead")
        rows = ahead.shape[0]
        columns = ahead.array.size // rows
        # (first axis, everything else): kernels of a convolution are rows of a matrix
        direction = self._orthogonal(ahead.with_array(ahead.array.reshape(rows, columns)), scale, parameter)
        whole = direction.with_array(direction.array.reshape(ahead.shape))
        # elements of a tall x are about 1 / sqrt(rows) large; the factor makes them 1 / sqrt(columns), as those of a
        # square one
        shape_factor = math.sqrt(max(1.0, rows / columns))
        update = parameter.run("multiply", "update", whole, scalar(-rate * shape_factor))
        move_master(parameter, update, rate, self.weight_decay)

    def _orthogonal(self, matrix: Value, scale: float, parameter: UpdateRunner) -> Value:
        """Return a matrix (rows, columns) with singular values near 1, in the format of role `orthogonal`."""
        root = parameter.run("sqrt", "norm", parameter.run("squared_norm", "norm", matrix), step=".root")
        size = parameter.run("add", "norm", root, scalar(EPS * scale), step=".size")
        is_tall = matrix.shape[0] > matrix.shape[1]  # then x^T x is the smaller product
        x = parameter.run("divide", ORTHOGONAL, _transposed(matrix) if is_tall else matrix, size)
        a, b, c = map(scalar, COEFFICIENTS)
        # names have the number of the iteration (`i=i` binds it): each operation of each has its own random bits
        for i in range(self.iterations):

            def run(name: str, what: str, *operands: Value, i: int = i) -> Value:
                return parameter.run(name, ORTHOGONAL, *operands, step=f".{what} {i}")

            gram = run("matmul", "gram", x, _transposed(x))
            square = run("matmul", "square", gram, gram)
            # b * gram may leave [-4, 4], which fixed point with few integer bits has; c * square hardly does
            poly = run("fma", "poly", gram, b, run("multiply", "share", square, c))
            x = run("fma", "next", x, a, run("matmul", "product", poly, x))
        return _transposed(x) if is_tall else x


def _transposed(matrix: Value) -> Value:
    return matrix.with_array(matrix.array.swapaxes(0, 1))
