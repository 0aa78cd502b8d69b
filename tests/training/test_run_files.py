"""Files of a training run: encoded pairs of both directions, and the curve of losses."""

import numpy as np

from training import curve, encoded
from training.data import Pairs


def pairs(*each):
    return Pairs(*([np.array(side, np.int32) for side in sides] for sides in zip(*each, strict=True)))


def plain(given):
    return [side.tolist() for side in given.sources], [side.tolist() for side in given.targets]


def test_opposite_direction_has_the_sides_exchanged(tmp_path):
    both, valid = pairs(([1, 2], [3]), ([4], [5, 6])), pairs(([7], [8]))
    own = pairs(([9], [1]))
    path = encoded.path_of(tmp_path, "a")
    encoded.write(path, {"both:de-en": both, "valid:a": valid, "de-en": own, "en-de": own})
    train, checked = encoded.pairs_of(path, "de-en")
    assert plain(train) == ([[1, 2], [4], [9]], [[3], [5, 6], [1]])
    assert plain(checked) == ([[7]], [[8]])
    train, checked = encoded.pairs_of(path, "en-de")
    assert plain(train) == ([[3], [5, 6], [9]], [[1, 2], [4], [1]])
    assert plain(checked) == ([[8]], [[7]])


def test_resumed_run_replaces_the_points_of_repeated_updates(tmp_path):
    assert curve.read(tmp_path) == []
    points = [curve.Point(update, 10 * update, loss, {}) for update, loss in ((1, 5.0), (2, 4.0), (2, 3.0))]
    for point in points:
        curve.append(tmp_path, point)
    assert curve.read(tmp_path) == [points[0], points[2]]
