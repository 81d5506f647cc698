"""Reports: what they say, that they say no more, and that anyone can read them."""

import base64
import hashlib
import itertools
import json
import math
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from privrl.data import OneHot, Tabular
from privrl.evaluation import WIS, PrivateGTD, PrivateValue, Schema, simulate_like
from privrl.evaluation.result import Interval, NotPrivate, Result
from privrl.privacy import Budget, Certificate, Claim, Gaussian, InputError, Ledger, Unit
from privrl.privacy.certificate import IDEALISED_ARITHMETIC, Population
from privrl.privacy.promise import NoiseOrigin, Relation
from privrl.privacy.session import PrivacySession
from privrl.report import figures, numbers, plots, render, words, write
from privrl.report.figures import Figure
from privrl.report.markup import escape
from privrl.run.study import CurvePoint, Fact, Slice, Study

SVG = "{http://www.w3.org/2000/svg}"
EVIL = "<script>alert('x')</script>&\"'"
ENDLESS = math.inf


def certificate(noise: NoiseOrigin = NoiseOrigin.SECURE, **changes: Any) -> Certificate:
    held: dict[str, Any] = {"unit": Unit.USER, "noise": noise, **changes}
    return Certificate.issue([Gaussian(9.0, 1.0)], 1e-6, **held)


PROMISE = certificate()
PARTS = {"sampling": 0.0009, "noise": 0.0016, "clipping": 0.05}
Three = tuple[float | None, float, float]


def result(
    target: Three = (2.0, 1.8, 2.2),
    behavior: Three | None = (1.8, 1.7, 1.9),
    difference: Three | None = (0.2, 0.1, 0.3),
    parts: dict[str, float] = PARTS,
    promise: Any = PROMISE,
    **details: Any,
) -> Result:
    def detail(held: Three) -> dict[str, Any]:
        interval = Interval(held[1], held[2], 0.95, parts)
        return {"estimate": held[0], "interval": interval.to_dict()}

    named = (("target", target), ("behavior", behavior), ("difference", difference))
    return Result(
        "PrivateValue",
        promise,
        target[0],
        Interval(target[1], target[2], 0.95, parts),
        settings={"gamma": 0.9, "horizon": 10, "return_range": [-100.0, 100.0]},
        details={**{k: detail(v) for k, v in named if v is not None}, "units": 500, **details},
        notes=("a note of the estimator",),
    )


def study(*results: Result, **changes: Any) -> Study:
    held: dict[str, Any] = {"title": "A title", "certificate": PROMISE, **changes}
    return Study(results=results or (result(),), **held)


@pytest.fixture(scope="module")
def real() -> Study:
    """A private evaluation of made-up people, and its curve."""
    schema = Schema(2_000, 8, 2, (0.0, 1.0), num_states=4, ending=0.1, num_users=1_500)
    logged = Tabular.uniform(4, 2)
    data, policy = simulate_like(schema, 0, logged), Tabular(np.array([[0.3, 0.7]] * 4))
    judge = PrivateValue(Budget(1.0, 1e-6), 4.0, gamma=0.9, horizon=8, reward_range=(0.0, 1.0))
    value = judge.fit(data, policy)
    function = PrivateGTD(
        OneHot(4), (0.0, 1.0), Budget(0.5, 1e-6), gamma=0.9, weight_cap=4.0, iterations=50
    ).fit(data, policy, start=np.arange(4))
    curve = []
    for epsilon in (0.1, 1.0, 10.0):
        tried = replace(judge, budget=Budget(epsilon, 1e-6))
        made = tried.fit(
            simulate_like(schema, 1, logged), policy, session=PrivacySession(public=True)
        )
        assert made.interval is not None
        assert made.diagnostics is not None
        free = made.diagnostics["without_noise"]["target"]["interval"]
        half = (made.interval.high - made.interval.low) / 2.0
        curve.append(CurvePoint(epsilon, half, (free["high"] - free["low"]) / 2.0))
    both = [*value.certificate.events, *function.certificate.events]
    return Study(
        title="Two ways to treat a made-up illness",
        results=(value, function),
        certificate=Certificate.issue(
            both,
            1e-6,
            unit=Unit.USER,
            assumptions=[IDEALISED_ARITHMETIC],
            noise=NoiseOrigin.SECURE,
        ),
        facts=(
            Fact("weight_cap", "4", "No trajectory counts for more than four."),
            Fact("horizon", "8", "Later steps do not count.", "default"),
            Fact("return_range", "0 to 5.7", "What any return could be.", "derived"),
        ),
        curve=tuple(curve),
        curve_people=1_500,
        slices=(
            Slice(
                "state",
                (0.0, 1.0, 2.0, 3.0),
                tuple(function.predict(np.arange(4)).tolist()),
                discrete=True,
            ),
        ),
        notes=("A loud remark.",),
        command="privrl evaluate stays.parquet --epsilon 1.5",
        created="2026-03-01T12:30:00+00:00",
    )


