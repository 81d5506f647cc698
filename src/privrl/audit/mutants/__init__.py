"""The catalogue of mutants: what each exchanges, what that breaks, and who must notice.

There is a file for each topic. How to add one: write a `Change` (from the shipped function to the
faulty one), put a `Mutant` into `MUTANTS` of its topic, and name the place, the unit tests that
must fail (`python -m tests.mutation NAME` runs them) and the audit targets whose promise the fault
breaks (`privrl audit TARGET --mutants`). A target belongs in the list if the mutant breaks what the
target *promises*, not if it merely changes what comes out.
"""

from privrl.audit.mutants import evaluation, leaks, learners, local_reports, mechanisms
from privrl.audit.mutations import MUTANTS, register

__all__ = ["MUTANTS"]

for _topic in (mechanisms, local_reports, evaluation, learners, leaks):
    register(*_topic.MUTANTS)
