"""The demands of one node, from those that all nodes have run one after the other."""

from __future__ import annotations

import pytest

import emu
from emu.hardware import DECISION, Demand
from emu.hardware.machine import JOINT_DECISION
from emu.training.time.nodes import before_and_after, of_one, with_whole_errors

WORD = emu.parse("fix16f10")


def demand(layer: str, role: str, operation: str = "matmul", terms: int = 0, results: int = 10) -> Demand:
    return Demand(layer, role, operation, results, terms, 0, ((WORD, 4), (WORD, 5)), WORD)


ACTIVATION, ERROR = demand("fc", "activation", terms=80), demand("fc", "error", terms=60)
PASS, UPDATE = [ACTIVATION, ERROR], demand("fc", "update", "add")


@pytest.mark.parametrize("operation", [DECISION, JOINT_DECISION])
def test_a_pass_ends_with_the_decision_about_the_point_of_its_last_error(operation: str):
    own, other = demand("fc", "error", operation), demand("fc", "gradient", operation)
    assert before_and_after([*PASS, own, UPDATE]) == ([*PASS, own], [UPDATE])
    assert before_and_after([*PASS, own]) == ([*PASS, own], [])
    assert before_and_after([*PASS, other, UPDATE]) == (PASS, [other, UPDATE])


def test_a_gradient_that_an_exchange_brings_comes_after_the_pass():
    written = demand("fc", "gradient", "quantize")
    assert before_and_after([*PASS, written, UPDATE]) == (PASS, [written, UPDATE])
    assert before_and_after([ACTIVATION, UPDATE]) == ([], [ACTIVATION, UPDATE])


def test_parts_of_an_error_are_one_product_until_the_layer_runs_forward_again():
    part, total = demand("fc", "error", terms=30), demand("fc", "error", "add")
    whole = part._replace(multiply_adds=60, operands=((WORD, 8), (WORD, 10)))
    assert with_whole_errors([ACTIVATION, part, part, total] * 2, {"fc"}) == [ACTIVATION, whole] * 2
    assert with_whole_errors([ACTIVATION, part, part, total], {"other"}) == [ACTIVATION, part, part, total]
    # the error of a layer without products is no sum of parts
    assert with_whole_errors([ACTIVATION, total], {"fc"}) == [ACTIVATION, total]


def test_of_equal_demands_of_all_models_one_is_kept_and_of_a_layer_that_varies_the_longest():
    long = ERROR._replace(multiply_adds=90)

    def duration_ps(of: Demand) -> int:
        return of.multiply_adds

    assert of_one([*PASS, *PASS], 2, (), duration_ps) == PASS
    assert of_one([ACTIVATION, ERROR, ACTIVATION, long], 2, {"fc"}, duration_ps) == [ACTIVATION, long]
    # in turns, and one model has run its error again
    again = ERROR._replace(again=True)
    assert of_one([ACTIVATION, ACTIVATION, ERROR, again, ERROR], 2, (), duration_ps) == [ACTIVATION, ERROR, again]
    assert of_one([ACTIVATION, ACTIVATION, ERROR, long], 2, {"fc"}, duration_ps) == [ACTIVATION, long]
