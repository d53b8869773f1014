"""The smallest input for which a circuit's output is 1, or the proof that there is none.

Inputs are searched in order, in blocks that share their highest bits. A block whose every input can be looked at in a
few seconds is looked at; a larger one is given to the SAT solver for a while. If that does not end, all inputs of the
block are looked at if the time is enough for it, else the block is halved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from emu.prove import yosys
from emu.prove.circuit import Circuit, with_prefix
from emu.prove.exhaust import Blocks, Deadline, OutOfTime
from emu.prove.sat import Undecided, model_of

#: Seconds that looking at all inputs may take without asking the solver first, and least seconds that it is given.
LOOKED_AT_S, LEAST_SOLVER_S = 5.0, 3.0
#: What part of the time that is left looking at all inputs may take by estimate.
LOOKED_AT_SHARE = 0.8
#: Bits up to which all inputs of a block may be looked at.
MOST_LOOKED_AT = 48


@dataclass
class Search:
    """A search and what it has done.

    Attributes:
        deadline: when it must end.
        leading: inputs that make the circuit simple once they are known.
        wrong: the smallest input known so far for which the output is 1.
        solved: blocks that the solver decided.
        evaluated: inputs that were evaluated, one by one.
        gave_up: blocks that the solver did not decide in time.
    """

    deadline: Deadline
    leading: Sequence[int] = ()
    wrong: int | None = None
    solved: int = 0
    evaluated: int = 0
    gave_up: int = 0

    def first(self, circuit: Circuit, prefix: int = 0) -> int | None:
        """Return the smallest input of a block for which `bad` is 1, None if there is none.

        Args:
            circuit: of the block, whose output is `bad`.
            prefix: the bits that all inputs of the block share, its highest ones.

        Raises:
            OutOfTime: with the first input of which it is not known.
        """
        [bad] = circuit.outputs["bad"]
        start = prefix << circuit.n_inputs
        # the prefix alone proves the block
        if bad == 0:
            return None
        # inputs of a half keep their numbers, for the highest ones are cut off: `leading` stays valid
        blocks = Blocks(circuit, bad, self.leading) if circuit.n_inputs <= MOST_LOOKED_AT else None
        evaluating_s = self._evaluating_s(blocks, circuit, start)
        if blocks is not None and evaluating_s <= LOOKED_AT_S:
            return self._evaluate(blocks, start)
        # with a wrong input known in the block, the solver could only find another: the smallest must be sought
        if not self._has_wrong_in(start, circuit.n_inputs):
            decided, model = self._solve(circuit, bad, evaluating_s)
            if decided and model is None:
                return None
            if model is not None:
                self.wrong = start + model
                evaluating_s = self._evaluating_s(blocks, circuit, start)
        if self.deadline.left_s <= 0:
            raise OutOfTime(start)
        if blocks is not None and self._can_evaluate(evaluating_s):
            return self._evaluate(blocks, start)
        return self._halves(circuit, prefix)

    def _evaluating_s(self, blocks: Blocks | None, circuit: Circuit, start: int) -> float:
        """Return about how long all inputs of a block take, up to one that is known to be wrong."""
        if blocks is None:
            return math.inf
        if not self._has_wrong_in(start, circuit.n_inputs):
            return blocks.seconds()
        assert self.wrong is not None
        # an estimate: blocks come in the order of their smallest inputs, not one input after the other
        return blocks.seconds() * (self.wrong - start + 1) / (1 << circuit.n_inputs)

    def _can_evaluate(self, evaluating_s: float) -> bool:
        return evaluating_s <= LOOKED_AT_SHARE * self.deadline.left_s

    def _has_wrong_in(self, start: int, bits: int) -> bool:
        return self.wrong is not None and start <= self.wrong < start + (1 << bits)

    def _evaluate(self, blocks: Blocks, start: int) -> int | None:
        try:
            at = blocks.first(self.deadline)
        except OutOfTime as end:
            self.evaluated += end.right
            if end.wrong is not None:
                self.wrong = start + end.wrong
            # all inputs before this block were proved, since blocks are searched in order
            raise OutOfTime(start, end.right) from None
        self.evaluated += blocks.inputs if at is None else at + 1
        return None if at is None else start + at

    def _solve(self, circuit: Circuit, bad: int, evaluating_s: float) -> tuple[bool, int | None]:
        """Return whether the solver ended in its share of the time, and a model if there is one.

        Its share is a third of what is left, or less if all inputs can be looked at: a quarter of that.
        """
        share = self.deadline.left_s / 3
        if self._can_evaluate(evaluating_s):
            share = min(share, evaluating_s / 4)
        share = max(share, min(LEAST_SOLVER_S, self.deadline.left_s), 0.1)
        try:
            model = model_of(circuit, bad, share)
        except Undecided:
            self.gave_up += 1
            return False, None
        self.solved += 1
        return True, model

    def _halves(self, circuit: Circuit, prefix: int) -> int | None:
        # the lower half first: the first wrong input in it is the smallest
        for bit in (0, 1):
            half = with_prefix(circuit, bit, 1)
            wrong = self.first(half, prefix << 1 | bit)
            if wrong is not None:
                return wrong
        return None

    def how(self) -> str:
        """Return what it has done, in words."""
        parts = list[str]()
        if self.solved:
            parts.append(f"{self.solved} block{'s' * (self.solved > 1)} by SAT")
        if self.evaluated:
            parts.append(f"{self.evaluated:,} inputs each by evaluation")
        if self.gave_up:
            parts.append(f"{self.gave_up} block{'s' * (self.gave_up > 1)} that SAT did not decide")
        return f"{yosys.version()}, " + (", ".join(parts) or "structure alone")
