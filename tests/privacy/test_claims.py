"""The papers' formulas, as printed, beside what the same noise is worth."""

import math

import pytest

from privrl.privacy import Certificate, CertificateError, Claim, InputError, Relation
from privrl.privacy.claims import CLAIMS, claim


def test_xie2019_lemma1_beside_its_certificate() -> None:
    made = claim("xie2019", {"sigma": 1, "trajectories": 1000, "iterations": 1000, "delta": 1e-5})
    assert made.epsilon == pytest.approx(0.3565, abs=1e-4)
    assert made.certified is not None
    assert 3.239 <= made.certified.epsilon <= 3.30
    # An explicit pair of data sets already loses more than is claimed.
    assert made.certified.verify().floor > made.epsilon


@pytest.mark.parametrize(
    ("sigma", "iterations", "expected"),
    [(1, 1, 0.0112), (1, 10000, 1.1463), (2, 1000, 0.1623), (3, 100, 0.0329), (10, 10, 0.0030)],
)
def test_xie2019_lemma1_table(sigma: float, iterations: int, expected: float) -> None:
    made = claim("xie2019", {"sigma": sigma, "iterations": iterations})
    # The table was computed with whole orders only, which costs it up to 3e-4.
    assert made.epsilon == pytest.approx(expected, abs=3e-4)


@pytest.mark.slow
def test_xie2019_theorem1_asks_for_far_too_little_noise() -> None:
    made = claim("xie2019-theorem1", {"epsilon": 1.0, "iterations": 100})
    assert made.details["sigma"] == pytest.approx(2 * math.sqrt(100 * math.log(1e5)) / 1000)
    assert made.certified is not None
    assert made.certified.epsilon > 10.0


@pytest.mark.parametrize(
    ("parameters", "k", "beta", "sigma"),
    [
        ({}, 134, 24, 6.2),
        ({"epsilon": 0.45}, 259, 12.3, 17),
        ({"updates": 5000}, 1827, 1.75, 318),
        ({"learning_rate": 0.001}, 131, 242, 1.9),
    ],
)
def test_wang2019_is_solved_consistently(
    parameters: dict[str, float], k: float, beta: float, sigma: float
) -> None:
    made = claim("wang2019", parameters)
    assert made.details["k"] == pytest.approx(k, rel=0.01)
    assert made.details["beta"] == pytest.approx(beta, rel=0.02)
    assert made.details["sigma"] == pytest.approx(sigma, rel=0.02)
    assert 2 * made.details["k"] > 8.68 * math.sqrt(made.details["beta"]) * made.details["sigma"]
    assert made.delta == pytest.approx(2e-4, rel=1e-6)
    assert made.certified is None


def test_wang2019_by_hand() -> None:
    made = claim("wang2019", {"epsilon": 0.9, "delta": 1e-4})
    v = 4 * 0.01 * (made.details["k"] + 1) / 128
    root = math.sqrt(2 * 39 * math.log(math.e + 0.9 / 1e-4) * (v**2 + v))
    assert made.details["sigma"] == pytest.approx(root / 0.9)
    literal = claim("wang2019", {"norm_inside_root": False}).details
    assert literal["sigma"] < made.details["sigma"]


def test_rajabi2022_by_hand() -> None:
    made = claim("rajabi2022", {"epsilon": 0.5, "delta": 1e-5, "batch": 400, "learning_rate": 0.1})
    v = 0.1 / 400 * (4 * made.details["k"] + 3)
    assert made.details["beta"] == pytest.approx(1 / v)
    sigma = math.sqrt(2 * math.log(1.25e5)) * (v**2 + v) / 0.5
    assert made.details["sigma"] == pytest.approx(sigma)
    assert made.certified is None


def test_seo2020_composed() -> None:
    made = claim("seo2020", {"epsilon": 1.0, "delta": 1e-6, "steps": 10_000})
    assert made.details["sigma"] == pytest.approx(math.sqrt(2 * math.log(1.25e6)))
    assert made.certified is not None
    # 10^4 Gaussian releases of sensitivity 2: mu = 200 / sigma, whose loss has mean mu^2 / 2.
    assert made.certified.epsilon > (200 / made.details["sigma"]) ** 2 / 2
    single = claim("seo2020", {"epsilon": 10.0, "steps": 1}).certified
    assert single is not None
    assert single.epsilon == pytest.approx(24.4, abs=0.1)


@pytest.mark.parametrize("name", ["ono2020", "ono2020-sign"])
@pytest.mark.parametrize("eps", [0.5, 1.0, 5.0, 10.0])
def test_ono2020_is_sound_for_one_submission(name: str, eps: float) -> None:
    made = claim(name, {"epsilon": eps})
    assert made.certified is not None
    assert made.certified.relation is Relation.LOCAL
    assert made.certified.epsilon == pytest.approx(eps, rel=1e-12)
    thrice = claim(name, {"epsilon": eps, "submissions": 3}).certified
    assert thrice is not None
    assert thrice.epsilon == pytest.approx(3 * eps, rel=1e-12)


def test_ono2020_sign_bits() -> None:
    bits = [claim("ono2020-sign", {"epsilon": e}).details["bits"] for e in (1, 5, 10, 1000)]
    assert bits == [1, 2, 4, 112]


@pytest.mark.parametrize("name", CLAIMS)
def test_claims_are_never_alone_and_never_certificates(name: str) -> None:
    # With the noise that it asks for by default, the grid of its certificate takes seconds.
    made = claim(name, {"epsilon": 0.1} if name == "xie2019-theorem1" else {})
    text = str(made)
    assert "Not a certificate:" in text
    assert ("Certified for the same noise:" in text) or ("No certified figure:" in text)
    assert type(made) is Claim
    assert made.to_dict()["why_not"] == made.why_not
    assert Claim.from_dict(made.to_dict()).to_dict() == made.to_dict()
    with pytest.raises(CertificateError):
        Certificate.from_dict(made.to_dict())
    if made.certified is not None:
        made.certified.verify()


def test_a_claim_without_its_sentence_does_not_exist() -> None:
    with pytest.raises(InputError, match="never shown alone"):
        Claim(1.0, 0.0, source="x", scope="y", why_not=" ", covers="z")


@pytest.mark.parametrize(
    ("name", "parameters", "sentence"),
    [
        ("abadi2016", {}, "There is no claim 'abadi2016'"),
        ("xie2019", {"tau": 1}, "has no parameter 'tau'"),
        ("xie2019", {"sigma": 0}, "sigma must be positive"),
        ("xie2019", {"trajectories": 1.5}, "trajectories must be a whole number"),
        ("seo2020", {"delta": 0.0}, "delta must be above 0"),
        ("wang2019", {"epsilon": math.nan}, "not NaN"),
        ("wang2019", {"norm_inside_root": False, "updates": 10**9}, "No k fulfils"),
    ],
)
def test_bad_parameters(name: str, parameters: dict[str, float], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        claim(name, parameters)