def odd_studies() -> dict[str, Study]:
    """Studies that lack, exceed or repeat something."""
    none = Result("PrivateValue", PROMISE)
    points = tuple(float(k) for k in range(2_000))
    return {
        "bare": study(none),
        "estimate only": study(Result("PrivateValue", PROMISE, 1.25)),
        "without limits": study(
            result((2.0, -ENDLESS, ENDLESS), (1.0, 0.5, ENDLESS), (1.0, -ENDLESS, 3.0), {})
        ),
        "no estimate": study(result((None, 1.0, 2.0), None, (None, 0.5, 1.0))),
        "no width": study(
            result((2.0, 2.0, 2.0), (2.0, 2.0, 2.0), (0.0, 0.0, 0.0), {"noise": 0.0})
        ),
        "huge": study(
            result((7.01e6, 6.8e6, 7.3e6), (6.2e6, 6.1e6, 6.3e6), (8e5, -4e5, 2e6), {"noise": 1e10})
        ),
        "beyond huge": study(result((1e308, -1.7e308, 1.7e308), None, (0.0, -1.7e308, 1.7e308))),
        "tiny": study(result((2e-9, 1e-9, 3e-9), (1e-9, 0.0, 2e-9), (1e-9, -1e-9, 3e-9))),
        "smallest": study(result((5e-324, 0.0, 5e-324), (0.0, 0.0, 0.0), (0.0, -5e-324, 5e-324))),
        "narrow": study(result((7e6, 7e6 - 1e-9, 7e6 + 1e-9), None, (1e-9, -1e-9, 1e-9))),
        "negative": study(
            result((-12.0, -13.0, -11.0), (-2.0, -2.1, -1.9), (-10.0, -11.1, -8.9)),
            slices=(Slice("x", (-3.0, -2.0, -1.0), (-5.0, -6.0, -5.5)),),
        ),
        "no evidence": study(
            result(
                effective_sample_size=0.0,
                weight_mass={
                    "estimate": 0.0,
                    "interval": {"low": 0.0, "high": 0.4, "level": 0.95, "parts": {}},
                },
            )
        ),
        "not numbers": study(
            result(
                parts={"noise": ENDLESS},
                effective_sample_size=math.nan,
                units=None,
                weight_mass={"estimate": None, "interval": None},
            ),
            curve=(CurvePoint(0.1, ENDLESS, 0.1), CurvePoint(1.0, math.nan, 0.1)),
            slices=(Slice("x", (0.0, math.nan, 2.0), (math.nan, 1.0, ENDLESS)),),
        ),
        "one point": study(
            slices=(Slice("x", (2.5,), (1.0,)),), curve=(CurvePoint(1.0, 0.5, 0.2),)
        ),
        "equal": study(
            slices=(Slice("x", (0.5, 1.5), (7.0, 7.0)), Slice("y", (0.0,), (0.0,), discrete=True))
        ),
        "many states": study(
            slices=(
                Slice("state", points, tuple(math.sin(k) for k in points), discrete=True),
                Slice("named", points, points, tuple(f"state {k}" for k in points), True),
            )
        ),
        "empty slice": study(slices=(Slice("x", (), ()),)),
        "long names": study(
            replace(result(), method="An estimator with a name of forty letters"),
            target_name="cautious dosing, revision 12 (b)",
            behavior_name="the usual dosing of the old ward",
            slices=(Slice("s" * 60, (0.0, 1.0), (1.0, 2.0), ("l" * 40, "m" * 40), True),),
        ),
        "large epsilon": study(
            certificate=Certificate.issue([Gaussian(0.01, 1.0)], 1e-6, unit=Unit.TRAJECTORY)
        ),
        "strange times": study(created="once upon a time", curve=(CurvePoint(0.0, 1.0, 1.0),)),
        "reward function": study(
            certificate=certificate(
                unit=Unit.REWARD_FUNCTION, relation=Relation.REWARD_RADIUS, reward_radius=0.5
            )
        ),
        "others": study(
            result(),
            Result("WIS", NotPrivate(), 1.5, Interval(1.0, ENDLESS, 0.9)),
            Result("GPOPE", Claim(0.1, 1e-5, "a paper", "a run", "a hole", "none"), 1.0),
            Result("LSTD", PROMISE, weights=np.ones(2), features=OneHot(2)),
        ),
        "public": study(replace(result(), promise=NotPrivate()), certificate=None),
    }


ODD = odd_studies()


def tree(text: str) -> ElementTree.Element:
    """The page, which must be well-formed XML too."""
    return ElementTree.fromstring(text)


def words_of(element: ElementTree.Element) -> str:
    return "".join(element.itertext())


