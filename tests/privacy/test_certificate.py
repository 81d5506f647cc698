"""Certificates: recomputed by two accountants, and every edit is noticed."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import privrl
from privrl import cli
from privrl.privacy import (
    IDEALISED_ARITHMETIC,
    ApproxDP,
    Assumption,
    Certificate,
    CertificateError,
    DiscreteGaussian,
    Disjoint,
    FixedSizeSampled,
    Gaussian,
    InputError,
    Laplace,
    NoiseOrigin,
    PoissonSampled,
    RandomizedResponse,
    Relation,
    Release,
    Repeated,
    Unit,
    accounting,
    second_accountant,
)
from privrl.privacy.accounting import worst_cases
from privrl.privacy.claims import claim

PLANS: list[dict[str, Any]] = [
    {"events": Gaussian(1, 1), "delta": 1e-5, "unit": Unit.TRAJECTORY},
    {
        "events": [Repeated(PoissonSampled(Gaussian(1, 1), 0.01), 100), Gaussian(9, 1)],
        "delta": 1e-6,
        "unit": Unit.USER,
        "relation": Relation.ADD_REMOVE,
        "release": Release.EVERY_ITERATE,
        "assumptions": (IDEALISED_ARITHMETIC,),
        "noise": NoiseOrigin.SECURE,
    },
    {
        "events": [Repeated(FixedSizeSampled(Gaussian(1, 1), 1000, 3), 10), ApproxDP(0.1, 1e-7)],
        "delta": 1e-5,
        "unit": Unit.TRAJECTORY,
        "noise": NoiseOrigin.REPRODUCIBLE,
    },
    {
        "events": Repeated(RandomizedResponse(0.5, categories=3), 20),
        "delta": 0.0,
        "unit": Unit.AGENT,
        "relation": Relation.LOCAL,
        "release": Release.EACH_REPORT,
        "noise": NoiseOrigin.SECURE_KEY,
    },
    {
        "events": Disjoint((Laplace(3, 1), DiscreteGaussian(40, 9, 5))),
        "delta": 1e-5,
        "unit": Unit.REWARD_FUNCTION,
        "relation": Relation.REWARD_RADIUS,
        "reward_radius": 0.1,
    },
]


@pytest.fixture(params=range(len(PLANS)))
def certificate(request: pytest.FixtureRequest) -> Certificate:
    return Certificate.issue(**PLANS[request.param])


def test_round_trip_and_verification(certificate: Certificate, tmp_path: Path) -> None:
    path = tmp_path / "certificate.json"
    path.write_text(certificate.to_json(), encoding="utf-8")
    again = Certificate.read(path)
    assert again == certificate
    found = again.verify()
    assert found.recomputed == pytest.approx(certificate.epsilon, abs=1e-6)
    assert found.floor <= certificate.epsilon + 1e-9
    # The first accountant's grid shows where the second one happens to be exact.
    assert certificate.epsilon <= found.ceiling * (1 + 1e-5) + accounting.GRID


def edits(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[tuple[Any, ...], Any]]:
    """Every leaf of a JSON document with another value in its place."""
    if isinstance(value, dict):
        return [e for k, v in value.items() for e in edits(v, (*path, k))]
    if isinstance(value, list):
        return [e for i, v in enumerate(value) for e in edits(v, (*path, i))]
    if isinstance(value, bool) or value is None:
        return [(path, 1.0)]
    if isinstance(value, int | float):
        return [(path, value + 1e-3), (path, value + 1), (path, None), (path, math.nan)]
    return [(path, value + "x"), (path, "")]


def with_edit(data: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    copy: Any = json.loads(json.dumps(data))
    place = copy
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return copy  # type: ignore[no-any-return]


def test_every_edit_is_noticed(certificate: Certificate) -> None:
    data = certificate.to_dict()
    for path, value in edits(data):
        with pytest.raises(CertificateError) as caught:
            Certificate.from_dict(with_edit(data, path, value))
        assert "\n" not in str(caught.value)
        assert str(caught.value).endswith(".")
    for key in data:
        with pytest.raises(CertificateError):
            Certificate.from_dict({k: v for k, v in data.items() if k != key})


def resigned(data: dict[str, Any]) -> dict[str, Any]:
    from privrl.privacy.certificate import _digest

    body = {k: v for k, v in data.items() if k != "digest"}
    return {**body, "digest": _digest(body)}


def test_a_forged_digest_does_not_help_a_wrong_epsilon(certificate: Certificate) -> None:
    for factor in (0.5, 0.999, 1.001, 2.0):
        data = resigned({**certificate.to_dict(), "epsilon": certificate.epsilon * factor})
        with pytest.raises(CertificateError, match="its events cost"):
            Certificate.from_dict(data).verify()


def test_forged_and_malformed_certificates_are_refused(certificate: Certificate) -> None:
    data = certificate.to_dict()
    changes: tuple[dict[str, Any], ...] = (
        {"unit": "patient"},
        {"relation": "local" if certificate.relation is not Relation.LOCAL else "reward-radius"},
        {"epsilon": -1},
        {"epsilon": "1"},
        {"delta": 1},
        {"events": []},
        {"events": [{"type": "Gaussian"}]},
        {"events": "Gaussian(1, 1)"},
        {"assumptions": [{}]},
        {"assumptions": 3},
        {"extra": 1},
        {"format": 2},
        {"kind": "certificate"},
    )
    for change in changes:
        with pytest.raises(CertificateError):
            Certificate.from_dict(resigned({**data, **change})).verify()


@settings(max_examples=200)
@given(st.text())
def test_any_text_is_answered_by_a_sentence(text: str) -> None:
    with pytest.raises(CertificateError):
        Certificate.from_json(text)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match="There is no file"):
        Certificate.read(tmp_path / "missing.json")
    with pytest.raises(CertificateError, match="cannot be read"):
        Certificate.read(tmp_path)
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CertificateError, match="not text"):
        Certificate.read(binary)


def test_a_claim_is_not_read_as_a_certificate() -> None:
    with pytest.raises(CertificateError, match="never a certificate"):
        Certificate.from_dict(claim("ono2020", {}).to_dict())


def test_strict_wants_secret_noise(certificate: Certificate) -> None:
    if certificate.noise.is_secret:
        certificate.verify(strict=True)
    else:
        with pytest.raises(CertificateError, match=str(certificate.noise)):
            certificate.verify(strict=True)


def test_the_second_accountant_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the first accountant forgets the factor 2 of replace-one, the second one notices."""
    monkeypatch.setattr(worst_cases, "sensitivity", lambda bound, relation: bound)
    forgetful = Certificate.issue(Gaussian(1, 1), 1e-5, unit=Unit.TRAJECTORY)
    assert forgetful.epsilon == pytest.approx(4.377, abs=1e-3)
    with pytest.raises(CertificateError, match="two accountants disagree"):
        forgetful.verify()


