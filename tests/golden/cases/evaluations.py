"""Evaluations: commands and calls of the suite of neighbours, and estimators without privacy."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from privrl.data import OneHot, Trajectories
from privrl.evaluation import (
    DPLSL,
    DR,
    FQE,
    GTD2,
    IS,
    LSTD,
    PDIS,
    WDR,
    WIS,
    WISLSTD,
    WPDIS,
    Schema,
    choose,
    moments,
    mspbe,
    simulate_like,
)
from privrl.papers import xie2019
from privrl.privacy import Budget, Unit
from privrl.privacy.session import PrivacySession
from tests.fuzz.stock import BUDGET, EVALUATE, TABLE, VECTORS
from tests.golden.running import Cases, files, said
from tests.neighbours.commands import commands
from tests.neighbours.running import POLICY, Command

CASES = Cases()

# Of the suite of neighbours, what differs by more than the table's form.
_WORDS = (
    "value,gtd,lstd",
    "value,gtd by trajectory, CSV",
    "vectors, all estimators",
    "vectors, fourier, CSV",
    "value,gpope",
    "dplsw",
    "value,dplsw,dplsl, CSV",
    "--grid, CSV",
    "--stream",
    "--sort --nulls carry, CSV",
    "--nulls carry --stream",
    "--behavior",
    "--target-prob --behavior, CSV",
    "words, CSV",
    "names and dates",
    "next states and truncation",
    "ranges of returns",
)
_CALLS = (
    "PrivateValue, stream",
    "PrivateLSTD, vectors",
    "PrivateGTD, primal-dual",
    "PrivateGTD, sampled",
    "PrivateGTD, one pass",
    "PrivateGTD, one pass, sorted stream",
    "PrivateGTD, vectors",
    "GPOPE",
    "DPLSW",
    "DPLSL",
    "run.evaluate",
)


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _called(command: Command) -> Callable[[], Any]:
    if command.call is None:
        return lambda: said(*command.words) | _but_report(files("run"))
    call = command.call
    return lambda: json.loads(call(Path(command.paths[0]), {}))


def _but_report(found: dict[str, Any]) -> dict[str, Any]:
    """The report's text is long, and made of the study: one case keeps it."""
    return {name: content for name, content in found.items() if name != "report.html"}


_listed = {command.name: command for command in commands()}
for _name in _WORDS:
    CASES.add(f"evaluate-{_slug(_name)}", _called(_listed[f"evaluate {_name}"]))
for _name in _CALLS:
    CASES.add(f"python-{_slug(_name)}", _called(_listed[f"Python: {_name}"]))

_STAYS = ["evaluate", "stays.csv", *EVALUATE, "--out", "run"]


@CASES.case
def evaluate_reported() -> Any:
    return said(*_STAYS, *BUDGET) | files("run") | {"again": said("report run")}


@CASES.case
def evaluate_public() -> Any:
    return said(*_STAYS, "--public", "--start", "0,1") | files("run")


@CASES.case
def evaluate_public_vectors() -> Any:
    words = ["evaluate", "stays.csv", *VECTORS, "--features", "polynomial:1", "--public"]
    return said(*words, "--out", "run") | _but_report(files("run"))


@CASES.case
def evaluate_neutral() -> Any:
    """A table that is not valid in places."""
    path = Path("stays.csv")
    lines = path.read_text().splitlines()
    lines[3] = lines[3].replace(",0.5,", ",7.5,")
    lines[9] += ",too,long"
    path.write_text("\n".join(lines))
    neutral = ["--invalid", "neutral", "--people", "12", "--estimators", "value,gtd,lstd"]
    return {
        "refused": said(*_STAYS, *BUDGET),
        "neutral": said(*_STAYS, *BUDGET, *neutral) | _but_report(files("run")),
    }


@CASES.case
def evaluate_ledger() -> Any:
    made = said(
        "ledger create some.ledger --population some --people 12 --epsilon 2.5 --delta 0.01"
    )
    paying = [*_STAYS, *BUDGET, "--ledger", "some.ledger"]
    first = said(*paying) | _but_report(files("run"))
    return {
        "made": made,
        "first": first,
        "second": said(*paying[:-4], "--out", "more", *BUDGET, *paying[-2:]),
        "third": said(*paying[:-4], "--out", "third", *BUDGET, *paying[-2:]),
        "shown": said("ledger show some.ledger"),
        "exported": said("ledger export some.ledger"),
        "checked": said("ledger check some.ledger --certificate run/certificate.json"),
        "verified": said("verify run/certificate.json"),
    }


