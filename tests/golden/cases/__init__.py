"""All cases, by name."""

from tests.golden.cases import accounts, evaluations, mechanisms, papers, runners
from tests.golden.running import Cases

CASES = Cases(
    accounts.CASES | mechanisms.CASES | evaluations.CASES | runners.CASES | papers.CASES,
)