def by_class(page: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [one for one in page.iter() if name in (one.get("class") or "").split()]


@pytest.fixture(scope="module")
def pages(real: Study) -> dict[str, str]:
    """The real study and the odd ones."""
    return {"real": render(real), **{name: render(one) for name, one in ODD.items()}}


# --- the page as a page ---------------------------------------------------------------------------


class _Balance(HTMLParser):
    """Whether every element is closed in order, as HTML sees it."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.seen: Counter[str] = Counter()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen[tag] += 1
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.seen[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_pages_are_well_formed(pages: dict[str, str]) -> None:
    for name, text in pages.items():
        parser = _Balance()
        parser.feed(text)
        parser.close()
        assert parser.open == [], name
        page = tree(text)
        ids = [one.get("id") for one in page.iter() if one.get("id")]
        assert len(ids) == len(set(ids)), name
        for one in page.iter():
            for target in (one.get("aria-labelledby") or "").split():
                assert target in ids, (name, target)
            for target in re.findall(r"url\(#(.+?)\)", one.get("fill") or ""):
                assert target in ids, (name, target)
        # HTML closes no element but void ones and SVG's own by a slash.
        slashed = set(re.findall(r"<(\w+)[^<>]*/>", text))
        assert slashed <= {"meta", "line", "rect", "circle", "path"}, name


def test_nothing_is_loaded_or_run(pages: dict[str, str]) -> None:
    for name, text in pages.items():
        page = tree(text)
        held = [one.tag.removeprefix(SVG) for one in page.iter()]
        assert not {"script", "link", "img", "iframe", "object", "image", "use", "base"} & set(held)
        for one in page.iter():
            for key, value in one.attrib.items():
                assert key not in ("src", "style", "srcset", "action", "data"), (name, key)
                assert not key.startswith("on"), (name, key)
                assert key != "href" or value.startswith("#"), (name, value)
                assert "://" not in value, (name, key, value)
        assert text.count("://") == text.count('xmlns="http://www.w3.org/2000/svg"'), name
        assert "@import" not in text
        assert set(re.findall(r"url\((.)", text)) <= {"#"}, name


def test_the_policy_of_the_page_forbids_all_but_its_own_style() -> None:
    page = tree(render(study()))
    meta = next(one for one in page.iter("meta") if one.get("http-equiv"))
    style = page.find("head/style")
    assert style is not None
    digest = base64.b64encode(hashlib.sha256((style.text or "").encode()).digest()).decode()
    assert meta.get("http-equiv") == "Content-Security-Policy"
    assert (meta.get("content") or "").split("; ") == [
        "default-src 'none'",
        f"style-src 'sha256-{digest}'",
        "base-uri 'none'",
        "form-action 'none'",
    ]


def marked(text: str) -> Study:
    """A study with `text` wherever somebody else's words may be."""
    held = certificate(
        population=Population(text, 2.0, 1e-6, 3, "sha256:00"),
    )
    main = replace(result(promise=held), method=text, notes=(text,))
    second = Result(text, NotPrivate(text), 1.0)
    return Study(
        title=text,
        results=(main, second),
        certificate=held,
        facts=(Fact(text, text, text),),
        target_name=text,
        behavior_name=text,
        curve=(CurvePoint(1.0, 1.0, 0.5),),
        slices=(
            Slice(text, (0.0, 1.0), (1.0, 2.0), (text, text), True),
            Slice(text, (0.5, 1.0), (1.0, 2.0)),
        ),
        notes=(text,),
        command=text,
        created=text,
    )


def test_words_of_users_never_become_markup() -> None:
    tame, wild = (tree(render(marked(text))) for text in ("tame", EVIL))
    assert [one.tag for one in tame.iter()] == [one.tag for one in wild.iter()]
    assert [sorted(one.keys()) for one in tame.iter()] == [
        sorted(one.keys()) for one in wild.iter()
    ]
    assert words_of(wild).count(EVIL) >= 15
    assert "<script" not in render(marked(EVIL))


def test_characters_that_hide_or_turn_text_are_shown_as_unknown() -> None:
    page = words_of(tree(render(study(title="a\x00b\u202ec\ud800d\x1be\ufffe"))))
    assert "a\ufffdb\ufffdc\ufffdd\ufffde\ufffd" in page


def test_letters_from_right_to_left_do_not_turn_numbers_around() -> None:
    """By the rules of Unicode a number goes where the last letter before it goes."""
    for text, shown in (
        ("מ 0.1 9.9", "מ\u200e 0.1 9.9"),
        ("مستشفى 5", "مستشفى\u200e 5"),
        ("9 מרפאה ב", "9 מרפאה ב\u200e"),
        ("מ x 1", "מ x 1"),
        ("clinic 5", "clinic 5"),
    ):
        assert escape(text) == shown


def test_headings_landmarks_and_language(pages: dict[str, str]) -> None:
    for name, text in pages.items():
        page = tree(text)
        assert page.get("lang") == "en"
        levels = [int(one.tag[1]) for one in page.iter() if re.fullmatch(r"h[1-6]", one.tag)]
        assert levels[0] == 1, name
        assert levels.count(1) == 1, name
        assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
        for landmark in ("header", "main", "footer"):
            assert len(list(page.iter(landmark))) == 1, name
        skip = next(page.iter("a"))
        assert skip.get("href") == "#main"
        assert next(page.iter("main")).get("id") == "main"
        assert all(one.get("aria-labelledby") for one in page.iter("section")), name


def test_plots_and_tables_have_names(pages: dict[str, str]) -> None:
    for name, text in pages.items():
        page = tree(text)
        ids = {one.get("id"): one for one in page.iter()}
        for plot in by_class(page, "plot"):
            assert plot.get("role") == "img", name
            title, description = (ids[one] for one in (plot.get("aria-labelledby") or "").split())
            assert title.tag == f"{SVG}title"
            assert description.tag == f"{SVG}desc"
            assert words_of(title), name
            assert words_of(description), name
            assert plot.get("width") == "100%"
        for table in page.iter("table"):
            assert words_of(next(table.iter("caption"))), name
            assert all(one.get("scope") in ("col", "row") for one in table.iter("th")), name


def test_the_same_study_gives_the_same_page_also_after_it_was_saved(
    real: Study, tmp_path: Path
) -> None:
    real.save(tmp_path / "study.json")
    again = Study.load(tmp_path / "study.json")
    assert render(again) == render(real)
    write(again, tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == render(real)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["report.html", "study.json"]


def test_a_report_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        write(study(), tmp_path / "no such folder" / "report.html")
    assert list(tmp_path.iterdir()) == []


# --- colours --------------------------------------------------------------------------------------


def colours() -> dict[str, dict[str, str]]:
    text = (Path(words.__file__).parent / "style.css").read_text(encoding="utf-8")
    blocks = re.findall(r":root \{(.*?)\}", text, re.DOTALL)
    found = [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block)) for block in blocks]
    return dict(zip(("light", "dark", "print"), found, strict=True))


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255.0 for at in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark", "print"])
def test_contrast(scheme: str) -> None:
    held = colours()[scheme]
    assert set(held) == set(colours()["light"])
    for text in ("text", "soft", "link"):
        for ground in ("page", "card"):
            assert contrast(held[text], held[ground]) >= 4.5, (text, ground)
    assert contrast(held["alarm-text"], held["alarm-page"]) >= 4.5
    assert contrast(held["note-text"], held["note-page"]) >= 4.5
    # Marks that carry a figure.
    for mark in ("target", "behavior", "difference", "sampling", "noise"):
        assert contrast(held[mark], held["page"]) >= 3.0, mark


