"""Faults of engine/native for `tests.mutants`, as (name, file, old, new, pytest arguments)."""

FAULTS = [
    (
        "the native step takes the penalty of the first slot for all",
        "engine/native/selection.cpp",
        ".unk_penalty = unk_penalty.as<float>()[i / beams],",
        ".unk_penalty = unk_penalty.as<float>()[0],",
        "tests/engine/native/test_native.py -k 'equals_numpy and not each'",
    ),
    (
        "a token that a slot's list lacks is taken for the list's first",
        "engine/native/selection.cpp",
        "return found == list + vocab ? int64_t{-1} : found - list;",
        "return found == list + vocab ? int64_t{0} : found - list;",
        "tests/engine/native/test_native.py -k list_lacks",
    ),
    (
        "a library that was built from other sources is called",
        "engine/native/__init__.py",
        "    check_layout(path)\n",
        "",
        "tests/engine/native/test_instruction_sets.py -k other_sources",
    ),
    (
        "magnitudes whose products exceed 16 bits are added in 16 bits",
        "engine/native/magnitudes.h",
        "constexpr int32_t MOST = 255;",
        "constexpr int32_t MOST = 1020;",
        "tests/engine/native/test_instruction_sets.py -k same_bits",
    ),
    (
        "a row with a full list is widened four at a time",
        "engine/native/magnitudes.h",
        "        summary.apart = true;\n",
        "",
        "tests/engine/native/test_instruction_sets.py -k same_bits",
    ),
    (
        "numbers of a row's list are not multiplied",
        "engine/native/magnitudes.h",
        "for (size_t i = 0; i < summary_of(a, k).lifted; i++) {",
        "for (size_t i = 0; i < 0; i++) {",
        "tests/engine/native/test_instruction_sets.py -k same_bits",
    ),
]
