"""Which tests judge a mutant of a file: its own, fastest first. The first that fails ends the run."""

from __future__ import annotations

from dataclasses import dataclass

#: As if Numba were not installed: every operation runs the definition, and nothing compiles.
HIDDEN = "hidden"
#: Kernels for the processor at hand; plain loops, by `EMU_CPU`.
NATIVE, GENERIC = "native", "generic"
#: What pytest selects by name where Numba is hidden: no comparisons with it, no examples of its plans.
DEFINITION = "not numba and not the_backends and not path.explain"


@dataclass(frozen=True)
class OwnTests:
    """A selection of tests.

    Attributes:
        paths: files and tests, in the order they run.
        kernels: how they run, one time after the other: HIDDEN, NATIVE or GENERIC.
        with_slow: whether tests marked slow judge as well.
    """

    paths: tuple[str, ...]
    kernels: tuple[str, ...] = (HIDDEN,)
    with_slow: bool = False


_SMALL = "tests/unit/test_small_facts.py"
_FORMATS = (
    "emu/formats",
    _SMALL,
    "tests/spec/test_formats_spec.py",
    "tests/spec/test_format_limits_spec.py",
    "tests/messages/test_configuration_messages.py",
    "tests/property/test_encoding_laws.py",
    "tests/exhaustive/test_round_trips.py",
    "tests/spec/test_overflow_spec.py",
)
_NUMBERS = "tests/engine/test_what_counts_as_a_number.py"
_WIDE_WORDS = "tests/backends/test_wide_words.py"
_ONE_NAN = "tests/backends/test_one_nan.py"
_INFINITE_SUMS = "tests/backends/test_infinite_sums.py"
_DATAPATH = (
    "emu/datapath",
    _SMALL,
    "tests/spec/test_datapath_descriptions_spec.py",
    "tests/unit/test_argument_errors.py",
    "tests/messages/test_configuration_messages.py",
)
_RANDOM_BITS = ("tests/spec/test_random_bits_spec.py", "tests/spec/test_lfsr_spec.py")
_REGISTERS = ("tests/spec/test_register_spec.py", "tests/property/test_register_laws.py")
_STAGE = (
    _SMALL,
    "tests/spec/test_rounding_spec.py",
    "tests/spec/test_overflow_spec.py",
    "tests/spec/test_output_stage_spec.py",
    *_REGISTERS,
    "tests/property/test_rounding_laws.py",
    "tests/golden/test_golden_vectors.py",
)
_ENGINE = (
    _SMALL,
    "emu/engine",
    "tests/unit/test_argument_errors.py",
    "tests/engine/test_public_functions.py",
    "tests/engine/test_matmul_shapes.py",
    "tests/messages/test_configuration_messages.py",
    "tests/engine/test_unit.py",
    "tests/engine/test_lost_nan.py",
    "tests/engine/test_quantize_to_integers.py",
)
_ELEMENTWISE = (
    _SMALL,
    "tests/spec/test_binary16_spec.py",
    "tests/spec/test_output_stage_spec.py",
    "tests/engine/test_public_functions.py",
    "tests/property/test_rounding_laws.py",
    "tests/golden/test_golden_vectors.py",
)
_SUMS = (
    _SMALL,
    "tests/spec/test_accumulator_spec.py",
    "tests/engine/test_matmul_shapes.py",
    "tests/backends/test_sums_divided.py",
    "tests/backends/test_reference_shortcuts.py",
    "tests/backends/test_mac_orders.py",
)
_PENDING = "tests/unit/test_pending_counts.py"
_PLANNER = "tests/engine/test_planner.py"
_BLOCKS = (
    "tests/spec/test_matrix_units_spec.py",
    "tests/unit/test_matrix_unit_presets.py",
    "tests/hardware/test_matrix_units_recorded.py",
    "tests/oracle/test_matrix_units_oracle.py",
)
_KERNELS = (
    _SMALL,
    "tests/spec/test_rounding_spec.py",
    "tests/spec/test_output_stage_spec.py",
    "tests/spec/test_register_spec.py",
    "tests/spec/test_random_bits_spec.py",
    "tests/spec/test_binary16_spec.py",
    "tests/engine/test_matmul_shapes.py",
    "tests/backends/test_kernel_table_reading.py",
    "tests/backends/test_kernel_table_products.py",
    "tests/backends/test_backends_layouts.py",
    "tests/backends/test_sums_divided.py",
    "tests/backends/test_mac_orders.py",
    "tests/backends/test_mac_random.py",
    "tests/backends/test_mac_wide.py",
    "tests/backends/test_mac_threads.py",
    "tests/backends/test_backends_blocks.py",
    "tests/backends/test_backends_products.py",
    "tests/backends/test_backends_stage.py",
    _WIDE_WORDS,
    _ONE_NAN,
)
_BATCHED_PRODUCTS = ("tests/backends/test_batched_products.py",)
_TRANSPOSED_PRODUCTS = ("tests/backends/test_transposed_products.py",)
_IN_TILES = ("tests/backends/test_kernel_table_products.py", *_BATCHED_PRODUCTS, *_TRANSPOSED_PRODUCTS)
_BLOCKS_IN_TILES = ("tests/backends/test_blocks_in_tiles.py", "tests/backends/test_scaled_products.py")
_PAIRED_PRODUCTS = ("tests/backends/test_paired_products.py",)
_SMALL_WRITES = ("tests/backends/test_small_writes.py",)
_FUNCTIONS = ("tests/backends/test_kernel_table_functions.py", "tests/unit/test_functions_wide.py")
_EXCHANGE = ("tests/cluster/test_layout.py", "tests/cluster/test_touched_rows.py", "tests/cluster/test_exchange.py")
_CODECS = ("emu/cluster/codecs", "tests/cluster/test_codecs.py")
_CONTROLLER = ("tests/cluster/test_controller.py",)
_CLIPPING = ("emu/cluster/clipping", "tests/cluster/test_clipping.py")
_STEPS = (
    "emu/cluster/timing",
    "tests/cluster/test_cycles.py",
    "tests/cluster/test_layers_on_devices.py",
    "tests/cluster/test_rows_in_time.py",
    "tests/cluster/test_controllers_in_time.py",
    "tests/cluster/test_step_time.py",
    "tests/cluster/test_published_times.py",
    "tests/cluster/test_joint_points_in_time.py",
    "tests/cluster/test_least_busy.py",
    "tests/cluster/test_parallelism.py",
    "tests/cluster/test_simulated_training.py",
    "tests/cluster/test_limits.py",
)
_SPARSE = (
    "emu/sparse",
    "tests/sparse/test_systems_e.py",
    "tests/sparse/test_scipy.py",
    "tests/messages/test_sparse_messages.py",
    "tests/sparse/test_rows_and_entries.py",
    "tests/sparse/test_sparse_backends.py::test_each_result_is_the_dense_product_of_its_entries_in_storage_order_e2",
)
_SEARCH_FILE = ("emu/search", "tests/search/test_search_file.py", "tests/search/test_search_metrics.py")
_SHAPES = "tests/precision/test_shapes.py"
_QUANTISED = ("tests/interop/test_onnx_quantised.py", "tests/interop/test_qonnx.py")
_TFLITE = ("tests/interop/test_tflite.py", "tests/interop/test_tflite_refusals.py")
_PRECISION = (
    "emu/precision",
    "tests/precision/test_datapath_runner.py",
    "tests/precision/test_backward_unit.py",
    "tests/precision/test_euclidean_loss.py",
    "tests/precision/test_loss_scaling.py",
    "tests/precision/test_profile.py",
    "tests/precision/test_dynamic_point.py",
    _SHAPES,
)
_BARS = ("emu/jobs/bars.py", "tests/jobs/test_bars.py")
_JOBS = ("tests/jobs/test_places_and_claims.py", "tests/jobs/test_run_cache.py")
_COSTS = ("emu/hardware/cost_table.py", "emu/training/cost.py", "emu/hardware/energy.py")
_ENERGY = (*_COSTS, "tests/hardware/test_cost_table.py", "tests/training/test_cost.py")
_SCALED = ("tests/spec/test_scaled_values_spec.py", "tests/oracle/test_scaled_oracle.py")
_INTEGERS = ("tests/spec/test_scaled_units_spec.py", "tests/oracle/test_integers_oracle.py")
_CASTS = ("tests/precision/test_operand_casts.py", "tests/precision/test_delayed_scales.py")
_REQUANTISERS = ("tests/unit/test_vector_requantisers.py",)
_VECTOR_BLOCKS = (
    "tests/unit/test_vector_blocks.py",
    "tests/unit/test_vector_block_causes.py",
    "tests/messages/test_block_vectors.py",
)
_CHECKPOINTS = (
    "tests/oracle/test_checkpoints_oracle.py",
    "tests/spec/test_checkpoints_spec.py",
    "tests/messages/test_checkpoint_messages.py",
)
_SCALED_PRODUCTS = ("tests/spec/test_scaled_products_spec.py", "tests/oracle/test_scaled_products_oracle.py")
_VECTORS = (
    "emu/testing/vectors",
    "tests/unit/test_vectors.py",
    "tests/unit/test_vector_conventions.py",
    "tests/unit/test_vector_steps.py",
    "tests/unit/test_vector_cells.py",
    "tests/unit/test_vectors_that_tell.py",
    "tests/unit/test_dump_check.py",
    "tests/unit/test_dump_formats.py",
    "tests/unit/test_vectors_command.py",
    "tests/unit/test_alignment.py",
    "tests/unit/test_vector_causes.py",
)

