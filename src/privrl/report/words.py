"""What the figures mean, in sentences that follow from them by rule and say no more."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from privrl.evaluation.result import Result
from privrl.privacy.certificate import IDEALISED_ARITHMETIC, Certificate
from privrl.privacy.promise import NoiseOrigin, Relation, Release, Unit
from privrl.report import numbers
from privrl.report.figures import Figure, Split
from privrl.report.numbers import Style
from privrl.run.study import Fact

Kind = Literal["better", "worse", "undecided", "no comparison"]

# How many further decimals may be shown before an interval that just misses 0 counts as touching.
_FINER = 2


@dataclass(frozen=True)
class Answer:
    """The headline."""

    kind: Kind
    sentence: str
    style: Style
    """How the difference is written, wherever it appears."""


@dataclass(frozen=True)
class Judgement:
    """A word on a scale, and what it means for the reader."""

    word: str
    sentence: str


def name_in_sentence(name: str) -> str:
    """A policy's name in a sentence: plain words get an article, anything else is quoted."""
    plain = all(letter.isalpha() or letter in " -" for letter in name)
    if plain and name.startswith("the "):
        return name
    return f"the {name}" if plain and name[:1].islower() and " " in name else f"“{name}”"


def answer(target: Figure, difference: Figure | None, behavior: str = "what was done") -> Answer:
    """Better or worse only if the interval of the difference, as printed, lies on one side of 0.

    Printed ends are rounded outwards, so that no rounding makes the answer firmer than the figures.
    """
    name = target.name[:1].upper() + target.name[1:]
    if difference is None or (difference.estimate is None and not difference.has_interval):
        return _value_only(name, target)
    how = numbers.style(difference, numbers.exponent(difference.numbers))
    tries = [how.finer(more) for more in range(_FINER + 1)]
    decided = next((one for one in tries if one.excludes_zero(difference)), None)
    if decided is not None:
        above = difference.low is not None and difference.low > 0.0
        kind: Kind = "better" if above else "worse"
        return Answer(
            kind,
            f"{name} is {kind} than {behavior}{_difference_clause(difference, decided, above)}.",
            decided,
        )
    asked = f"The data does not tell whether {target.name} is better or worse than {behavior}"
    return Answer("undecided", f"{asked}: {_undecided_clause(difference, how)}.", how)


def _difference_clause(difference: Figure, how: Style, above: bool) -> str:
    """How much better or worse: positive figures, the smaller one first."""
    sign = 1.0 if above else -1.0

    def with_sign(value: float | None) -> float | None:
        return None if value is None else sign * value

    ends = (difference.low, difference.high) if above else (difference.high, difference.low)
    size = Figure("", with_sign(difference.estimate), with_sign(ends[0]), with_sign(ends[1]))
    if size.estimate is None:
        return f", by at least {how.low(size.low)} ({numbers.level(difference)})"
    return f", by {how.near(size.estimate)} ({numbers.level(difference)} {how.interval(size)})"


def _undecided_clause(difference: Figure, how: Style) -> str:
    low, high = difference.low, difference.high
    guess = (
        ""
        if difference.estimate is None
        else f"; the best guess is {how.near(difference.estimate)}"
    )
    if low is None or high is None:
        return f"there is no interval{guess}"
    ends = [math.isfinite(low), math.isfinite(high)]
    interval = numbers.level(difference)
    if not any(ends):
        return f"any difference is possible ({interval} without limits){guess}"
    if all(ends):
        where = f"between {how.low(low)} and {how.high(high)}"
    else:
        where = f"at least {how.low(low)}" if ends[0] else f"at most {how.high(high)}"
    return f"the difference is {where} ({interval}){guess}"


def _value_only(name: str, target: Figure) -> Answer:
    how = numbers.style(target, numbers.exponent(target.numbers))
    if target.estimate is None:
        sentence = f"There is no single figure for the value of {target.name}."
    elif not target.has_interval:
        sentence = (
            f"The best guess for the value of {target.name} is {how.near(target.estimate)}. "
            "There is no interval, so nothing says how sure it is."
        )
    else:
        sentence = (
            f"{name} is worth {how.near(target.estimate)} "
            f"({numbers.level(target)} {how.interval(target)})."
        )
    return Answer("no comparison", sentence, how)


