"""What the tests of runs have in common."""

import pytest


@pytest.fixture(autouse=True)
def _compiled_quickly(compiled_quickly: None) -> None:
    """Here programs are played for an instant; slow tests compile what users run."""
