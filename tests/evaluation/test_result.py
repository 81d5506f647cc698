"""Results: what they hold, what they promise, and that they survive being saved."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privrl.data import FunctionFeatures, OneHot
from privrl.evaluation.result import Interval, NotPrivate, PolicyFeatures, Result
from privrl.privacy import Certificate, Claim, Gaussian, InputError, PrivRLError, Unit
from tests.evaluation import exact

CERTIFICATE = Certificate.issue([Gaussian(9.0, 1.0)], 1e-5, unit=Unit.USER)
CLAIM = Claim(0.1, 1e-5, "a paper", "a run", "it has a hole", "there is none")


def made(promise: Any = CERTIFICATE, **changes: Any) -> Result:
    held: dict[str, Any] = {
        "method": "Judge",
        "promise": promise,
        "estimate": 1.5,
        "interval": Interval(1.0, math.inf, 0.9, {"noise": 0.25}),
        "weights": np.array([1.0, 2.0, 4.0]),
        "features": OneHot(3),
        "settings": {"gamma": 0.9, "pair": (1, 2), "array": np.array([1.5])},
        "details": {"deep": {"size": np.float64(3.5), "none": None, "flag": True}},
        "diagnostics": {"mspbe": 0.125},
        "notes": ("a note",),
    }
    return Result(**{**held, **changes})


@pytest.mark.parametrize("promise", [CERTIFICATE, CLAIM, NotPrivate()])
def test_a_saved_result_comes_back(promise: Any, tmp_path: Path) -> None:
    path, one = tmp_path / "result.json", made(promise)
    one.save(path)
    again = Result.load(path)
    assert again.promise == promise
    assert (again.method, again.estimate, again.notes) == ("Judge", 1.5, ("a note",))
    assert again.interval == one.interval
    np.testing.assert_array_equal(again.predict([2, 0]), [4.0, 1.0])
    assert again.settings["pair"] == [1, 2]
    assert again.details["deep"] == {"size": 3.5, "none": None, "flag": True}
    assert again.diagnostics == {"mspbe": 0.125}
    assert again.to_dict() == one.to_dict()
    assert [one.name for one in tmp_path.iterdir()] == ["result.json"]


def test_a_bare_result_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    bare = Result("Judge", NotPrivate("it says so"))
    bare.save(path)
    again = Result.load(path)
    assert again.interval is None
    assert again.weights is None
    assert again.diagnostics is None
    assert str(again.promise) == "Not private: it says so."
    with pytest.raises(InputError, match="one number"):
        again.predict([0])


def test_promises_are_told_apart() -> None:
    assert made().certificate is CERTIFICATE
    assert made(CLAIM).claim is CLAIM
    with pytest.raises(InputError, match=r"no certificate\. Claim by a paper"):
        _ = made(CLAIM).certificate
    with pytest.raises(InputError, match="no paper's claim"):
        _ = made(NotPrivate()).claim


def test_nothing_in_a_result_can_be_changed() -> None:
    one = made()
    with pytest.raises(TypeError):
        one.details["more"] = 1  # type: ignore[index]
    with pytest.raises(TypeError):
        one.interval.parts["more"] = 1  # type: ignore[union-attr, index]
    assert one.weights is not None
    with pytest.raises(ValueError, match="read-only"):
        one.weights[0] = 7.0


def test_intervals_hold_numbers() -> None:
    assert 2.0 in made().interval  # type: ignore[operator]
    assert 0.5 not in made().interval  # type: ignore[operator]


def damaged(change: Any) -> str:
    held = made().to_dict()
    change(held)
    return json.dumps(held)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is not JSON"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "is not the result"),
        ('{"kind": "privrl certificate"}', "is not the result"),
        (damaged(lambda d: d.update(format=99)), "another version"),
        (damaged(lambda d: d.pop("weights")), "is damaged"),
        (damaged(lambda d: d.update(weights="many")), "is damaged"),
        (damaged(lambda d: d.update(interval=[1, 2])), "is damaged"),
        (damaged(lambda d: d["interval"].update(low="a")), "is damaged"),
        (damaged(lambda d: d.update(notes=None)), "is damaged"),
        (damaged(lambda d: d.update(details=3)), "is damaged"),
        (damaged(lambda d: d.update(promise=None)), "is damaged"),
        (damaged(lambda d: d.update(features={"kind": "magic"})), "is damaged"),
        (damaged(lambda d: d.update(features=3)), "is damaged"),
        (damaged(lambda d: d["promise"].update(epsilon=0.01)), "was changed after"),
        (damaged(lambda d: d["promise"].update(events=[{"type": "Magic"}])), "was changed after"),
    ],
)
def test_damaged_files_are_refused_in_one_sentence(
    text: str, sentence: str, tmp_path: Path
) -> None:
    path = tmp_path / "result.json"
    path.write_text(text)
    with pytest.raises(PrivRLError, match=sentence) as caught:
        Result.load(path)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        Result.load(tmp_path / "none.json")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="is not JSON"):
        Result.load(tmp_path / "bytes.json")
    with pytest.raises(InputError, match="cannot be written"):
        made().save(tmp_path / "no" / "folder.json")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="cannot be written"):
        made().save(tmp_path / "folder")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["bytes.json", "folder"]


def test_features_without_a_file_form(tmp_path: Path) -> None:
    function = FunctionFeatures(lambda s: np.ones((len(s), 3)), 3, 2.0)
    with pytest.raises(InputError, match="cannot be written to a file"):
        made(features=function).save(tmp_path / "result.json")
    assert not list(tmp_path.iterdir())


def test_policy_features_are_within_their_bound() -> None:
    features = PolicyFeatures(OneHot(3), exact.TARGET)
    rows = features([0, 1, 2, 9])
    assert rows.shape == (4, features.dimension)
    assert features.dimension == 6
    assert np.linalg.norm(rows, axis=1).max() <= features.norm_bound
    np.testing.assert_array_equal(rows[0], [0.75, 0.0, 0.0, 0.25, 0.0, 0.0])