def describe_parts(parts: Split, of: str, how: Style) -> str:
    """What an interval's half-width is made of."""
    half = parts.half
    if half <= 0.0:
        return f"The interval of {of} has no width."
    sentence = f"The interval of {of} reaches about {how.high(half)} to either side. "
    shares = [
        ("chance in who happened to be in the data", parts.sampling),
        ("the noise that protects people", parts.noise),
        ("what clipped or missing weight could hide, at worst", parts.clipping),
    ]
    named = [
        f"{how.finer(1).near(size)} ({numbers.share(size / half)}) is {what}"
        for what, size in shares
        if size > 0.0
    ]
    sentence += "Of this, " + _join_parts(named) + ". "
    if parts.cut:
        sentence += "It stops where no value can lie, and would be wider otherwise."
    elif parts.noise > 0.0:
        saved = 1.0 - parts.without_noise / half
        sentence += (
            f"Without the noise it would reach {how.near(parts.without_noise)}: "
            f"privacy takes up {numbers.share(saved)} of its width."
        )
    else:
        sentence += "No noise is in it."
    return sentence


HOW_PARTS_ADD = (
    "Sampling and noise add up in squares, not in widths, so each has the share of the bar that "
    "its variance has. More people make both smaller, and a larger epsilon the noise. "
)
HOW_CLIPPING_ADDS = (
    "Clipping is not random: it is added in full, and only data in which more was tried, or a "
    "higher weight cap, makes it smaller."
)


def _join_parts(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])}, and {parts[-1]}"


WHAT_MATTERS = (
    "Whether a difference of this size matters is for those who know what a reward stands for."
)


def judge_sample_size(size: float, units: float, noun: str) -> Judgement:
    """What an effective sample size is good for."""
    word, means = next(said for above, *said in _SIZES if size >= above)
    return Judgement(
        word,
        f"The {numbers.count(units)} {noun} tell as much about this policy as "
        f"{numbers.count(size)} would that had followed it. {means}",
    )


_SIZES = (
    (1000.0, "Plenty", "No few records decide the values."),
    (100.0, "Enough for a coarse answer", "Small differences stay hidden."),
    (30.0, "Thin", "Only large differences can be seen, and a few records weigh much."),
    (-math.inf, "Too few", "Do not rely on the values: a handful of records decides them."),
)
NOISY = "The noise is in this figure too."
SAMPLE_SCALE = "Below 30 is too few, below 100 thin, below 1,000 enough for a coarse answer."


def judge_support(mass: Figure, allowed_for: bool | None) -> Judgement:
    """How much of what a policy does the data shows; judged by the low end, to be careful.

    `allowed_for` says whether the value's interval holds the worst that the rest could be, if
    that is known.
    """
    low = mass.low if mass.low is not None and math.isfinite(mass.low) else mass.estimate or 0.0
    word, means = next(said for least, *said in _SUPPORTS if low >= least)
    shown = numbers.percent(mass.estimate or 0.0)
    interval = ""
    if mass.low is not None and mass.high is not None and math.isfinite(mass.low + mass.high):
        interval = f" ({numbers.level(mass)} {numbers.percent(mass.low)} to "
        interval += f"{numbers.percent(mass.high, up=True)})"
    return Judgement(
        word,
        f"About {shown}{interval} of the policy's weight is in the data and below the cap. {means}"
        f"{_REST[allowed_for]}",
    )


_SUPPORTS = (
    (0.99, "Full", "Nearly all that the policy does is seen in the data."),
    (0.9, "Good", "Most of what the policy does is seen in the data."),
    (0.5, "Partial", "A good part of what the policy does may hardly be seen."),
    (-math.inf, "Poor", "Most of what the policy does may never be seen in the data."),
)
_REST = {
    True: " For the rest, the interval allows for the worst and the best that rewards can be.",
    False: " The interval does not allow for a rest: that there is none was given.",
    None: "",
}
SUPPORT_SCALE = "By the low end of the interval: 99 % is full, 90 % good, 50 % partial, less poor."


# --- privacy --------------------------------------------------------------------------------------


def guess(epsilon: float, delta: float) -> float:
    """The best probability to tell two equally likely data sets apart: (e^eps + delta) / (e^eps +
    1).

    From TPR <= e^eps FPR + delta and its mirror image, the mean of TPR and 1 - FPR is at most this.
    """
    inverse = math.exp(-epsilon)
    return min((1.0 + delta * inverse) / (1.0 + inverse), 1.0)


def detection(epsilon: float, delta: float, false_alarms: float) -> float:
    """How often a test can be right that raises false alarms this often.

    The lesser of e^eps FPR + delta and 1 - e^-eps (1 - FPR - delta).
    """
    steep = math.exp(min(epsilon, 700.0)) * false_alarms + delta
    flat = 1.0 - math.exp(-epsilon) * max(1.0 - false_alarms - delta, 0.0)
    return min(steep, flat, 1.0)


def noun(unit: Unit | None) -> str:
    """What there are many of."""
    words = {Unit.USER: "people", Unit.TRAJECTORY: "trajectories", Unit.AGENT: "agents"}
    return "records" if unit is None else words.get(unit, "records")


