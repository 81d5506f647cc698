"""One mutant of the shipped code for a whole session, if TACIT_MUTANT names it (`mutation.py`)."""

import os
from contextlib import ExitStack

import pytest

_MUTATED = ExitStack()


def pytest_configure(config: pytest.Config) -> None:
    """Before any test is collected, so that tests import what was mutated."""
    name = os.environ.get("TACIT_MUTANT")
    if name:
        from hypothesis import Phase, settings

        from tacit.privacy.audit.mutants import MUTANTS

        # A counterexample is enough; a smaller one takes longer than finding it.
        settings.register_profile("mutant", phases=[Phase.explicit, Phase.generate])
        settings.load_profile("mutant")
        _MUTATED.enter_context(MUTANTS[name].applied())


def pytest_unconfigure(config: pytest.Config) -> None:
    _MUTATED.close()
