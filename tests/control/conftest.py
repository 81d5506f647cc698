"""What several tests of learners use."""

from collections.abc import Iterator

import jax
import pytest

from privrl.control import lanes


@pytest.fixture
def compiled_quickly(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Compiling is most of the time of a quick test. Slow tests run what users run."""
    quick = request.node.get_closest_marker("slow") is None
    if quick:
        monkeypatch.setattr(lanes, "OPTIONS", {})
    jax.config.update("jax_disable_most_optimizations", quick)  # type: ignore[no-untyped-call]
    yield
    jax.config.update("jax_disable_most_optimizations", False)  # type: ignore[no-untyped-call]
