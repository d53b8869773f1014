"""The definition as a way to compute products: any product, by the reference's sums."""

from __future__ import annotations

from emu.backends.interface import Outcome, StageCode, Write
from emu.backends.product import Given, Product, ProductCode, SparseProduct, Way
from emu.backends.reference import arithmetic, products, sparse
from emu.backends.reference.stage import finish


class LastWay(Way[Given]):
    """A way that takes every product."""

    reads_alignment = True
    speed = 0.002

    def declines(self, product: ProductCode, stage: StageCode) -> None:
        """Return None: nothing is declined."""


class Definition(LastWay[Product]):
    """Products of matrices."""

    def compute(self, product: Product, write: Write) -> Outcome:
        """Write the product."""
        code = product.code
        a, b = product.stacks()
        touched = None
        if code.mac.product is None and code.mac.accumulator is None:
            sums = products.exact_sums(a, b, product.addend, code.formats)
        else:
            sums, touched = products.ordered_sums(a, b, product.addend, code, write.random, product.alignment)
        # the register observes the undivided sum
        quotients = arithmetic.divided_by(sums, code.divisor, write.stage)
        return finish(quotients, write, touched, observed=sums)


class SparseDefinition(LastWay[SparseProduct]):
    """Products of sparse matrices: each result adds its entries in storage order."""

    def compute(self, product: SparseProduct, write: Write) -> Outcome:
        """Write the dot products of every result's entries."""
        contents, touched = sparse.sums(product, write.random)
        return finish(contents, write, touched)


DEFINITION, SPARSE_DEFINITION = Definition(), SparseDefinition()
