"""For tests of your own: random formats and values, and a comparison that shows bits.

    @given(data=st.data(), fmt=formats())
    def test_quantize_is_idempotent(data, fmt):
        x = data.draw(arrays(fmt, (4, 3)))
        assert_bits_equal(emu.quantize(x, fmt), x, fmt)

The strategies need hypothesis (`pip install 'emu-numerics[test]'`); `assert_bits_equal` needs NumPy only.
"""

from emu.testing.bits import assert_bits_equal
from emu.testing.bulk import bulk_arrays
from emu.testing.order_probe import probe_order
from emu.testing.order_tree import OrderTree, order_tree
from emu.testing.random_formats import formats
from emu.testing.strategies import arrays, codes, values
from emu.testing.units import macs

__all__ = [
    "OrderTree",
    "arrays",
    "assert_bits_equal",
    "bulk_arrays",
    "codes",
    "formats",
    "macs",
    "order_tree",
    "probe_order",
    "values",
]