@CASES.case
def evaluate_config() -> Any:
    words = "evaluate --config config.toml --seed 7 --out run --json"
    return said(words) | _but_report(files("run"))


@CASES.case
def check_commands() -> Any:
    read = ["stays.csv", *TABLE]
    return {
        "text": said("check", *read),
        "json": said("check", *read, "--json"),
        "refused": said("check", "stays.csv", *TABLE, "--num-states", "2"),
    }


# --- without privacy ------------------------------------------------------------------------------


def _stays(**more: Any) -> Trajectories:
    return Trajectories.from_csv(
        "stays.csv", trajectory="stay", time="t", user="patient", reward="r", behavior_prob="p",
        terminated="died", action="dose", num_actions=2, **more,
    )  # fmt: skip


@CASES.case
def plain_estimators() -> Any:
    data = _stays(state="ward", num_states=3)
    table = OneHot(3)
    q = FQE(0.9, iterations=4).action_values(data, POLICY)
    return {
        **{
            kind.__name__: kind(0.9, 4, 3.0).fit(data, POLICY)
            for kind in (IS, PDIS, WIS, WPDIS)
        },
        "WIS, bootstrap": WIS(0.9, 4, interval="bootstrap", draws=50, seed=3).fit(data, POLICY),
        "DR": DR(0.9, 4, q=q).fit(data, POLICY),
        "WDR": WDR(0.9, 4, q=q).fit(data, POLICY),
        "FQE": FQE(0.9, iterations=4).fit(data, POLICY, start=[0, 1]),
        "LSTD": LSTD(table, 0.9).fit(data, POLICY, start=[0, 1]),
        "LSTD by trajectories": LSTD(table, 0.9, "trajectories").fit(data, POLICY),
        "WISLSTD": WISLSTD(table, 0.9, 0.5).fit(data, POLICY),
        "GTD2": GTD2(table, 0.9, 0.1, 50, batch=4, seed=3).fit(data, POLICY),
        "MSPBE": mspbe(np.array([0.1, 0.2, 0.3]), moments(data, POLICY, table, 0.9)),
        "choice": choose(
            np.random.default_rng(2).uniform(size=(30, 3)), low=0.0, high=1.0, epsilon=2.0,
            unit=Unit.USER, session=PrivacySession(seed=3),
        ),
    }  # fmt: skip


@CASES.case
def python_papers_estimators() -> Any:
    """GPOPE, DP-LSW and DP-LSL with the settings that commands of the suite leave out."""
    data = _stays(state="ward", num_states=3)
    on_policy = Trajectories.from_csv(
        "stays.csv", trajectory="stay", time="t", user="patient", reward="r", terminated="died",
        action="dose", num_actions=2, state="ward", num_states=3,
    )  # fmt: skip
    table, budget = OneHot(3), Budget(2.0, 1e-3)
    gpope: dict[str, Any] = {"gamma": 0.9, "iterations": 6, "weight_cap": 3.0}
    smooth: dict[str, Any] = {"features": table, "reward_range": (0.0, 1.0), "budget": budget}
    return {
        "GPOPE, paper": xie2019.GPOPE(table, budget, 0.5, 0.1, **gpope).fit(
            data, POLICY, session=PrivacySession(seed=7)
        ),
        "GPOPE, sigma": xie2019.GPOPE(
            table, budget, 0.5, 0.1, **gpope, sigma=0.2, schedule="diminishing"
        ).fit(data, POLICY, session=PrivacySession(seed=7)),
        "DPLSW, published": xie2019.DPLSW(**smooth, gamma=0.5).fit(
            on_policy, session=PrivacySession(seed=7)
        ),
        "DPLSL, ridge": DPLSL(**smooth, gamma=0.5, ridge=5.0).fit(
            on_policy, session=PrivacySession(seed=7)
        ),
    }


@CASES.case
def simulated_data() -> Any:
    table = Schema(8, 5, 2, (0.0, 1.0), num_states=4, num_users=4, ending=0.1)
    box = Schema(8, 5, 2, (0.0, 1.0), low=(0.0, -1.0), high=(1.0, 2.0))
    return {
        name: {
            "states": found.states,
            "actions": found.actions,
            "rewards": found.rewards,
            "behavior_probs": found.behavior_probs,
        }
        for name, found in (("table", simulate_like(table, 3)), ("box", simulate_like(box, 3)))
    }
