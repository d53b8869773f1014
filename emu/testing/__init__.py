"""For tests of your own: random formats and values, and a comparison that shows bits.

    @given(data=st.data(), fmt=formats())
    def test_quantize_is_idempotent(data, fmt):
        x = data.draw(arrays(fmt, (4, 3)))
        assert_bits_equal(emu.quantize(x, fmt), x, fmt)

The strategies need hypothesis (`pip install 'emu-numerics[test]'`); `assert_bits_equal` needs NumPy only.
"""

from emu.testing.bits import assert_bits_equal
from emu.testing.strategies import arrays, codes, formats, values

__all__ = ["arrays", "assert_bits_equal", "codes", "formats", "values"]
