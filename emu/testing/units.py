"""The strategy of multiply-accumulate units."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emu.datapath import Mac, Rounding
from emu.datapath.order import Blocks, Lanes, Order, Pairwise, Sequential
from emu.datapath.overflow import FIXED_RULES, FLOAT_RULES
from emu.formats import Fixed
from emu.testing.random_formats import formats, load

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

#: Limits of what is drawn, far below those of `emu.datapath.order`: short products fill several lanes and blocks.
MAX_LANES, MAX_BLOCK, MAX_FRACTION_BITS = 9, 16, 30
#: Lowest `min_exponent` that is drawn: just below float32's smallest number, 2**-149.
_LOWEST_EXPONENT = -150


def macs(
    *,
    exact: bool = True,
    products: bool = True,
    fixed: bool = True,
    floats: bool = True,
    max_width_bits: int = 32,
    stochastic: bool = True,
    blocks: bool = False,
) -> SearchStrategy[Mac]:
    """Return a strategy of multiply-accumulate units. They shrink to the exact sequential unit.

    Args:
        exact: accumulators may be exact, never rounding.
        products: products may be rounded into a format of their own.
        fixed: fixed-point products and accumulators.
        floats: floating-point products and accumulators.
        max_width_bits: widest product or accumulator.
        stochastic: adds may round stochastically.
        blocks: also draw the order of matrix units, `blocks(n, fraction_bits, ...)`, which needs exact products and a
            float accumulator.

    Raises:
        ImportError: hypothesis is not installed.
        FormatError: the options leave no format.
    """
    st = load("hypothesis.strategies")
    # sums begin at 0, so formats without zero cannot be product or accumulator
    words = formats(fixed=fixed, floats=floats, max_width_bits=max_width_bits, zeroless=False)
    modes = [mode for mode in Rounding if stochastic or not mode.draws]

    def draw_mac(draw: Any) -> Mac:
        product = draw(st.one_of(st.just("exact"), words)) if products else "exact"
        accumulator = draw(st.one_of(st.just("exact"), words) if exact else words)
        order: Order = draw(_orders(st))
        return Mac(product, accumulator, order, draw(st.sampled_from(modes)), draw(_rules(st, product, accumulator)))

    def draw_matrix_unit(draw: Any) -> Mac:
        accumulator = draw(formats(fixed=False, max_width_bits=max_width_bits, unsigned=False))
        rule = draw(_rules(st, "exact", accumulator))
        return Mac("exact", accumulator, draw(_blocks(st)), draw(st.sampled_from(modes)), rule)

    plain = st.composite(draw_mac)()
    return st.one_of(plain, st.composite(draw_matrix_unit)()) if blocks else plain


def _orders(st: Any) -> Any:
    lanes = st.integers(1, MAX_LANES).map(Lanes)
    return st.one_of(st.just(Sequential()), st.just(Pairwise()), lanes)


def _blocks(st: Any) -> Any:
    def draw_blocks(draw: Any) -> Blocks:
        index_order = draw(st.sampled_from(["consecutive", "alternating_pairs"]))
        n = (
            # alternating pairs need an even number of products
            draw(st.integers(1, MAX_BLOCK // 2)) * 2
            if index_order == "alternating_pairs"
            else draw(st.integers(1, MAX_BLOCK))
        )
        min_exponent = draw(st.one_of(st.none(), st.integers(_LOWEST_EXPONENT, 0)))
        addend = draw(st.sampled_from(["aligned", "after"]))
        return Blocks(n, draw(st.integers(0, MAX_FRACTION_BITS)), index_order, addend, min_exponent)

    return st.composite(draw_blocks)()


def _rules(st: Any, product: Any, accumulator: Any) -> Any:
    """Return the overflow rules that fit both formats; None is the default, and alone if no other rule fits."""
    families = {isinstance(fmt, Fixed) for fmt in (product, accumulator) if fmt != "exact"}
    if families == {True}:
        return st.sampled_from([None, *FIXED_RULES])
    return st.sampled_from([None, *FLOAT_RULES]) if families == {False} else st.none()