def test_text_has_no_colour_but_those_that_were_checked() -> None:
    text = (Path(words.__file__).parent / "style.css").read_text(encoding="utf-8")
    rules = re.sub(r":root \{.*?\}", "", text, flags=re.DOTALL)
    assert not re.findall(r"#[0-9a-f]{3,8}|rgb|hsl", rules)
    used = set(re.findall(r"(?<![-\w])(?:color|fill): var\(--([\w-]+)\)", rules))
    marks = {"target", "behavior", "difference", "sampling", "noise", "clipping", "pattern", "line"}
    assert used <= {"text", "soft", "link", "alarm-text", "note-text"} | marks


# --- the answer -----------------------------------------------------------------------------------


def headline(one: Study) -> str:
    (found,) = by_class(tree(render(one)), "headline")
    return words_of(found).replace("\u00a0", " ").replace("\u2212", "-")


@pytest.mark.parametrize(
    ("difference", "expected"),
    [
        (
            (0.21, 0.081, 0.349),
            "The new policy is better than what was done, by 0.21 (95 % interval 0.08 to 0.35).",
        ),
        (
            (-0.21, -0.349, -0.081),
            "The new policy is worse than what was done, by 0.21 (95 % interval 0.08 to 0.35).",
        ),
        (
            (0.1, -0.1, 0.3),
            "The data does not tell whether the new policy is better or worse than what was done: "
            "the difference is between -0.10 and 0.30 (95 % interval); the best guess is 0.10.",
        ),
        ((0.1, 0.0, 0.2), "The data does not tell"),
        ((-0.1, -0.2, 0.0), "The data does not tell"),
        # Just above 0: more digits show it, or else it is not claimed.
        (
            (0.1, 0.0012, 0.2),
            "The new policy is better than what was done, by 0.100 (95 % interval ",
        ),
        ((0.1, 1e-9, 0.2), "The data does not tell"),
        ((-0.1, -0.2, -1e-9), "The data does not tell"),
        (
            (0.5, -ENDLESS, ENDLESS),
            "The data does not tell whether the new policy is better or worse than what was done: "
            "any difference is possible (95 % interval without limits); the best guess is 0.500.",
        ),
        (
            (0.5, 0.1, ENDLESS),
            "The new policy is better than what was done, by 0.500 (95 % interval ",
        ),
        ((0.5, -ENDLESS, 1.0), "The data does not tell"),
        ((-0.5, -ENDLESS, -0.1), "The new policy is worse than what was done, by 0.500"),
        ((None, 0.11, 0.3), "The new policy is better than what was done, by at least 0.11"),
        ((None, -0.3, -0.11), "The new policy is worse than what was done, by at least 0.11"),
    ],
)
def test_the_headline_follows_from_the_interval(difference: Three, expected: str) -> None:
    assert headline(study(result(difference=difference))).startswith(expected)


def test_the_headline_without_a_comparison() -> None:
    value = headline(study(result((2.0, 1.81, 2.19), None, None)))
    assert value == "The new policy is worth 2.00 (95 % interval 1.81 to 2.19)."
    bare = headline(study(Result("PrivateGTD", PROMISE, 1.25)))
    assert bare.startswith("The best guess for the value of the new policy is 1.25. There is no in")
    assert headline(study(Result("PrivateGTD", PROMISE))).startswith("There is no single figure")


@pytest.mark.parametrize(
    ("target", "behavior", "expected"),
    [
        ("cautious", "usual care", "“cautious” is better than the usual care, by 0.20"),
        ("new protocol", "the doctors", "The new protocol is better than the doctors, by 0.20"),
        ("Protocol 2", "", "“Protocol 2” is better than “”, by 0.20"),
        ("good: it is", "as logged", "“good: it is” is better than what was done, by 0.20"),
    ],
)
def test_names_in_sentences(target: str, behavior: str, expected: str) -> None:
    assert headline(study(target_name=target, behavior_name=behavior)).startswith(expected)