PROTECTED = {
    Unit.USER: "one person, with all of their trajectories",
    Unit.TRAJECTORY: "one trajectory, for example one stay in hospital",
    Unit.REWARD_FUNCTION: "the reward function",
    Unit.AGENT: "one agent: everything it saw and did for its reports",
}

_PROTECTED_SECRET = {
    Unit.USER: "what the data says about one person",
    Unit.TRAJECTORY: "what one trajectory holds",
    Unit.REWARD_FUNCTION: "which reward function was used",
    Unit.AGENT: "what one agent saw and did",
}

RELEASED = {
    Release.FINAL_MODEL: "every figure in this report, and anything that can be computed from them",
    Release.EVERY_ITERATE: "every figure in this report, and every step on the way to them",
    Release.EACH_REPORT: "each report, and anything that can be computed from it",
}

NOISE = {
    NoiseOrigin.SECURE: "secret: drawn from a cryptographic generator",
    NoiseOrigin.SECURE_KEY: "secret: driven by a fresh key",
    NoiseOrigin.REPRODUCIBLE: "not secret: made from a known seed",
    NoiseOrigin.NOT_DRAWN: "not drawn: this is a plan",
}


def describe_neighbours(certificate: Certificate) -> str:
    """Which two inputs must look alike."""
    if certificate.relation is Relation.REWARD_RADIUS:
        return (
            "being told from any other reward function that differs by no more than "
            f"{numbers.plain(certificate.reward_radius or 0.0)} anywhere"
        )
    return {
        Relation.ADD_REMOVE: "anyone finding out whether it is in the data at all",
        Relation.REPLACE_ONE: "anyone finding out what that data is, whatever it may be",
        Relation.LOCAL: "anyone finding out what that data is, even those who collect the reports",
    }[certificate.relation]


def promise(certificate: Certificate) -> str:
    """The promise in one sentence, with the attacker who knows most."""
    best = numbers.percent(guess(certificate.epsilon, certificate.delta), up=True)
    return (
        f"Somebody who knows everything else, and has two equally likely ideas of "
        f"{_PROTECTED_SECRET[certificate.unit]}, guesses right with a probability of "
        f"50{numbers.SPACE}% "
        f"before reading this report, and of at most {best} after."
    )


def weakness_warning(certificate: Certificate) -> str | None:
    """A warning if the promise is weak."""
    if guess(certificate.epsilon, certificate.delta) <= 0.95:
        return None
    return (
        "This is a weak promise: somebody who knows the rest could be nearly sure. Treat the "
        "report as you would treat the data."
    )


def protects(certificate: Certificate) -> list[str]:
    """What the promise is good for."""
    who = "the people in it" if certificate.unit is not Unit.REWARD_FUNCTION else "it"
    return [
        f"It holds for every reader of this report, whatever else they know about {who}, whatever "
        "computers they have, now and later.",
        "It holds for everything computed from the figures: tables, plots, decisions.",
        "It holds for the unusual as much as for the typical: the noise is made for extremes.",
    ]


def does_not_protect(certificate: Certificate) -> list[str]:
    """What nobody should take it for."""
    unit = certificate.unit
    found = [
        "Conclusions about everybody. If a treatment helps, the report may say so, and that may be "
        "true of you whether or not you are in the data.",
    ]
    if certificate.relation is not Relation.LOCAL:
        found.append(
            "Anything from those who hold the data. Whoever runs the analysis sees it, and is "
            "trusted."
        )
    if unit in (Unit.USER, Unit.TRAJECTORY):
        found.append(
            "What a person's own carers know. The data is a log of what was done: the person, and "
            "those who did it, know their part. The promise is about everyone else, and about "
            "what this report adds."
        )
    if unit is Unit.TRAJECTORY:
        found.append(
            "A person with several trajectories, as a whole. Each is covered for itself; k of them "
            "together have k times the epsilon, and a larger delta. Name people in the data to "
            "cover all of theirs at once."
        )
    if unit is Unit.USER:
        found.append(
            "Groups. A family of k people together has k times the epsilon, and a larger delta."
        )
    if certificate.relation is Relation.REPLACE_ONE:
        found.append(f"How many {noun(unit)} there are. That number is public.")
    found.append("The facts listed as public above. They were given, not protected.")
    return found


