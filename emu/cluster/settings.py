"""`[cluster]`: how many nodes train together, and how their gradients travel.

[cluster]                nodes, workers, units, model_parallel, points; exchange, owners, controllers, bits, ...
                         streaming, chunks: when messages are sent, which changes no bit
                         transport, timeout_s: what moves bytes, which changes no bit either
[cluster.codec]          options of the workers' codec: steps, threshold, levels, ...
[cluster.owner_codec]    options of the owners' codec; without it, and without `owner_bits`, it is the workers'
[cluster.search]         sizes of mini-batches, and how many nodes share them, by measurement
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from emu._config import Items, Table
from emu.cluster.batch_sizes import BatchSizeTable
from emu.cluster.codecs import Codec, Quantiser, codec_of
from emu.cluster.controller import Placement, require_controllers
from emu.cluster.layout import Layout
from emu.cluster.lines import Lines
from emu.cluster.owner_rules import AdaGradRule, MomentumRule, OwnerRule, Plain
from emu.errors import ConfigError


class CodecOptions(Table):
    """Options of a codec; defaults are those of `emu.cluster.codecs.Quantiser`.

    Attributes:
        steps: any number of equal steps, 2..65536, instead of `bits` or `owner_bits`, which then change nothing.
        threshold: threshold of one bit: "zero", "mean", "previous_mean".
        threshold_lag: age of the "previous_mean", counted in mini-batches.
        levels: "means", "ends" (one bit), "middles" (more).
        deviations: reach of equal steps to both sides of the mean.
        range: both ends of the range of equal steps, in place of deviations.
        lag: age of the levels, counted in mini-batches that computed levels.
        smoothing: smoothing of levels: "none", "exponential", "window".
        decay: share of the old levels that "exponential" keeps.
        window: number of mini-batches that computed levels over which "window" takes the mean.
        interval: mini-batches for which levels are used.
        at_random: whether levels are instead computed again with a probability of 1 / `interval` each mini-batch.
        outliers: deviations from the mean beyond which values do not decide levels.
        left_out: share of values, drawn at random, that do not decide levels.
        residual_lag: age of the residual that is added to a gradient, counted in mini-batches.
    """

    steps: int | None = None
    threshold: Literal["zero", "mean", "previous_mean"] | None = None
    levels: Literal["means", "ends", "middles"] | None = None
    deviations: float | None = None
    lag: int | None = None
    smoothing: Literal["none", "exponential", "window"] | None = None
    decay: float | None = None
    window: int | None = None
    interval: int | None = None
    at_random: bool | None = None
    outliers: float | None = None
    left_out: float | None = None
    # at their default, these keys are in no dump: neither `run.json` nor the hash of a run contains them
    threshold_lag: int | None = Field(default=None, exclude_if=lambda lag: lag is None)
    residual_lag: int | None = Field(default=None, exclude_if=lambda lag: lag is None)
    # not strict: TOML has arrays, which are lists, and integers
    range: Annotated[tuple[float, float], Field(strict=False)] | None = Field(
        default=None, exclude_if=lambda ends: ends is None
    )

    def codec(self, bits: int, backend: str = "auto") -> Codec:
        """Return the codec of this number of bits with these options, computed by a backend.

        Raises:
            ConfigError: an option does not fit.
        """
        # only what is given: `Quantiser` has the defaults
        options: dict[str, Any] = self.model_dump(exclude_none=True)
        steps = options.pop("steps", None)
        if steps is None:
            return codec_of(bits, backend=backend, **options)
        return Quantiser(steps, backend=backend, **options)


class ClusterTable(Table):
    """`[cluster]` of a recipe.

    Attributes:
        nodes: number K of nodes; each computes the gradients of its part of each batch.
        workers: nodes that compute gradients, if others only add up; empty is all.
        units: processing units of a node; each computes a part of the node's part.
        model_parallel: devices that share a model; with `nodes` 4 and 2 of them, 4x2.
        model_split: what each of these devices has: "stripes" of every layer, or whole "layers" each; the largest layer
            has a device to itself.
        points: points of dynamic fixed point: "joint", from the counts of all nodes, or "own": each node has its own
            points of activations and errors.
        exchange: "stripes" of gradients to owners, or whole layers to "controllers", which return parameters.
        controllers: nodes to which layers are sent.
        placement: "fixed" takes controllers in turn; "least_loaded" the one with the fewest bytes so far; "least_busy"
            the one whose layers so far take it the least simulated time.
        owners: node of each stripe; if empty, each node owns one.
        lines: numbers that share levels: "outputs", all weights that lead to one output; "inputs", all that leave one
            input.
        bits: bits of a gradient on its way to its owner: 1..16, or 32 for gradients as they are.
        owner_bits: bits of a sum on its way back; None is `bits`.
        codec: options of the workers' codec.
        owner_codec: options of the owners'; None is the workers'.
        rule: what owners do to sums: "none", "momentum" with `momentum`, "adagrad" with `eps`.
        momentum: share of the smoothed sum that stays.
        eps: added to the root of squares.
        quantise_own: whether an owner quantises its own part of its stripe as well, or adds it as it is.
        error_feedback: whether what a message does not express is added to the next gradient, or lost.
        double_buffering: whether a gradient is applied one step late, so that its exchange runs during the next
            step's computation.
        warm_start: steps at the beginning that one node takes alone, with the whole batch and nothing quantised.
        streaming: whether a layer's gradients are exchanged as soon as they are complete, while the layers before it
            still compute.
        chunks: parts into which each message is cut, so that one is copied to a host while another is sent.
        search: sizes of mini-batches by measurement; None keeps `training.batch`.
        transport: what moves bytes: "simulated" in one process, "mpi", "nccl"; "auto" is MPI if its launcher has
            started several processes. No bit depends on it.
        timeout_s: seconds within which each process must answer. No bit depends on it.
    """

    nodes: int = Field(ge=1)
    workers: Items[int] = ()
    units: int = Field(default=1, ge=1)
    model_parallel: int = Field(default=1, ge=1)
    model_split: Literal["stripes", "layers"] = Field(default="stripes", exclude_if=lambda split: split == "stripes")
    points: Literal["joint", "own"] = "joint"
    exchange: Literal["stripes", "controllers"] = "stripes"
    controllers: Items[int] = (0,)
    placement: Placement = "fixed"
    owners: Items[int] = ()
    lines: Lines = "outputs"
    bits: int = 1
    owner_bits: int | None = None
    codec: CodecOptions = CodecOptions()
    owner_codec: CodecOptions | None = None
    rule: Literal["none", "momentum", "adagrad"] = "none"
    momentum: float = 0.9
    eps: float = 1e-8
    quantise_own: bool = Field(default=True, exclude_if=lambda quantises: quantises)
    error_feedback: bool = True
    double_buffering: bool = False
    warm_start: int = Field(default=0, ge=0)
    streaming: bool = Field(default=False, exclude_if=lambda streams: not streams)
    chunks: int = Field(default=1, ge=1, le=4096, exclude_if=lambda chunks: chunks == 1)
    search: BatchSizeTable | None = Field(default=None, exclude_if=lambda table: table is None)
    transport: Literal["auto", "simulated", "mpi", "nccl"] = "auto"
    timeout_s: float = Field(default=60.0, gt=0)

    @model_validator(mode="after")
    def _fits(self) -> ClusterTable:
        # made here for their errors alone: a recipe is refused when it is read, not when it runs
        self.layout()
        self.codecs()
        self.owner_rule()
        require_controllers(self.controllers, self.nodes)
        self._require_keys_of_exchange()
        for name in ("codec", "owner_codec"):
            options: CodecOptions | None = getattr(self, name)
            if not self.error_feedback and options is not None and options.residual_lag is not None:
                raise ConfigError(
                    f"`{name}.residual_lag` of [cluster] must be left out if `error_feedback` is false, which leaves "
                    f"no residual, got {options.residual_lag}; remove one of the two"
                )
        return self

    @property
    def parts(self) -> int:
        """How many parts a mini-batch is divided into: one for each processing unit of each worker."""
        return len(self.layout().workers) * self.units

    def _require_keys_of_exchange(self) -> None:
        """Check that no key of the other exchange is given."""
        stripes = ("owners", "owner_bits", "owner_codec", "rule", "momentum", "eps", "quantise_own")
        others = stripes if self.exchange == "controllers" else ("controllers", "placement")
        for key in others:
            # a key that is given as its default cannot be told from one that is left out, and changes nothing
            if getattr(self, key) != ClusterTable.model_fields[key].default:
                raise ConfigError(
                    f"`{key}` of [cluster] must be left out if `exchange` is {self.exchange!r}, got "
                    f"{getattr(self, key)!r}; remove it, or choose the other exchange"
                )

    def layout(self) -> Layout:
        """Return the roles of nodes."""
        return Layout(self.nodes, self.workers, self.owners, self.quantise_own)

    def codecs(self, backend: str = "auto") -> tuple[Codec, Codec]:
        """Return the codecs of workers and of owners, computed by a backend."""
        if self.owner_bits is not None and self.owner_codec is None and self.codec != CodecOptions():
            raise ConfigError(
                "`owner_codec` must be given if both `owner_bits` and options of `codec` are: the options of `codec` "
                "may not fit other bits; write a [cluster.owner_codec]"
            )
        worker = self.codec.codec(self.bits, backend)
        if self.owner_bits is None and self.owner_codec is None:
            return worker, worker
        options = self.owner_codec if self.owner_codec is not None else CodecOptions()
        # with a [cluster.owner_codec] alone, owners have the workers' bits
        return worker, options.codec(self.bits if self.owner_bits is None else self.owner_bits, backend)

    def owner_rule(self) -> OwnerRule:
        """Return what owners do to sums."""
        if self.rule == "momentum":
            return MomentumRule(self.momentum)
        return AdaGradRule(self.eps) if self.rule == "adagrad" else Plain()
