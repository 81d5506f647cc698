"""The catalogue of mutants: what each exchanges, what that breaks, and who must notice.

There is a file for each topic. How to add one: write the faulty function, which is given the
shipped one and its arguments, and decorate it with `mutant`: its name, its place, the unit tests
that must fail (`python -m tests.mutation NAME` runs them) and the audit targets whose promise the
fault breaks (`privrl audit TARGET --mutants`). A target belongs in the list if the mutant breaks
what the target *promises*, not if it merely changes what comes out.
"""

from importlib import import_module

from privrl.audit.mutations import MUTANTS

__all__ = ["MUTANTS"]

for _topic in ("mechanisms", "local_reports", "evaluation", "learners", "leaks"):
    import_module(f"{__name__}.{_topic}")