@given(
    st.floats(-1e6, 1e6),
    st.floats(0.0, 1e6),
    st.floats(0.0, 1e6),
)
def test_the_answer_is_never_firmer_than_the_interval(
    middle: float, below: float, above: float
) -> None:
    figure = Figure("d", middle, middle - below, middle + above, 0.95)
    said = words.answer(Figure("the new policy", 1.0, 0.0, 2.0, 0.95), figure)
    if said.kind == "better":
        assert figure.low is not None
        assert figure.low > 0.0
    if said.kind == "worse":
        assert figure.high is not None
        assert figure.high < 0.0


def read_back(text: str, unit: str) -> float:
    digits = text.replace(unit, "").replace(",", "").replace("\u2212", "-").strip()
    return float(digits)


@given(
    st.floats(allow_nan=False, allow_infinity=False, min_value=-1e12, max_value=1e12),
    st.floats(min_value=1e-9, max_value=1e12),
)
def test_printed_intervals_hold_the_computed_ones(low: float, width: float) -> None:
    figure = Figure("", low, low, low + width)
    style = numbers.style(figure, numbers.exponent(figure.numbers))
    scale = 10.0**style.exponent
    slack = 1e-12 * max(abs(low), abs(low + width))
    assert read_back(style.low(low), style.unit) * scale <= low + slack
    assert read_back(style.high(low + width), style.unit) * scale >= low + width - slack


@pytest.mark.parametrize(
    ("figure", "expected"),
    [
        (Figure("", 2.9077, 2.8503, 3.0178), "2.908 (2.850 to 3.018)"),
        (Figure("", 0.2149, 0.0812, 0.3487), "0.21 (0.08 to 0.35)"),
        (Figure("", 1234.5, 1000.0, 1500.0), "1,230 (1,000 to 1,500)"),
        (Figure("", 7.0123e6, 6.81e6, 7.2e6), "7.01 million (6.81 to 7.20 million)"),
        (Figure("", -2e-7, -3e-7, -1e-7), "−2.0 × 10⁻⁷ (−3.0 to −1.0 × 10⁻⁷)"),
        (Figure("", 5.0, 5.0, 5.0), "5.00 (5.00 to 5.00)"),
        (Figure("", 0.29, 0.29 - 0.2, 0.29 + 0.2), "0.29 (0.08 to 0.49)"),
        (Figure("", 0.001, -0.2, 0.2), "0.00 (−0.20 to 0.20)"),
        (Figure("", 3.0, -ENDLESS, 4.0), "3.00 (no lower limit to 4.00)"),
        (Figure("", 3.0e6, 2e6, ENDLESS), "3.00 million (2.00 million to no upper limit)"),
    ],
)
def test_digits_follow_the_width_of_the_interval(figure: Figure, expected: str) -> None:
    style = numbers.style(figure, numbers.exponent(figure.numbers))
    found = f"{style.near(figure.estimate)} ({style.interval(figure)})"
    assert found.replace("\u00a0", " ") == expected


# --- plots ----------------------------------------------------------------------------------------


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=9))
def test_an_axis_holds_all_it_is_given(values: list[float]) -> None:
    scale = plots.axis(values)
    assert all(0.0 <= scale.share(one) <= 1.0 for one in values)
    assert all(-1e-9 <= scale.share(one) <= 1.0 + 1e-9 for one in scale.ticks)
    assert len(scale.ticks) <= 11


def test_all_marks_are_inside_of_their_plots(pages: dict[str, str]) -> None:
    for name, text in pages.items():
        for plot in by_class(tree(text), "plot"):
            height = float(plot.get("height") or 0.0)
            for one in plot.iter():
                for key in ("x", "x1", "x2", "cx"):
                    place = one.get(key) or "0%"
                    if place.endswith("%"):
                        assert -0.01 <= float(place[:-1]) <= 100.01, (name, key, place)
                for key in ("y", "y1", "y2", "cy"):
                    assert -0.01 <= float(one.get(key) or 0.0) <= height, (name, key)
                assert "nan" not in (one.get("d") or ""), name
                assert "inf" not in (one.get("d") or ""), name


def places(plot: ElementTree.Element, mark: str, key: str) -> list[float]:
    return [float((one.get(key) or "").rstrip("%")) for one in by_class(plot, mark)]


def test_a_forest_plot_shows_where_things_are() -> None:
    rows = [
        plots.Row(Figure("a", 2.0, 1.0, 4.0), "a"),
        plots.Row(Figure("b", 3.0, -ENDLESS, 3.5), "b", "behavior"),
        plots.Row(Figure("c", 2.5), "c"),
    ]
    plot = tree(plots.forest("p", "t", "d", rows))
    scale = plots.axis([1.0, 2.0, 2.5, 3.0, 3.5, 4.0])

    def at(value: float) -> float:
        return 2.0 + 96.0 * scale.share(value)

    assert places(plot, "bar", "x1") == pytest.approx([at(1.0), 0.3], abs=1e-3)
    assert places(plot, "bar", "x2") == pytest.approx([at(4.0), at(3.5)], abs=1e-3)
    assert len(by_class(plot, "arrow")) == 1
    points = [
        float((one.get("x") or "").rstrip("%"))
        for one in plot.iter(f"{SVG}svg")
        if any("point" in (mark.get("class") or "") for mark in one.findall(f"{SVG}path"))
    ]
    assert points == pytest.approx([at(2.0), at(3.0), at(2.5)], abs=1e-3)


