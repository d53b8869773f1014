"""Constants of `double.py`, as `python -m emu.backends.functions.fitting` prints them.

    EXP   (e**r - 1 - r) / r**2                    |r| <= ln 2 / 2                     2**-60
    LOG   (log(m) - 2 s) / (s * s**2)              s = (m-1)/(m+1) <= 0.1716           2**-60, relative
    ERF   erf(x) / x - 1                           in x**2 <= 1/4                      2**-55, relative
    ERFC  (log((1+5x/4) erfc(x)) + x**2) / v       v = x/(x+K), t = 2v-1, x in 1/2..6  2**-56, relative
    PHI   (log((1+5x/4) 2 Phi(-x)) + x**2/2) / v   the same, x in 0..40                2**-56, relative

Lowest power first. Last column: what the polynomial with these rounded coefficients, evaluated exactly, adds to the
error of the function; a test measures it again.
"""

from __future__ import annotations

from emu.backends.bounds import bounded

#: Centre K of v = x/(x+K), for erfc on 1/2..6 and 2 Phi on 0..40: where interpolation needed the fewest powers.
ERFC_CENTRE, PHI_CENTRE = 1.75, 2.0
#: 1 + 5x/4 times the scaled tail stays near 1 (for 2 Phi the slope at infinity would be sqrt(pi/2) = 1.2533).
TAIL_SLOPE = 1.25

#: Larger arguments count as these: the result is the same, or close to it.
LARGEST_EXP = bounded(
    800.0, 746.0, 1400.0, "e**x is 0 or infinite there; halves of its power of two are normal numbers"
)
LARGEST_TANH = bounded(22.0, 19.1, 350.0, "tanh rounds to 1 there; e**2x is a normal number")
LARGEST_ERF = bounded(6.0, 5.93, 6.0, "erf rounds to 1 there; ERFC ends at 6")
LARGEST_GELU = bounded(40.0, 38.6, 40.0, "x Phi(-x) rounds to 0 there; PHI ends at 40")
#: Below the first, tanh(x) is x; below the second, gelu(x) is x/2.
TANH_IS_X = bounded(2.0**-28, 2.0**-1022, 2.0**-26, "x**3 / 3 is less than a last place")
GELU_IS_HALF = bounded(2.0**-60, 2.0**-1022, 2.0**-54, "x**2 / sqrt(2 pi) is less than half a last place")
#: Smaller powers of two count as this one if they are added to 1.
LOWEST_POWER = bounded(-200, -1000, -110, "the sum and its error are those of 1; its last places are normal numbers")