def describe_composition(certificate: Certificate) -> str:
    """What further analyses of the same people add up to."""
    held = certificate.population
    if held is None:
        return (
            "Every further analysis of the same people adds to what can be learned about them. "
            "Nothing here keeps count, since no ledger was used: with --ledger, privrl writes down "
            "every analysis of the same people, states their total, and can keep a limit."
        )
    times = "1 entry" if held.entries == 1 else f"{numbers.count(held.entries)} entries"
    if held.epsilon is None:
        return (
            f"Analyses of the same people add up. The ledger of “{held.name}” has {times}, this "
            "report included. Together they cost more than any epsilon that can be stated at delta "
            f"{numbers.plain(held.delta)}: over all of them, nothing is promised here. State the "
            "total at a larger delta with privrl ledger show --delta."
        )
    best = numbers.percent(guess(held.epsilon, held.delta), up=True)
    return (
        f"Analyses of the same people add up. The ledger of “{held.name}” has {times}, this report "
        f"included, which together cost epsilon {numbers.plain(held.epsilon)} at delta "
        f"{numbers.plain(held.delta)}: over all of them, the guess above is right with a "
        "probability of "
        f"at most {best}. Further analyses will add to it."
    )


def arithmetic(certificate: Certificate) -> str:
    """Whether the proof is about the numbers that were computed with."""
    if any(one.statement == IDEALISED_ARITHMETIC.statement for one in certificate.assumptions):
        return (
            "The proof is about real numbers, and computers round. The last digits of a released "
            "number might give something away that the proof does not see. This report rounds, "
            "but files made with it may not."
        )
    return "Sums and noise are whole numbers on a grid: the proof is about what was computed."


ORIGIN: dict[str, str] = {
    "given": "given by the analyst",
    "default": "the default",
    "derived": "follows from the others",
    "counted": "counted in the data",
    "declared": "not checked",
    "noticed": "noticed by privrl",
}


# Whether how many there are is among them.
SAID_IN_ADVANCE: dict[bool, str] = {
    False: "These were said in advance, never measured on the data.",
    True: "Apart from how many there are, these were said in advance, never measured on the data.",
}


def origin(fact: Fact) -> str:
    """Where a public fact comes from."""
    return ORIGIN.get(fact.origin, fact.origin)


NO_STATE_FITS = (
    "Not one of these values is in the interval of the policy's value above. Noise has the better "
    "of them, or they are about other steps or states: do not rely on them."
)


# --- estimators -----------------------------------------------------------------------------------

METHODS = {
    "PrivateValue": "weighs each logged trajectory by how much likelier the policy makes it",
    "PrivateGTD": "learns a value for every state, by small noisy steps",
    "PrivateLSTD": "learns a value for every state, from one noisy system of equations",
    "GPOPE": "learns a value for every state, one noisy {one} at a time (xie2019)",
    "DP-LSW": "fits a value for every state to logged returns (Balle et al. 2016)",
    "DP-LSL": "fits a value for every state to logged returns, with a penalty (Balle et al. 2016)",
    "IS": "weighs each logged trajectory by how much likelier the policy makes it",
    "PDIS": "weighs each logged reward by how much likelier the policy makes the way to it",
    "WIS": "weighs logged trajectories, relative to the sum of their weights",
    "WPDIS": "weighs logged rewards, relative to the sum of their weights",
    "DR": "learns a value for every state, and corrects it by weighted rewards",
    "WDR": "learns a value for every state, and corrects it by relatively weighted rewards",
    "FQE": "learns a value for every state and action",
    "LSTD": "learns a value for every state, from one system of equations",
    "WIS-LSTD": "learns a value for every state, from one weighted system of equations",
    "GTD2": "learns a value for every state, by small steps",
}


def describe_method(result: Result, unit: Unit | None, on_policy: bool) -> str | None:
    """What an estimator does, if that is known; `on_policy` if ratios are all 1."""
    if on_policy and result.method == "PrivateValue":
        return "averages logged returns"
    said = METHODS.get(result.method)
    return (
        None if said is None else said.format(one="person" if unit is Unit.USER else "trajectory")
    )


def describe_disagreement(main: str, others: list[str]) -> str:
    """What it means that other estimates are outside of the main interval."""
    return (
        f"Outside of the interval of {main}: {', '.join(others)}. Noise and clipping of their own "
        "may be why, or a slightly different question, or an assumption that fails."
    )


# These refuse to judge another policy than was followed: then no probability is used.
_ON_POLICY = ("DP-LSW", "DP-LSL")


def estimate_assumptions(results: Sequence[Result]) -> tuple[str, ...]:
    """What no statistic can tell of the data that the results are from."""
    used = not any(one.method in _ON_POLICY or one.settings.get("on_policy") for one in results)
    return _ESTIMATE_ASSUMPTIONS if used else _ESTIMATE_ASSUMPTIONS[1:]


_ESTIMATE_ASSUMPTIONS = (
    "The logged probabilities of the actions are right. Where they were estimated, errors in them "
    "are not in the intervals.",
    "Nothing that was not recorded drove both what was done and how it went. No statistic on this "
    "page can tell whether that is so.",
    "People are independent of one another, and those to come are like those in the data.",
)
