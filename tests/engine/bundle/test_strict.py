"""Values of JSON files are of the types of their fields, to the last element."""

from dataclasses import dataclass, field

import pytest

from engine.bundle.strict import from_json
from engine.errors import ConfigError


@dataclass(frozen=True)
class Inner:
    size: int = 1


@dataclass(frozen=True)
class Outer:
    pair: tuple[int, float]
    many: tuple[int, ...] = ()
    inner: Inner | None = None
    table: dict[str, float] = field(default_factory=dict)


def read(**values):
    return from_json(Outer, {"pair": [1, 2]} | values, "file")


def test_values_get_the_types_of_their_fields():
    read_all = read(many=[3, 4, 5], inner={"size": 2}, table={"a": 1})
    assert read_all == Outer((1, 2.0), (3, 4, 5), Inner(2), {"a": 1.0})
    assert read(inner=None).inner is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"pair": [1]}, "must hold 2 values"),
        ({"pair": [1, 2, 3]}, "must hold 2 values"),
        ({"pair": ["1", 2]}, "must be of type int"),
        ({"pair": [True, 2]}, "must be of type int"),
        ({"pair": [1, True]}, "must be of type float"),
        ({"many": 3}, "list of int"),
        ({"inner": []}, "object or null"),
        ({"inner": {"size": 1.5}}, "must be of type int"),
        ({"inner": {"sizes": 1}}, "unknown keys"),
        ({"table": {"a": "b"}}, r"table\.a must be of type float"),
    ],
)
def test_values_of_other_types_are_refused_by_name(values, message):
    with pytest.raises(ConfigError, match=message):
        read(**values)