INVERSE_LN2 = float.fromhex("0x1.71547652b82fep+0")
#: ln 2 in two parts: 42 bits, whose product with an integer of 11 bits is exact, and the rest, rounded.
LN2_HIGH = float.fromhex("0x1.62e42fefa3800p-1")
LN2_LOW = float.fromhex("0x1.ef35793c76730p-45")
EXP = (
    float.fromhex("0x1.0000000000000p-1"),
    float.fromhex("0x1.5555555555555p-3"),
    float.fromhex("0x1.5555555555557p-5"),
    float.fromhex("0x1.1111111111111p-7"),
    float.fromhex("0x1.6c16c16c15a6cp-10"),
    float.fromhex("0x1.a01a01a0196aep-13"),
    float.fromhex("0x1.a01a01a9e80fep-16"),
    float.fromhex("0x1.71de3a5aa6edbp-19"),
    float.fromhex("0x1.27e4d41d6f553p-22"),
    float.fromhex("0x1.ae642c8730352p-26"),
    float.fromhex("0x1.1f7f2000f4cf3p-29"),
    float.fromhex("0x1.61bfa22dd3437p-33"),
)
LOG = (
    float.fromhex("0x1.5555555555555p-1"),
    float.fromhex("0x1.9999999999a38p-2"),
    float.fromhex("0x1.2492492476cccp-2"),
    float.fromhex("0x1.c71c720159177p-3"),
    float.fromhex("0x1.745cf9048dd95p-3"),
    float.fromhex("0x1.3b1c355a8f7a2p-3"),
    float.fromhex("0x1.0fbe95d716020p-3"),
    float.fromhex("0x1.0c039c49989c6p-3"),
)
ERF = (
    float.fromhex("0x1.06eba8214db68p-3"),
    float.fromhex("-0x1.812746b0379b5p-2"),
    float.fromhex("0x1.ce2f21a03d814p-4"),
    float.fromhex("-0x1.b82ce30f2b28fp-6"),
    float.fromhex("0x1.565bcbf8e0365p-8"),
    float.fromhex("-0x1.c02d4f6e4921ap-11"),
    float.fromhex("0x1.f98db34e8872ep-14"),
    float.fromhex("-0x1.f224dfc5409afp-17"),
    float.fromhex("0x1.8b4b60851826bp-20"),
)
ERFC = (
    float.fromhex("-0x1.89bc0fb7ad160p-3"),
    float.fromhex("-0x1.1ea4ab35c9226p-2"),
    float.fromhex("0x1.0ae6329a54436p-3"),
    float.fromhex("0x1.591fa1bd81cdap-8"),
    float.fromhex("-0x1.11262d2b524a6p-7"),
    float.fromhex("-0x1.040a92032a160p-7"),
    float.fromhex("0x1.0105564926ec2p-9"),
    float.fromhex("0x1.0fcc168eb7fe4p-9"),
    float.fromhex("0x1.3f40c5e8b16cbp-12"),
    float.fromhex("-0x1.31558c8276a5ep-11"),
    float.fromhex("-0x1.2b41a04655924p-12"),
    float.fromhex("0x1.e872ab4910a85p-15"),
    float.fromhex("0x1.ebc6b02edfe3cp-14"),
    float.fromhex("0x1.0f1c4d39e4a33p-15"),
    float.fromhex("-0x1.6e9212a9aaf12p-16"),
    float.fromhex("-0x1.5ddc22cca9f26p-16"),
    float.fromhex("-0x1.b826702eab626p-19"),
    float.fromhex("0x1.594c61c333457p-18"),
    float.fromhex("0x1.c9d9a07fe350cp-19"),
    float.fromhex("-0x1.37a535c9ef080p-22"),
    float.fromhex("-0x1.a6a14c9899944p-21"),
)
PHI = (
    float.fromhex("0x1.4d433139f2070p-2"),
    float.fromhex("-0x1.d0ee0946e5b22p-2"),
    float.fromhex("0x1.cf42e69360478p-4"),
    float.fromhex("0x1.68337dcf9406dp-7"),
    float.fromhex("0x1.cc0c22347e3f1p-7"),
    float.fromhex("-0x1.50e27cdd97e24p-7"),
    float.fromhex("-0x1.aa193433cfd26p-9"),
    float.fromhex("-0x1.30b49ea268a51p-11"),
    float.fromhex("0x1.90786feba3023p-10"),
    float.fromhex("0x1.820b4db3c3defp-11"),
    float.fromhex("0x1.789094b0be72dp-15"),
    float.fromhex("-0x1.2809918a22337p-12"),
    float.fromhex("-0x1.758d50eefb998p-13"),
    float.fromhex("-0x1.a112f2ac3d96fp-16"),
    float.fromhex("0x1.b18b097e125f7p-15"),
    float.fromhex("0x1.72ea3a494da5ap-15"),
    float.fromhex("0x1.b7e2010b9748bp-17"),
    float.fromhex("-0x1.cff00d1f23238p-18"),
    float.fromhex("-0x1.4066eccc0ca00p-17"),
    float.fromhex("-0x1.47a86e23e1500p-18"),
    float.fromhex("-0x1.dfe1898dec309p-21"),
    float.fromhex("0x1.48cbdbba15658p-20"),
    float.fromhex("0x1.10e0ffe2b41aep-19"),
    float.fromhex("0x1.2029ddd40f189p-20"),
    float.fromhex("-0x1.c483e0327fe49p-22"),
    float.fromhex("-0x1.5fe8c7e7a88c2p-21"),
    float.fromhex("-0x1.b96446f28a3e8p-24"),
    float.fromhex("0x1.e826cdd05ca19p-24"),
    float.fromhex("0x1.52e8f796cd6d9p-25"),
)
