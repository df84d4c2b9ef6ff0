"""The run-time checker behind the jaxtyping annotations, switched on for tests in conftest.py."""

from typing import Any, Self

from beartype import BeartypeConf, FrozenDict, beartype

check = beartype(
    conf=BeartypeConf(
        # An int is welcome where a float is asked for, as every type checker reads it.
        is_pep484_tower=True,
        # jaxtyping decorates methods one by one, where beartype cannot resolve Self.
        hint_overrides=FrozenDict({Self: Any}),
    )
)