def test_the_accountants_share_no_code() -> None:
    """By what the second one imports of ours: the descriptions of events, and itself."""
    modules = set()
    for path in Path(second_accountant.__file__).parent.glob("*.py"):
        source = path.read_text(encoding="utf-8")
        assert "dp_accounting" not in source
        modules |= set(re.findall(r"^ *(?:from|import) +(privrl[\w.]*)", source, re.M))
    itself = {name for name in modules if name.startswith(f"{second_accountant.__name__}.")}
    assert len(itself) > 5
    assert modules - itself <= {
        "privrl.core",
        "privrl.core.errors",
        "privrl.core.types",
        "privrl.privacy.events",
        "privrl.privacy.promise",
    }


# As tacit 0.1.0 wrote it, but for the spaces: one pass of `PrivateGTD`.
ONE_PASS = """{"kind": "tacit certificate", "format": 1, "tacit": "0.1.0",
"epsilon": 0.9999994640390383, "delta": 1e-05, "unit": "trajectory", "relation": "replace-one",
"reward_radius": null, "release": "every-iterate", "noise": "secure",
"accountant": "exact Gaussian trade-off", "population": null, "assumptions": [
{"statement": "each unit's contribution is clipped to a public bound",
"enforced": "by the algorithm, for any data"},
{"statement": "features, ranges, bounds and step sizes were chosen without looking at the data",
"enforced": "not enforced: they are the caller's"},
{"statement": "a unit's place in the order of the data does not depend on what its rows say",
"enforced": "batches hold a public number of units; the order is the caller's"},
{"statement": "idealised real arithmetic", "enforced":
"not enforced: noise and sums are 64-bit floating point, and the proof is about real numbers"}],
"events": [{"type": "Disjoint", "events": [
{"type": "Gaussian", "std": 7.461266911203337, "bound": 1.0}]}],
"digest": "sha256:591b48510b2fa950f288c1a9053bc0c3bfbba0bc56ea744f5bd465847150ac98"}"""
VOID_IF = "void if made with --nulls carry or from a table above 5,000,000 rows"