#: Where a file's mutants are judged; the longest name that fits.
OWN_TESTS: dict[str, OwnTests] = {
    "emu/formats/": OwnTests(_FORMATS),
    "emu/formats/integers.py": OwnTests(("tests/unit/test_integer_arguments.py", *_FORMATS)),
    "emu/formats/notations.py": OwnTests(
        ("tests/messages/test_notation_messages.py", "tests/spec/test_notations_spec.py", *_FORMATS)
    ),
    "emu/formats/numbers.py": OwnTests((_NUMBERS, *_FORMATS)),
    "emu/formats/packing.py": OwnTests(("emu/formats/packing.py", *_SCALED[:1])),
    "emu/formats/scale_rules.py": OwnTests((*_SCALED, *_INTEGERS)),
    "emu/formats/scaled.py": OwnTests(("emu/formats/scaled.py", *_SCALED[:1], *_SCALED_PRODUCTS[:1])),
    "emu/formats/scaled_value.py": OwnTests(("emu/formats/scaled_value.py", *_SCALED[:1])),
    "emu/formats/steps.py": OwnTests(_SCALED),
    "emu/formats/tiles.py": OwnTests((*_SCALED[:1], *_SCALED_PRODUCTS[:1])),
    "emu/checkpoints/": OwnTests(_CHECKPOINTS),
    "emu/datapath/scale_counts.py": OwnTests(("emu/datapath/scale_counts.py", *_SCALED[:1])),
    "emu/datapath/cast.py": OwnTests(("emu/datapath/cast.py", *_CASTS)),
    "emu/datapath/requantiser.py": OwnTests(("emu/datapath/requantiser.py", *_INTEGERS)),
    "emu/datapath/": OwnTests((*_DATAPATH, *_RANDOM_BITS, *_STAGE)),
    "emu/datapath/format_facts.py": OwnTests(
        ("emu/datapath/format_facts.py", "tests/messages/test_listings.py", "tests/report/test_report_sentences.py")
    ),
    "emu/datapath/pending.py": OwnTests((_PENDING,)),
    "emu/datapath/flags.py": OwnTests((_PENDING, *_DATAPATH, *_STAGE)),
    "emu/datapath/registers.py": OwnTests((_PENDING, *_DATAPATH[:3], *_REGISTERS)),
    "emu/datapath/mac.py": OwnTests((*_DATAPATH, *_SUMS, *_BLOCKS, _PLANNER), kernels=(NATIVE,)),
    "emu/datapath/presets.py": OwnTests((*_DATAPATH, *_BLOCKS)),
    "emu/datapath/lfsr.py": OwnTests(("emu/datapath/lfsr.py", *_RANDOM_BITS)),
    "emu/datapath/random.py": OwnTests((*_DATAPATH[:3], *_RANDOM_BITS)),
    "emu/datapath/order.py": OwnTests((*_DATAPATH, *_SUMS, *_BLOCKS)),
    "emu/engine/": OwnTests((*_ENGINE, *_STAGE)),
    "emu/engine/operands.py": OwnTests((_NUMBERS, *_ENGINE, _ONE_NAN, "tests/cuda/test_device_operands.py", *_STAGE)),
    "emu/engine/casts.py": OwnTests(_CASTS),
    "emu/engine/advice.py": OwnTests(("tests/engine/test_advice.py",)),
    "emu/engine/small.py": OwnTests((*_SMALL_WRITES, "tests/precision/test_repeated_operations.py"), kernels=(NATIVE,)),
    "emu/engine/integer_products.py": OwnTests(_INTEGERS, kernels=(HIDDEN, NATIVE)),
    "emu/engine/requantise.py": OwnTests(("emu/engine/requantise.py", *_INTEGERS)),
    "emu/engine/scaled_output.py": OwnTests(_INTEGERS),
    "emu/engine/promotion.py": OwnTests(_SCALED_PRODUCTS[:1], kernels=(NATIVE,)),
    "emu/engine/scaled.py": OwnTests(_SCALED, kernels=(NATIVE,)),
    "emu/engine/scaled_products.py": OwnTests(_SCALED_PRODUCTS, kernels=(NATIVE,)),
    "emu/engine/values.py": OwnTests((*_SCALED[:1], *_ENGINE)),
    "emu/engine/sliding.py": OwnTests(
        (
            "tests/spec/test_convolution_spec.py",
            "tests/grad/test_gradients.py",
            "tests/unit/test_integer_arguments.py",
            _SMALL,
            "tests/interop/test_onnx_graphs.py",
        )
    ),
    "emu/operations/choices.py": OwnTests(("tests/grad/test_gradients.py", "tests/precision/test_shapes.py")),
    "emu/autodiff/": OwnTests(("tests/grad/test_gradients.py", "emu/autodiff")),
    "emu/autodiff/moves.py": OwnTests(("tests/grad/test_gradients.py",)),
    "emu/autodiff/pooling.py": OwnTests(("tests/grad/test_gradients.py",)),
    "emu/autodiff/choice_rules.py": OwnTests(("tests/grad/test_gradients.py",)),
    "emu/interop/": OwnTests(
        (
            "tests/interop/test_onnx_graphs.py",
            "tests/interop/test_onnx_refusals.py",
            "tests/interop/test_evaluation.py",
            "tests/interop/test_calibration.py",
        )
    ),
    "emu/interop/tflite/": OwnTests(_TFLITE),
    "emu/interop/against.py": OwnTests(("tests/interop/test_against.py",)),
    "emu/interop/images.py": OwnTests(("tests/interop/test_evaluation.py",)),
    "emu/interop/onnx/operators/elements.py": OwnTests(_QUANTISED),
    "emu/interop/onnx/operators/integers.py": OwnTests(_QUANTISED),
    "emu/interop/onnx/operators/integer_products.py": OwnTests(_QUANTISED),
    "emu/interop/onnx/operators/qonnx.py": OwnTests(_QUANTISED),
    "emu/interop/onnx/operators/attention.py": OwnTests(("tests/interop/test_attention.py",)),
    "emu/interop/onnx/writing.py": OwnTests(_QUANTISED),
    "emu/operations/integers.py": OwnTests((*_QUANTISED, _SHAPES)),
    "emu/datapath/affine.py": OwnTests((*_QUANTISED, _SHAPES)),
    "emu/operations/reference_integers.py": OwnTests((*_TFLITE, _SHAPES)),
    "emu/operations/fixed_point.py": OwnTests(("tests/unit/test_fixed_point.py", *_TFLITE)),
    "emu/interop/states.py": OwnTests(("tests/interop/test_state_dicts.py",)),
    "emu/interop/torch/": OwnTests(
        (
            "tests/interop/test_torch_layers.py",
            "tests/interop/test_torch_training.py",
            "tests/interop/test_torch_convert.py",
        )
    ),
    "emu/nn/wired.py": OwnTests(("tests/interop/test_onnx_graphs.py", "tests/interop/test_evaluation.py")),
    "emu/engine/convolution.py": OwnTests(
        (
            "tests/spec/test_convolution_spec.py",
            "tests/backends/test_kernel_table_reading.py",
            *_RANDOM_BITS,
            *_ENGINE,
            _PLANNER,
            "tests/precision/test_datapath_runner.py",
        ),
        kernels=(NATIVE,),
    ),
    "emu/engine/products.py": OwnTests(
        (*_ENGINE, "tests/precision/test_profile.py", *_RANDOM_BITS, *_SUMS, _PLANNER, _SMALL), kernels=(NATIVE,)
    ),
    "emu/engine/reductions.py": OwnTests(
        ("tests/engine/test_sums_of_every_format.py", *_ENGINE, *_RANDOM_BITS, *_SUMS, _PLANNER), kernels=(NATIVE,)
    ),
    "emu/engine/planner.py": OwnTests((*_ENGINE, _PLANNER), kernels=(NATIVE,)),
    "emu/engine/path.py": OwnTests((*_ENGINE, _PLANNER), kernels=(NATIVE,)),
    "emu/engine/delivery.py": OwnTests((*_ENGINE, *_STAGE, "tests/cuda/test_counts_on_the_device.py")),
    "emu/engine/functions.py": OwnTests(
        (
            "emu/engine",
            "tests/unit/test_argument_errors.py",
            "tests/engine/test_public_functions.py",
            "tests/oracle/test_functions_oracle.py",
            _SMALL,
        )
    ),
    "emu/engine/description.py": OwnTests((*_ENGINE, *_RANDOM_BITS, *_STAGE)),
    "emu/engine/selection.py": OwnTests(("tests/spec/test_selection_spec.py", *_ENGINE[:5])),
    "emu/engine/sources.py": OwnTests((*_RANDOM_BITS, *_ENGINE)),
    "emu/backends/interface.py": OwnTests((*_RANDOM_BITS, *_STAGE, *_SUMS, *_BLOCKS)),
    "emu/backends/proofs.py": OwnTests((_PLANNER, *_SUMS, *_KERNELS), kernels=(NATIVE,)),
    "emu/backends/reference/": OwnTests((*_STAGE, *_SUMS, _ONE_NAN)),
    "emu/backends/reference/accumulators.py": OwnTests((*_SUMS, *_BLOCKS, _INFINITE_SUMS, _WIDE_WORDS)),
    "emu/backends/reference/arithmetic.py": OwnTests((*_ELEMENTWISE, *_SUMS)),
    "emu/backends/reference/blocks.py": OwnTests(_BLOCKS),
    "emu/backends/reference/products.py": OwnTests((*_SUMS, *_BLOCKS, _INFINITE_SUMS, _WIDE_WORDS)),
    "emu/backends/reference/raws.py": OwnTests((_WIDE_WORDS, *_STAGE, *_SUMS)),
    "emu/backends/reference/rounding.py": OwnTests((*_STAGE, *_RANDOM_BITS, _SMALL)),
    "emu/backends/reference/scaled.py": OwnTests((*_SCALED, *_INTEGERS)),
    "emu/backends/reference/stage.py": OwnTests(_STAGE),
    "emu/backends/reference/table.py": OwnTests(("tests/spec/test_selection_spec.py", *_ENGINE[3:5], *_STAGE)),
    "emu/backends/reference/philox.py": OwnTests(_RANDOM_BITS),
    "emu/backends/reference/lfsr.py": OwnTests(_RANDOM_BITS),
    "emu/backends/numba/": OwnTests(_KERNELS, kernels=(GENERIC, NATIVE)),
    "emu/backends/numba/selection.py": OwnTests(
        (
            "tests/spec/test_selection_spec.py",
            "tests/engine/test_public_functions.py",
            "tests/backends/test_kernel_table_reading.py",
        ),
        kernels=(NATIVE,),
    ),
    "emu/backends/numba/centred.py": OwnTests(_BLOCKS_IN_TILES, kernels=(NATIVE,)),
    "emu/backends/numba/members.py": OwnTests(("tests/backends/test_members.py",), kernels=(NATIVE,)),
    "emu/backends/numba/vector/batched_products.py": OwnTests(_BATCHED_PRODUCTS, kernels=(NATIVE,)),
    "emu/backends/numba/vector/gathered_pairs.py": OwnTests(_PAIRED_PRODUCTS, kernels=(NATIVE,)),
    "emu/backends/numba/vector/paired_products.py": OwnTests(_PAIRED_PRODUCTS, kernels=(NATIVE,)),
    "emu/backends/numba/vector/pairing.py": OwnTests(_PAIRED_PRODUCTS, kernels=(NATIVE,)),
    "emu/backends/numba/small.py": OwnTests(_SMALL_WRITES, kernels=(NATIVE,)),
    "emu/backends/numba/small_products.py": OwnTests(("tests/backends/test_small_products.py",), kernels=(NATIVE,)),
    "emu/backends/numba/vector/transposed_products.py": OwnTests(_TRANSPOSED_PRODUCTS, kernels=(NATIVE,)),
    "emu/backends/numba/vector/transposing.py": OwnTests((*_BATCHED_PRODUCTS, *_PAIRED_PRODUCTS), kernels=(NATIVE,)),
    "emu/backends/numba/vector/block_operands.py": OwnTests(_BLOCKS_IN_TILES, kernels=(NATIVE,)),
    "emu/backends/numba/vector/block_tiles.py": OwnTests(_BLOCKS_IN_TILES, kernels=(NATIVE,)),
    "emu/backends/numba/vector/ordered_products.py": OwnTests(_IN_TILES, kernels=(NATIVE,)),
    "emu/backends/numba/vector/ordered_tiles.py": OwnTests(_IN_TILES, kernels=(NATIVE,)),
    "emu/backends/numba/ways/in_tiles.py": OwnTests(_IN_TILES, kernels=(NATIVE,)),
    "emu/backends/numba/ways/pairwise_sums.py": OwnTests(
        ("tests/backends/test_pairwise_sums.py",), kernels=(GENERIC, NATIVE)
    ),
    "emu/backends/numba/ways/blocks_in_tiles.py": OwnTests(_BLOCKS_IN_TILES, kernels=(NATIVE,)),
    "emu/backends/numba/ways/halves.py": OwnTests(("tests/backends/test_words_in_halves.py",), kernels=(NATIVE,)),
    "emu/backends/numba/flushing.py": OwnTests(
        ("tests/unit/test_small_facts.py", "tests/backends/test_backends_stage.py"), kernels=(NATIVE,)
    ),
    "emu/backends/numba/infinite_sums.py": OwnTests((_INFINITE_SUMS,), kernels=(NATIVE,)),
    "emu/backends/numba/functions.py": OwnTests(_FUNCTIONS, kernels=(NATIVE,)),
    "emu/backends/numba/tabled.py": OwnTests(_FUNCTIONS, kernels=(NATIVE,)),
    "emu/backends/numba/vector/": OwnTests(_KERNELS, kernels=(NATIVE,)),
    "emu/cluster/": OwnTests((*_EXCHANGE, *_CONTROLLER, "tests/cluster/test_codecs.py")),
    "emu/cluster/batch_sizes.py": OwnTests(("tests/cluster/test_batch_sizes.py",), kernels=(NATIVE,)),
    "emu/cluster/clipping/": OwnTests((*_CLIPPING, "tests/cluster/test_controllers_in_time.py"), kernels=(NATIVE,)),
    "emu/cluster/codecs/": OwnTests((*_CODECS, "tests/cluster/test_exchange.py")),
    "emu/cluster/controller.py": OwnTests((*_CONTROLLER, *_EXCHANGE)),
    "emu/cluster/contributions.py": OwnTests((*_CONTROLLER, *_EXCHANGE, "tests/cluster/test_observing.py")),
    "emu/cluster/lockstep.py": OwnTests(("tests/cluster/test_lockstep.py",)),
    "emu/cluster/nccl.py": OwnTests(("tests/cluster/test_nccl.py",)),
    "emu/cluster/observing.py": OwnTests(("tests/cluster/test_observing.py",)),
    "emu/cluster/parallelism.py": OwnTests(("tests/cluster/test_parallelism.py",), kernels=(NATIVE,)),
    "emu/cluster/settings.py": OwnTests(
        (*_EXCHANGE, "tests/messages/test_configuration_messages.py", "tests/cluster/test_step_time.py"),
        kernels=(NATIVE,),
    ),
    "emu/cluster/striped.py": OwnTests(("tests/cluster/test_units_and_stripes.py",)),
    "emu/cluster/timing/": OwnTests(_STEPS, kernels=(NATIVE,)),
    "emu/cluster/timing/counts.py": OwnTests(("tests/cluster/test_joint_points_in_time.py",), kernels=(NATIVE,)),
    "emu/sparse/": OwnTests(_SPARSE),
    "emu/sparse/products.py": OwnTests(_SPARSE, kernels=(HIDDEN, NATIVE)),
    "emu/search/": OwnTests((*_SEARCH_FILE, "tests/search/test_search_runs.py")),
    "emu/search/file.py": OwnTests(_SEARCH_FILE),
    "emu/search/space.py": OwnTests(_SEARCH_FILE),
    "emu/search/design.py": OwnTests(("tests/search/test_search_design.py", "tests/search/test_search_ledger.py")),
    "emu/search/ledger.py": OwnTests(("tests/search/test_search_ledger.py", "tests/search/test_search_runs.py")),
    "emu/search/storage.py": OwnTests(("tests/search/test_search_ledger.py", "tests/search/test_search_runs.py")),
    "emu/search/metrics.py": OwnTests(("emu/search/metrics.py", "tests/search/test_search_metrics.py")),
    "emu/cli/warm.py": OwnTests(("tests/jobs/test_warm.py",), kernels=(NATIVE,)),
    "emu/jobs/": OwnTests(_JOBS),
    "emu/jobs/bars.py": OwnTests(_BARS),
    "emu/training/folders/progress.py": OwnTests((*_BARS, "tests/watch/test_watch.py")),
    "emu/training/folders/claim.py": OwnTests((*_JOBS, "tests/training/test_one_process_trains.py")),
    "emu/training/folders/lease.py": OwnTests(
        (*_JOBS, "tests/jobs/test_runs_of_an_engine.py", "tests/search/test_search_ledger.py")
    ),
    "emu/jobs/runs.py": OwnTests(("tests/jobs/test_runs_of_an_engine.py",)),
    "emu/jobs/choice.py": OwnTests(("tests/jobs/test_engines.py",)),
    "emu/jobs/engine.py": OwnTests(("tests/jobs/test_engines.py",), with_slow=True),
    "emu/jobs/local.py": OwnTests(("tests/jobs/test_engines.py",), with_slow=True),
    "emu/precision/": OwnTests(_PRECISION),
    "emu/precision/casting.py": OwnTests(_CASTS),
    "emu/precision/delayed_scales.py": OwnTests(_CASTS),
    "emu/precision/counters.py": OwnTests((*_CASTS, *_PRECISION)),
    "emu/precision/shapes.py": OwnTests((_SHAPES, "tests/precision/test_dynamic_point.py")),
    "emu/operations/": OwnTests((*_PRECISION, _SHAPES, "tests/grad/test_gradients.py")),
    "emu/hardware/operand_tables.py": OwnTests(_CASTS),
    "emu/report/pictures/scales.py": OwnTests(
        ("emu/report/pictures/scales.py", "tests/report/test_scales_section.py"), kernels=(NATIVE,)
    ),
    "emu/hardware/energy.py": OwnTests(_ENERGY),
    "emu/hardware/cost_table.py": OwnTests(_ENERGY),
    "emu/_tables.py": OwnTests(("tests/unit/test_tables.py",)),
    "emu/_toml.py": OwnTests(("tests/unit/test_toml.py", "tests/search/test_search_runs.py")),
    "emu/backends/memory.py": OwnTests(("tests/backends/test_memory.py",), kernels=(NATIVE,)),
    "emu/training/data/svmlight.py": OwnTests(("tests/training/test_svmlight.py",)),
    "emu/testing/vectors/": OwnTests(_VECTORS, kernels=(NATIVE,)),
    "emu/testing/vectors/blocks/": OwnTests(_VECTOR_BLOCKS),
    "emu/testing/vectors/causes/scales.py": OwnTests(_VECTOR_BLOCKS),
    "emu/testing/vectors/columns.py": OwnTests((*_VECTORS, *_VECTOR_BLOCKS), kernels=(NATIVE,)),
    "emu/testing/vectors/explanation.py": OwnTests((*_VECTORS, *_VECTOR_BLOCKS), kernels=(NATIVE,)),
    "emu/testing/vectors/requantisers.py": OwnTests(_REQUANTISERS),
    "emu/testing/vectors/requantiser_sums.py": OwnTests(_REQUANTISERS),
    "emu/testing/vectors/requantiser_cells.py": OwnTests(_REQUANTISERS),
    "emu/testing/vectors/causes/requantisers.py": OwnTests(_REQUANTISERS),
    "emu/prove/": OwnTests(("emu/prove", "tests/prove"), kernels=(NATIVE,)),
    "emu/export/": OwnTests(("emu/export", "tests/export"), kernels=(NATIVE,)),
    "emu/training/cost.py": OwnTests((*_ENERGY, "tests/report/test_report_energy.py")),
}


def own_tests_of(path: str) -> OwnTests:
    """Return the tests that judge mutants of a file.

    Raises:
        KeyError: the table has none.
    """
    fitting = [name for name in OWN_TESTS if path == name or (name.endswith("/") and path.startswith(name))]
    if not fitting:
        raise KeyError(f"OWN_TESTS must name the tests of {path}; add a line")
    return OWN_TESTS[max(fitting, key=len)]
