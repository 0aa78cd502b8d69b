"""More faults for `tests/mutants.py`: a fast path that takes an option which it does not know.

Each is (name, file, what is there, what the fault puts there, pytest arguments of which a test must fail).
"""

KIND = "tests/engine/search/test_kind.py"
RECIPE = "tests/project/test_recipes.py -k option"
FILE = "engine/search/kind.py"
MUTANTS = [
    (
        "a plain step is one without the options that somebody has thought of",
        FILE,
        "plain=set_options <= PLAIN_OPTIONS",
        "plain=not set_options & {'coverage_penalty', 'stepwise_penalty', 'no_repeat_ngram_size', 'quotas', "
        "'diverse_groups'}",
        RECIPE,
    ),
    (
        "a greedy step is one without the options that somebody has thought of",
        FILE,
        "set_options <= GREEDY_OPTIONS",
        "not set_options & {'sampling', 'coverage_penalty'}",
        KIND,
    ),
    (
        "rows go on unranked although an option is unknown",
        FILE,
        "set_options <= SIMPLE_OPTIONS",
        "not set_options & {'beam_rule', 'diverse_groups'}",
        KIND,
    ),
    (
        "only the options of today are looked at",
        FILE,
        "for field in fields(options) if",
        "for field in fields(DecodeOptions) if",
        KIND,
    ),
    (
        "an option that is set to nothing counts as its default",
        FILE,
        "if getattr(options, field.name) != field.default",
        "if getattr(options, field.name) not in (field.default, 0)",
        KIND,
    ),
    (
        "the native library takes every step",
        "engine/executors/onnx/native_step.py",
        "attention=attention) if kind.plain else None",
        "attention=attention)",
        RECIPE,
    ),
    (
        "a launch of several steps tells the attention of its last one only",
        "engine/executors/onnx/native_step.py",
        "weights.append(step.attention.copy())",
        "weights = [step.attention.copy()]",
        "tests/engine/executors/test_native_step.py",
    ),
    (
        "the attention of a step is that of the next",
        "engine/executors/onnx/native_step.py",
        "weights.append(step.attention.copy())",
        "weights.append(step.attention)",
        "tests/engine/executors/test_native_step.py",
    ),
    (
        "the kernels take every step",
        "engine/executors/cuda/step_kernels.py",
        "return kind.plain and self.kernels.takes(k)",
        "return self.kernels.takes(k)",
        RECIPE,
    ),
    (
        "the first slot's options decide whether a step is plain",
        FILE,
        "union(*map(changed, options))",
        "union(changed(options[0]))",
        KIND,
    ),
    (
        "a slot with an unknown option joins the steps of those before it",
        FILE,
        "return kind_of([options], 0, 0, readable=False) == usual(0)",
        "return not changed(options) & {'coverage_penalty', 'quotas', 'no_repeat_ngram_size', 'sampling'}",
        KIND,
    ),
    (
        "a plain step is taken to limit tokens",
        FILE,
        '*("unk_penalty", "lm_weight",',
        '*("quotas", "unk_penalty", "lm_weight",',
        KIND,
    ),
    (
        "a greedy step is taken to draw samples",
        FILE,
        'GREEDY_OPTIONS: Final = (PLAIN_OPTIONS - {"sampling"})',
        "GREEDY_OPTIONS: Final = PLAIN_OPTIONS",
        KIND,
    ),
    (
        "a library that was built from other sources is called",
        "engine/native/__init__.py",
        "    check_layout(path)\n",
        "",
        "tests/engine/native/test_instruction_sets.py -k other_sources",
    ),
]