def table_after(page: ElementTree.Element, caption: str) -> list[list[str]]:
    for table in page.iter("table"):
        if words_of(next(table.iter("caption"))) == caption:
            return [[words_of(cell) for cell in row] for row in next(table.iter("tbody"))]
    raise AssertionError(f"no table {caption!r}")


def test_tables_hold_the_figures_of_the_plots(real: Study) -> None:
    page = tree(render(real))
    plot = {
        one.get("aria-labelledby", "").split("-title")[0]: one for one in by_class(page, "plot")
    }

    def beside(name: str) -> list[str]:
        return [words_of(one) for one in by_class(plot[name], "figures")]

    values = table_after(page, "Values, differences and their intervals")
    assert [f"{guess} ({interval})" for _, guess, interval in values] == [
        *beside("difference"),
        *beside("values"),
    ]
    others = table_after(page, "The value of the new policy by estimator")
    assert beside("estimators-plot") == [
        f"{others[0][1]} ({others[0][2]})",
        f"{others[1][1]} (no interval)",
    ]
    assert others[1][2] == "none stated"
    parts = table_after(page, "Half the width of each interval, in parts")
    assert beside("parts") == [f"± {row[1]}" for row in parts]
    states = table_after(page, "Value by state")
    assert [row[1] for row in states] == [
        words_of(one)
        for one in by_class(plot["slice-1"], "tick")
        if one.get("text-anchor") == "end"
    ]
    curve = table_after(page, "Half-width of the interval by epsilon")
    assert len(curve) == len(by_class(plot["curve-plot"], "dot")) == 3


def test_many_states_are_all_in_the_plot_and_in_the_table() -> None:
    page = tree(render(ODD["many states"]))
    clouds = by_class(page, "cloud")
    assert [(one.get("d") or "").count("h0") for one in clouds] == [2_000, 2_000]
    assert len(table_after(page, "Value by state")) == 2_000
    assert table_after(page, "Value by named")[7][0] == "state 7.0"


def test_the_chosen_epsilon_is_marked(real: Study) -> None:
    page = tree(render(real))
    (plot,) = [one for one in by_class(page, "plot") if "curve-plot" in str(one.attrib)]
    (edge,) = by_class(plot, "edge")
    dots = places(plot, "dot", "cx")
    # The second of three points is epsilon 1, which the budget allows up to rounding.
    assert float((edge.get("x1") or "").rstrip("%")) == pytest.approx(dots[1], abs=0.01)
    assert "chosen: 1" in words_of(plot)
    assert "made-up data of 1,500 people" in words_of(page)


# --- how sure -------------------------------------------------------------------------------------


def test_parts_add_up_to_the_half_width() -> None:
    found = figures.split(Figure("d", 0.0, -0.15, 0.15, 0.95, PARTS))
    assert found is not None
    assert found.half == pytest.approx(0.15)
    assert found.clipping == pytest.approx(0.05)
    assert found.noise / found.sampling == pytest.approx(0.0016 / 0.0009)
    # The quantile is (0.15 - 0.05) / sqrt(0.0025) = 2.
    assert found.without_noise == pytest.approx(0.05 + 2.0 * math.sqrt(0.0009))
    assert not found.cut
    assert figures.split(Figure("d", 0.0, -0.15, 0.15, 0.95, {})) is None
    assert figures.split(Figure("d", 0.0, -ENDLESS, 0.15, 0.95, PARTS)) is None
    assert figures.split(Figure("d", 0.0, -0.15, 0.15, 0.95, {"noise": 0.0})) is None
    cut = figures.split(Figure("d", 0.0, -0.15, 0.15, 0.95, PARTS), (-0.15, 9.0))
    assert cut is not None
    assert cut.cut


def test_the_price_of_privacy_is_said() -> None:
    said = words_of(tree(render(study()))).replace("\u00a0", " ")
    assert "The interval of the difference reaches about 0.10 to either side." in said
    assert "0.032 (32 %) is the noise that protects people" in said
    assert "Without the noise it would reach 0.08: privacy takes up 20 % of its width." in said


@pytest.mark.parametrize(
    ("size", "word"),
    [(0.0, "Too few"), (29.9, "Too few"), (99.0, "Thin"), (999.0, "Enough"), (1000.0, "Plenty")],
)
def test_words_for_the_effective_sample_size(size: float, word: str) -> None:
    assert words.judge_sample_size(size, 5_000, "people").word.startswith(word)
    page = words_of(tree(render(study(result(effective_sample_size=size, units=5_000)))))
    assert f"{word}" in page
    assert f"{size:,.0f} of 5,000" in page


@pytest.mark.parametrize(
    ("low", "word"), [(1.0, "Full"), (0.985, "Good"), (0.89, "Partial"), (0.49, "Poor")]
)
def test_words_for_support_are_by_the_low_end(low: float, word: str) -> None:
    assert words.judge_support(Figure("", 1.0, low, 1.0, 0.95), True).word == word