def test_one_pass_over_a_stream_by_an_earlier_version_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = Certificate.from_json(ONE_PASS)
    with pytest.raises(CertificateError, match="depended on the number of rows, so its epsilon is"):
        found.verify()
    assert found.invalid_reason is not None
    assert "INVALID" in found.card()
    path = tmp_path / "certificate.json"
    path.write_text(ONE_PASS)
    assert cli.run(["verify", str(path)]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "one pass over a stream by tacit 0.1" in printed.err
    assert printed.err.count("\n") == 1
    assert cli.run(["verify", str(path), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["verified"], told["invalid"]) == (False, found.invalid_reason)
    assert told["error"]["message"] == found.invalid_reason
    # Run with what else was spent on the same people, it is still among the events.
    more = replace(found, events=(Gaussian(30, 1), *found.events))
    assert more.invalid_reason is not None


def test_people_in_fixed_slots_are_not_mistaken_for_it(tmp_path: Path) -> None:
    found = Certificate.from_json(ONE_PASS)
    # Neither today's version, nor another algorithm, nor other assumptions.
    for version in ("0.2.0", "0.10.0", "0.12", "1.0.1", "nobody"):
        assert replace(found, issued_by=f"tacit {version}").invalid_reason is None
        replace(found, issued_by=f"tacit {version}").verify()
    whole = replace(found, events=(Gaussian(7.461266911203337, 1.0),))
    assert whole.invalid_reason is None
    for version in ("0.1", "0.1.0", "0.1.9", "0.1rc1"):
        assert replace(found, issued_by=f"tacit {version}").invalid_reason is not None
    slots = Assumption(
        "a person plays one episode, in a slot that does not depend on what happens in it",
        "batches hold a public number of slots; who fills them is the caller's",
    )
    played = replace(found, assumptions=(slots, IDEALISED_ARITHMETIC))
    assert played.invalid_reason is None
    seeded = replace(played, noise=NoiseOrigin.REPRODUCIBLE)
    assert seeded.verify().warnings == ()
    (resumed,) = replace(played, noise=NoiseOrigin.SECURE_KEY).verify().warnings
    assert "resumed more than once" in resumed
    issuer = Certificate.issue(Gaussian(1, 1), 1e-5, unit=Unit.USER).issued_by
    assert issuer == f"privrl {privrl.__version__}"
    now = replace(played, issued_by=issuer)
    assert now.verify().warnings == ()


def test_what_cannot_be_seen_in_certificates_of_earlier_versions_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = Certificate.issue(
        Gaussian(8, 1), 1e-5, unit=Unit.USER, noise=NoiseOrigin.SECURE, assumptions=()
    )
    assert found.verify().warnings == ()
    assert VOID_IF not in found.card()
    old = replace(found, issued_by="tacit 0.1.0")
    (warning,) = old.verify(strict=True).warnings
    assert VOID_IF in warning
    path = tmp_path / "certificate.json"
    path.write_text(old.to_json())
    assert cli.run(["verify", str(path)]) == 0
    assert VOID_IF in " ".join(capsys.readouterr().out.split())
    assert cli.run(["verify", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["warnings"] == [warning]
    # Plans and reports of agents come from no table and from no checkpoint.
    assert replace(old, noise=NoiseOrigin.NOT_DRAWN).verify().warnings == ()
    reports = Certificate.issue(**PLANS[3])
    assert replace(reports, issued_by="tacit 0.1.0").verify().warnings == ()
    # Reward functions are in no table; what was learned of them may have been resumed.
    secret = Certificate.issue(**{**PLANS[4], "noise": NoiseOrigin.SECURE})
    (resumed,) = replace(secret, issued_by="tacit 0.1.0").verify().warnings
    assert "resumed more than once" in resumed


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"relation": Relation.REWARD_RADIUS}, "belong together"),
        ({"unit": Unit.REWARD_FUNCTION}, "belong together"),
        (
            {"unit": Unit.REWARD_FUNCTION, "relation": Relation.REWARD_RADIUS},
            "reward_radius is needed",
        ),
        ({"reward_radius": 1.0}, "reward_radius belongs"),
        ({"relation": Relation.LOCAL}, "not a trajectory"),
        ({"events": []}, "at least one event"),
    ],
)
def test_promises_that_make_no_sense(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Certificate.issue(**{**PLANS[0], **change})


def test_the_card_says_it_in_words(certificate: Certificate) -> None:
    card = certificate.card()
    for word in ("Protected", "Against", "In ", "Meaning", "Accountant", "Noise", "Event"):
        assert word in card
    assert f"{certificate.epsilon:.4g}" in card
    if certificate.reward_radius:
        assert "within 0.1 of it" in " ".join(card.split())
