"""Mutants of training, as (name, file, old, new, pytest arguments), for `tests.mutants`."""

FAULTS = [
    (
        "training pairs that copy their source stay",
        "training/cleaning.py",
        "if source == target and len(source.split()) >= MIN_COPIED_WORDS:",
        "if False:",
        "tests/training/test_pairs.py -k harmful_pairs_are_dropped_and_counted",
    ),
    (
        "the opposite direction has the same pairs",
        "training/encoded.py",
        "return Pairs(pairs.targets, pairs.sources)",
        "return pairs",
        "tests/training/test_run_files.py -k opposite",
    ),
    (
        "a resumed run keeps the older point of an update",
        "training/curve.py",
        "for line in lines)}",
        "for line in reversed(lines))}",
        "tests/training/test_run_files.py -k resumed",
    ),
    (
        "a label of a tail keeps its number",
        "training/loss.py",
        "target[in_band] - begin",
        "target[in_band]",
        "tests/training/test_losses.py -k test_adaptive_loss_equals_likelihood_of_adaptive_softmax",
    ),
    (
        "a smoothed loss counts the label whole",
        "training/loss.py",
        "- (1 - smoothing) * likely",
        "- likely",
        "tests/training/test_losses.py -k test_fused_loss_equals_cross_entropy_of_torch_in_value_and_gradients",
    ),
    (
        "a training pair of an archive has a side of a test line",
        "training/reproduce.py",
        "return [pair for pair in rest if sides.isdisjoint(pair)], valid, test",
        "return rest, valid, test",
        "tests/training/test_reproduce.py -k share_no_side",
    ),
    (
        "back-translation starts from sources",
        "training/reproduce.py",
        "column = recipe.corpus.target_column",
        "column = recipe.corpus.source_column",
        "tests/training/test_reproduce.py -k sources_that_are_there",
    ),
]
