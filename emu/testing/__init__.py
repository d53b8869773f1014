"""For tests of your own: random formats, values and units, comparisons that show bits, the contract, the order probe.

    @given(data=st.data(), fmt=formats())
    def test_quantize_is_idempotent(data, fmt):
        x = data.draw(arrays(fmt, (4, 3)))
        assert_bits_equal(emu.quantize(x, fmt), x, fmt)

    check_backend(my_unit).require()              every clause of the arithmetic contract, against your own unit
    print(probe_order(np.dot, 20))                the tree in which any product function adds its terms

The strategies need hypothesis (`pip install 'emu-numerics[test]'`); the rest needs NumPy only.
"""

from emu.testing.bits import assert_bits_equal
from emu.testing.bulk import bulk_arrays
from emu.testing.contract.c_unit import HEADER
from emu.testing.contract.check import Report, check_backend
from emu.testing.order_probe import probe_order
from emu.testing.order_tree import OrderTree, order_tree
from emu.testing.random_formats import formats
from emu.testing.scaled_strategies import block_numbers, scaled_values
from emu.testing.strategies import arrays, codes, values
from emu.testing.units import macs

__all__ = [
    "HEADER",
    "OrderTree",
    "Report",
    "arrays",
    "assert_bits_equal",
    "block_numbers",
    "bulk_arrays",
    "check_backend",
    "codes",
    "formats",
    "macs",
    "order_tree",
    "probe_order",
    "scaled_values",
    "values",
]
