"""All cases, by name."""

from tests.golden.cases import accounts, evaluations, lessons, mechanisms, papers
from tests.golden.running import Cases

CASES = Cases(
    accounts.CASES | mechanisms.CASES | evaluations.CASES | lessons.CASES | papers.CASES,
)
