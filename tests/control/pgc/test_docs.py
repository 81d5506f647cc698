"""What docs/control/pgc.md says to agents and aggregators in deployment runs as it is printed."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privrl.data.policy_json import load_policy
from privrl.privacy import Certificate

PAGE = Path(__file__).parents[3] / "docs" / "control" / "pgc.md"


def test_what_is_printed_for_use_in_deployment_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (code,) = re.findall(r"## In deployment\n.*?```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec"), names)  # what is run is in this repository
    state = names["state"]
    assert (state.accepted, state.version) == (100, 5)
    assert np.all(np.isfinite(state.theta))
    assert np.any(state.theta)
    assert names["plan"].epsilon == Certificate.read("certificate.json").epsilon
    probs = load_policy("policy.json").probabilities(np.zeros((1, 4)))
    np.testing.assert_allclose(probs, [[0.5, 0.5]])