# --- the promise ----------------------------------------------------------------------------------


def test_a_guess_is_bounded_by_what_the_noise_really_allows() -> None:
    assert words.guess(0.0, 0.0) == 0.5
    assert words.guess(1.0, 0.0) == pytest.approx(math.e / (1.0 + math.e))
    assert words.guess(5_000.0, 0.0) == 1.0
    for std in (0.5, 2.0, 9.0, 40.0):
        held = Certificate.issue([Gaussian(std, 1.0)], 1e-6, unit=Unit.USER)
        # Two neighbours move the mean by 2: the best test cuts half way between them.
        truth = stats.norm.cdf(1.0 / std)
        assert truth <= words.guess(held.epsilon, held.delta)
        for alarms in (0.05, 0.01):
            power = stats.norm.cdf(stats.norm.ppf(alarms) + 2.0 / std)
            assert power <= words.detection(held.epsilon, held.delta, alarms) + 1e-12


def test_bounds_in_percent_are_rounded_up() -> None:
    assert numbers.percent(0.73101, up=True) == "73.2\u00a0%"
    assert numbers.percent(0.73101) == "73.1\u00a0%"
    assert numbers.percent(0.55, up=True) == "55\u00a0%"
    assert numbers.percent(1.0, up=True) == "100\u00a0%"
    assert numbers.percent(1e-9, up=True) == "0.1\u00a0%"


def test_the_promise_in_words(real: Study) -> None:
    assert real.certificate is not None
    said = words_of(tree(render(real))).replace("\u00a0", " ")
    best = words.guess(real.certificate.epsilon, real.certificate.delta)
    assert f"at most {math.ceil(1000.0 * best) / 10.0:g} % after" in said
    assert "one person, with all of their trajectories".capitalize() in said
    assert "know their part" in said
    assert "How many people there are. That number is public." in said
    assert "no ledger was used" in said
    assert "The proof is about real numbers, and computers round." in said
    assert "privrl verify --strict certificate.json" in said
    assert "privrl evaluate stays.parquet --epsilon 1.5" in said
    assert "1 March 2026, 12:30 UTC" in said
    assert real.certificate.card() in words_of(tree(render(real)))
    assert not by_class(tree(render(real)), "banner")


def test_a_trajectory_is_not_a_person() -> None:
    said = words_of(tree(render(study(certificate=certificate(unit=Unit.TRAJECTORY)))))
    assert "A person with several trajectories, as a whole." in said
    assert "A family of" not in said


def test_the_total_of_the_population_is_stated(tmp_path: Path) -> None:
    schema = Schema(300, 4, 2, (0.0, 1.0), num_states=3, num_users=300)
    data = simulate_like(schema, 0)
    judge = PrivateValue(Budget(1.0, 1e-6), 4.0, horizon=4, reward_range=(0.0, 1.0))
    with Ledger.create(
        tmp_path / "ward.ledger", population="ward <3>", unit=Unit.USER, people=300
    ) as ledger:
        judge.fit(data, session=PrivacySession(ledger=ledger, run="first"))
        found = judge.fit(data, session=PrivacySession(ledger=ledger, run="second"))
    held = found.certificate
    assert held.population is not None
    said = words_of(tree(render(Study("t", (found,), held))))
    assert "The ledger of “ward <3>” has 2 entries, this report included" in said
    assert f"cost epsilon {held.population.epsilon:.4g} at" in said
    assert "no ledger was used" not in said


def banners(one: Study) -> list[str]:
    return [words_of(found) for found in by_class(tree(render(one)), "banner")]


def test_a_seed_is_no_protection() -> None:
    held = certificate(NoiseOrigin.REPRODUCIBLE)
    for one in (
        study(result(promise=held), certificate=held),
        # Also if only one of several results is to blame.
        study(result(), Result("PrivateGTD", held, 1.0)),
    ):
        (said,) = banners(one)
        assert said.startswith("No protection: the noise can be taken off again.")
        page = words_of(tree(render(one)))
        assert "This promise does not hold for this report: the noise is no secret." in page
        assert "≤" not in page


def test_a_plan_is_no_protection() -> None:
    held = certificate(NoiseOrigin.NOT_DRAWN)
    (said,) = banners(study(result(promise=held), certificate=held))
    assert said.startswith("No protection: no noise was drawn.")


def test_public_data_has_no_certificate() -> None:
    schema = Schema(300, 4, 2, (0.0, 1.0), num_states=3)
    data, policy = simulate_like(schema, 0), Tabular(np.array([[0.4, 0.6]] * 3))
    judge = PrivateValue(Budget(1.0, 1e-3), 4.0, horizon=4, reward_range=(0.0, 1.0))
    one = Study(
        "t",
        (judge.fit(data, policy, session=PrivacySession(public=True)), WIS().fit(data, policy)),
        None,
    )
    (said,) = banners(one)
    assert said.startswith("No certificate: the data was declared public.")
    page = words_of(tree(render(one)))
    assert "WIS, not private, on public data" in page
    assert "PrivateValue, noise of epsilon 1, on public data" in page
    assert "there is nothing to verify" in page
    assert "≤" not in page


@pytest.mark.parametrize(
    "other",
    [
        Result("WIS", NotPrivate(), 1.0),
        Result("WIS", Claim(0.1, 1e-6, "a paper", "a run", "a hole", "none"), 1.0),
        Result(
            "WIS",
            Certificate.issue([Gaussian(2.0, 1.0)], 1e-6, unit=Unit.USER, noise=NoiseOrigin.SECURE),
            1.0,
        ),
    ],
)
def test_what_the_certificate_does_not_cover_is_named(other: Result) -> None:
    one = study(result(), other)
    (said,) = banners(one)
    assert said.startswith("Not everything here is covered by the certificate.")
    assert "Without its protection: WIS." in said
    assert "≤" not in words_of(tree(render(one)))


def test_weak_promises_are_called_weak() -> None:
    assert "This is a weak promise" in words_of(tree(render(ODD["large epsilon"])))
    assert "This is a weak promise" not in words_of(tree(render(study())))
    many = words_of(tree(render(study(certificate=replace(PROMISE, delta=0.01)))))
    assert "Delta should be well below one in 500" in many


# --- the rest -------------------------------------------------------------------------------------


def test_all_facts_are_listed(real: Study) -> None:
    rows = table_after(tree(render(real)), "Facts that were taken to be public")
    assert rows == [
        ["weight_capgiven by the analyst", "4No trajectory counts for more than four."],
        ["horizonthe default", "8Later steps do not count."],
        ["return_rangefollows from the others", "0 to 5.7What any return could be."],
    ]


def test_notes_of_the_study_and_of_its_estimators_are_shown() -> None:
    page = tree(render(study(notes=("loud one", "loud two"))))
    (remarks,) = by_class(page, "remarks")
    assert [words_of(one) for one in remarks.iter("li")] == ["loud one", "loud two"]
    assert "PrivateValue: a note of the estimator" in words_of(page)


def test_estimators_of_another_quantity_say_so() -> None:
    other = Result("PrivateGTD", PROMISE, 1.0, settings={"gamma": 0.99})
    said = words_of(tree(render(study(result(), other))))
    assert "not quite the same quantity: discounts by 0.99 a step and counts all steps" in said
    assert "No interval is stated by PrivateGTD." in said


def test_estimators_that_disagree_are_named() -> None:
    near, far = (Result(name, PROMISE, at) for name, at in (("near", 2.1), ("far", 2.3)))
    assert "Outside of the interval" not in render(study(result(), near))
    said = words_of(tree(render(study(result(), near, far))))
    assert "Outside of the interval of PrivateValue: far. Noise and" in said


def test_nothing_that_was_not_paid_for_is_shown() -> None:
    seen = replace(result(), diagnostics={"without_noise": {"target": {"estimate": 1.23456}}})
    assert render(study(seen)) == render(study())


def test_no_page_shows_what_is_no_figure(pages: dict[str, str]) -> None:
    for name, text in pages.items():
        for one in tree(text)[1].iter():
            held = f"{one.text or ''} {one.tail or ''}"
            # The tile "Protection: None" is meant.
            allowed = "None" if one.get("class") == "big" else ""
            found = re.findall(r"\b(?:nan|inf|None)\b", held)
            assert set(found) <= {allowed}, (name, held)


def test_a_study_that_was_read_back_shows_ends_without_limit(tmp_path: Path) -> None:
    one = ODD["without limits"]
    one.save(tmp_path / "study.json")
    assert (
        json.loads((tmp_path / "study.json").read_text())["results"][0]["interval"]["low"] is None
    )
    assert render(Study.load(tmp_path / "study.json")) == render(one)


# --- what readers stumbled over -------------------------------------------------------------------


def test_only_estimators_with_a_value_stand_beside_the_answer() -> None:
    """A value function without start states has no single value to compare."""
    bare, found = Result("PrivateGTD", PROMISE), Result("PrivateLSTD", PROMISE, 1.5)
    assert "asked in other ways" not in render(study(result(), bare))
    page = render(study(result(), bare, found))
    section = page[page.index("asked in other ways") :].split("</section>")[0]
    assert "PrivateLSTD" in section
    assert "PrivateGTD" not in section


@pytest.mark.parametrize(
    ("values", "warned"), [((2.0, 30.0), False), ((-3.0, -2.0), True), ((30.0, 31.0), True)]
)
@pytest.mark.parametrize("discrete", [True, False])
def test_values_of_states_that_cannot_be_right(
    values: tuple[float, float], warned: bool, discrete: bool
) -> None:
    slices = (Slice("ward", (0.0, 1.0), values, discrete=discrete),)
    page = render(study(result((3.0, 1.0, 5.0)), slices=slices))
    assert ("Not one of these values is in the interval" in page) is warned


def test_who_was_counted_was_not_said_in_advance() -> None:
    given = Fact("horizon", "8", "Later steps do not count.")
    counted = Fact("number of people", "500", "No secret.", "counted")
    assert "These were said in advance" in render(study(facts=(given,)))
    page = render(study(facts=(given, counted)))
    assert "Apart from how many there are, these were said in advance" in page
    assert "counted in the data" in page


def test_partial_support_is_a_worst_case() -> None:
    """Judged by the low end, so that it may be better than it sounds."""
    judged = words.judge_support(Figure("support", 1.0, 0.886, 1.0, 0.95), True)
    assert judged.word == "Partial"
    assert "may hardly be seen" in judged.sentence
