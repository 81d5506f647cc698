"""Every way in: commands with their options, and their entry points in Python."""

import json
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from privrl.control import LoggedQ
from privrl.control.heads import Network
from privrl.data import Fourier, OneHot, Polynomial, Trajectories, stream_parquet
from privrl.evaluation import DPLSL, DPLSW, GPOPE, PrivateGTD, PrivateLSTD, PrivateValue
from privrl.privacy import Budget, Ledger
from privrl.privacy.session import PrivacySession
from privrl.run.evaluation import EvaluationSpec, evaluate
from tests.neighbours.running import POLICY, Command
from tests.neighbours.tables import count_rows

SEED = 7
BUDGET = Budget(1.0, 1e-3)

_BUDGET = "--epsilon 1 --delta 1e-3 --seed 7 --out run"
# So much less noise that figures are seldom at the ends of their ranges.
_LITTLE = "--epsilon 30 --delta 1e-3 --seed 7 --out run"
_STEPS = "--trajectory stay --time t --reward r --terminated died --reward-range 0,1"
_WARDS = "--state ward --action dose"
_VECTORS = "--state hr,map --action dose --num-actions 2 --state-range 30:200,40:140"
_WORDS = "--state condition --action drug --states mild,moderate,severe --actions none,some"
_JUDGED = "--policy policy.json --behavior-prob p --horizon 4 --gamma 0.9 --weight-cap 3"
# Without a policy: one over vectors would have to be written first.
_LOGGED = "--target-prob q --behavior-prob p --horizon 4 --gamma 0.9 --weight-cap 3"
_ALL = "--estimators value:3,gtd:1,lstd:1"
# As many rows as a table has, so that one more is too many for it.
_SMALL = {"privrl.data.stream.stream_parquet:batch_rows": 16}
_PARTS = {"privrl.data.stream.stream_parquet:batch_rows": 2 * count_rows()}


# In neutral words: what readers and commands are told of the stance.
Stated = Mapping[str, Any]
# Rewards and probabilities have a rule of their own, where only states are carried.
_NULLS = "--nulls carry,reward=0,behavior_prob=0.5"


def commands() -> list[Command]:
    """All of them."""
    return [*_evaluations(), *_lessons(), *_python()]


def _words(name: str, form: Any, *said: str, **more: Any) -> Command:
    words = " ".join(said).split()
    made = Command(name, form, by_user="--user" in words, ledger="--ledger" in words, **more)
    first = 2 if words[0] == "train" else 1
    return replace(made, words=(*words[:first], *made.paths, *words[first:]))


def _evaluations() -> Iterable[Command]:
    def asked(name: str, form: Any, *said: str, **more: Any) -> Command:
        budget = _BUDGET if form == "parquet" else _LITTLE
        return _words(f"evaluate {name}", form, "evaluate", budget, *said, **more)

    user, discrete = "--user patient", f"{_STEPS} {_WARDS} {_JUDGED}"
    yield asked("value,gtd,lstd", "parquet", discrete, user, _ALL, quick=True)
    yield asked("value,gtd by trajectory, CSV", "csv", discrete, "--json", quick=True)
    yield asked(
        "vectors, all estimators",
        "parquet",
        f"{_STEPS} {_VECTORS} {_LOGGED}",
        user,
        _ALL,
        "--features polynomial:1 --start 90:70,80:75 --json",
        quick=True,
    )
    yield asked(
        "vectors, fourier, CSV",
        "csv",
        f"{_STEPS} {_VECTORS} {_LOGGED}",
        "--features fourier:1 --estimators value,gtd --return-bound 5",
    )
    drawn = "--estimators value:3,gpope:1"
    yield asked("value,gpope", "parquet", discrete, user, drawn, noise="draws", costly=True)
    yield asked(
        "vectors, gpope",
        "parquet",
        f"{_STEPS} {_VECTORS} {_LOGGED} --features polynomial:1 --json",
        user,
        drawn,
        noise="draws",
        costly=True,
    )
    # Of the policy that was followed: without probabilities.
    followed = f"{_STEPS} {_WARDS} --num-states 3 --num-actions 2 --horizon 4 --gamma 0.9"
    yield asked("dplsw", "parquet", followed, user, "--estimators dplsw", noise="smooth")
    yield asked(
        "value,dplsw,dplsl, CSV",
        "csv",
        followed,
        "--estimators value,dplsw,dplsl --start 0,1 --json",
        noise="smooth",
    )
    yield asked(
        "dplsl --stream",
        "parquet",
        followed,
        user,
        "--estimators dplsl --stream",
        thresholds=_SMALL,
        noise="smooth",
    )
    yield asked("--grid, CSV", "csv", discrete, user, "--grid --estimators value", quick=True)
    yield asked("--grid --stream", "parquet", discrete, "--grid --stream --json", thresholds=_SMALL)
    yield asked("--stream", "parquet", discrete, user, _ALL, "--stream", thresholds=_SMALL)
    yield asked("--stream, large batches", "parquet", discrete, user, "--stream --json")
    # Its noise takes seconds to calibrate: beside that of the others, for people dealt to steps.
    yield asked(
        "--stream --sort", "parquet", discrete, user, _ALL, "--stream --sort", thresholds=_PARTS
    )
    yield asked(
        "--stream --sort, value,lstd",
        "parquet",
        discrete,
        user,
        "--estimators value,lstd --stream --sort",
        thresholds=_PARTS,
        quick=True,
    )
    yield asked(
        "--stream --sort by trajectory",
        "parquet",
        discrete,
        "--stream --sort --json",
        thresholds=_PARTS,
    )
    yield asked("--sort --nulls carry, CSV", "csv", discrete, user, f"--sort {_NULLS}")
    yield asked("--nulls carry", "parquet", discrete, user, _NULLS, quick=True)
    yield asked("--nulls carry --stream", "parquet", discrete, user, f"{_NULLS} --stream")
    yield asked("--ledger", "parquet", discrete, user, "--ledger people.ledger", quick=True)
    yield asked(
        "--ledger, killed and resumed",
        "parquet",
        discrete,
        user,
        _ALL,
        "--stream --ledger people.ledger",
        thresholds=_SMALL,
        killed=True,
    )
    yield asked("--ledger by trajectory, CSV", "csv", discrete, "--ledger people.ledger --json")
    yield asked(
        "--behavior",
        "parquet",
        f"{_STEPS} {_WARDS} --policy policy.json --behavior followed.json",
        "--horizon 4 --gamma 0.9 --weight-cap 3",
        user,
    )
    yield asked("--target-prob", "parquet", f"{_STEPS} {_WARDS} {_LOGGED} --num-states 3", user)
    yield asked(
        "--target-prob --behavior, CSV",
        "csv",
        f"{_STEPS} {_WARDS} --target-prob q --behavior followed.json --num-states 3",
        "--num-actions 2 --horizon 4 --gamma 0.9 --weight-cap 3",
    )
    yield asked("words, CSV", "csv", f"{_STEPS} {_WORDS} {_JUDGED}", user, quick=True)
    yield asked("words --stream", "parquet", f"{_STEPS} {_WORDS} {_JUDGED}", user, "--stream")
    yield asked(
        "names and dates",
        "parquet",
        discrete.replace("stay ", "stay_name ").replace("time t ", "time at "),
        "--user patient_name --sort --stream",
    )
    yield asked(
        "names and dates, CSV",
        "csv",
        discrete.replace("stay ", "stay_name ").replace("time t ", "time at "),
        "--user patient_name",
    )
    yield asked(
        "next states and truncation",
        "parquet",
        discrete,
        user,
        "--next-state next_ward --truncated moved",
        _ALL,
    )
    yield asked("next states, CSV", "csv", discrete, "--next-state next_ward --truncated moved")
    yield asked("two files, CSV", "csv", discrete, user, files=2)
    yield asked("two files --stream", "parquet", discrete, user, _ALL, "--stream", files=2)
    yield asked("two files --sort", "csv", discrete, user, "--sort --json", files=2)
    yield asked("no time", "parquet", discrete.replace("--time t ", ""), user)
    yield asked(
        "ranges of returns",
        "csv",
        discrete.replace("0.9", "1"),
        user,
        "--return-range 0,2 --largest-ratio 3 --level 0.9 --estimators value --title T",
    )
    yield asked(
        "--ray local",
        "parquet",
        discrete,
        user,
        "--ray local --estimators value,lstd",
        only=("more rows", "rewards of 1e308", "null in r"),
    )


def _lessons() -> Iterable[Command]:
    def asked(name: str, form: Any, *said: str, **more: Any) -> Command:
        words = "train logged-q"
        return _words(
            f"train {name}", form, words, _BUDGET, *said, noise="updates", costly=True, **more
        )

    few, user = "--updates 3", "--user patient"
    counted = "--num-states 3 --num-actions 2"
    yield asked("table", "parquet", _STEPS, _WARDS, counted, few, user, "--step 1", quick=True)
    yield asked(
        "table, adam, CSV",
        "csv",
        f"{_STEPS} {_WARDS} {counted} {few} --optimiser adam --target-every 2 --average 0 --json",
    )
    yield asked(
        "vectors",
        "parquet",
        f"{_STEPS} {_VECTORS} --features fourier:1 {few} {user} --json --clip 0.1",
    )
    yield asked(
        "network, CSV",
        "csv",
        f"{_STEPS} {_VECTORS} --features network:3 {few} {user} --gamma 0.5",
    )
    yield asked("words, CSV", "csv", f"{_STEPS} {_WORDS} {few} {user} --sort")
    yield asked(
        "--ledger --nulls carry",
        "parquet",
        f"{_STEPS} {_WARDS} {counted} {few} {user} --ledger people.ledger {_NULLS} --sort".replace(
            ",behavior_prob=0.5", ""
        ),
    )
    yield asked(
        "next states",
        "parquet",
        f"{_STEPS} {_WARDS} {counted} {few} --next-state next_ward --truncated moved",
    )


# --- Python --------------------------------------------------------------------------------------

_READ: dict[str, Any] = {
    "trajectory": "stay",
    "time": "t",
    "reward": "r",
    "behavior_prob": "p",
    "terminated": "died",
    "action": "dose",
    "num_actions": 2,
}
_OF_WARDS = _READ | {"state": "ward", "num_states": 3}
_OF_VECTORS = _READ | {"state": ["hr", "map"], "target_prob": "q"}
_OF_USERS = {"user": "patient"}
_BOX = ((30.0, 40.0), (200.0, 140.0))


def loaded(path: Path, stance: Stated, columns: dict[str, Any], stream: int = 0) -> Any:
    """The table, in memory or as a stream of batches of so many rows."""
    given = columns | {key: int(said) if key == "people" else said for key, said in stance.items()}
    sort = given.pop("sort", False)
    if stream:
        return stream_parquet(path, batch_rows=stream, sort=sort, **given)
    if path.suffix == ".csv":
        return Trajectories.from_csv(path, sort=sort, **given)
    return Trajectories.from_parquet(path, sort=sort, **given)


def _fitted(
    judge: Any, columns: dict[str, Any], policy: Any = None, stream: int = 0, pays: bool = False
) -> Any:
    def call(path: Path, stance: Stated) -> str:
        data = loaded(path, stance, columns, stream)
        given = {} if policy is None else {"policy": policy}
        with Ledger.open("people.ledger") if pays else nullcontext() as ledger:
            run = None if ledger is None else "run"
            session = PrivacySession(ledger=ledger, run=run, seed=SEED)
            return json.dumps(judge.fit(data, **given, session=session).to_dict())

    return call


def _python() -> Iterable[Command]:
    def fit(
        name: str, judge: Any, columns: dict[str, Any], policy: Any = None, **more: Any
    ) -> Command:
        reads = {
            one
            for said in columns.values()
            for one in ([said] if isinstance(said, str) else said if isinstance(said, list) else [])
        }
        form = more.pop("form", "parquet")
        stream, pays = more.pop("stream", 0), more.get("ledger", False)
        call = _fitted(judge, columns, policy, stream, pays)
        return Command(
            f"Python: {name}",
            form,
            call=call,
            reads=frozenset(reads),
            by_user="user" in columns,
            **more,
        )

    users = _OF_WARDS | _OF_USERS
    table: dict[str, Any] = {
        "features": OneHot(3),
        "reward_range": (0.0, 1.0),
        "budget": BUDGET,
        "gamma": 0.9,
    }
    gtd = PrivateGTD(**table, weight_cap=3.0, iterations=4)
    passed = replace(gtd, iterations=None, batch_units=2)
    lstd = PrivateLSTD(**table, weight_cap=3.0)
    value = PrivateValue(BUDGET, 3.0, 0.9, 4, (0.0, 1.0))
    yield fit("PrivateValue", value, users, POLICY)
    yield fit("PrivateValue, CSV", value, users, POLICY, form="csv", quick=True)
    yield fit("PrivateValue, stream", value, _OF_WARDS, POLICY, stream=16)
    yield fit("PrivateLSTD --ledger", lstd, users, POLICY, ledger=True)
    yield fit("PrivateLSTD, stream", lstd, users, POLICY, stream=32)
    yield fit("PrivateGTD", gtd, users, POLICY, quick=True)
    yield fit("PrivateGTD, CSV by trajectory", gtd, _OF_WARDS, POLICY, form="csv")
    yield fit("PrivateGTD, primal-dual", replace(gtd, form="primal-dual"), users, POLICY)
    yield fit("PrivateGTD, sampled", replace(gtd, rate=0.3, momentum=0.5), users, POLICY)
    yield fit("PrivateGTD, one pass", passed, users, POLICY, quick=True)
    yield fit("PrivateGTD, one pass, sorted", passed, users | {"sort": True}, POLICY)
    yield fit(
        "PrivateGTD, one pass, sorted CSV", passed, users | {"sort": True}, POLICY, form="csv"
    )
    streamed = replace(passed, iterations=6)
    yield fit("PrivateGTD, one pass, stream", streamed, users, POLICY, stream=16, quick=True)
    yield fit(
        "PrivateGTD, one pass, sorted stream",
        streamed,
        users | {"sort": True},
        POLICY,
        stream=2 * count_rows(),
        quick=True,
    )
    yield fit(
        "PrivateGTD, one pass, stream by trajectory",
        replace(streamed, iterations=7),
        _OF_WARDS,
        POLICY,
        stream=16,
        ledger=True,
    )
    dense = {**table, "features": Polynomial(2, *_BOX)}
    vectors = _OF_VECTORS | _OF_USERS
    yield fit("PrivateGTD, vectors", PrivateGTD(**dense, weight_cap=3.0, iterations=4), vectors)
    yield fit("PrivateLSTD, vectors", PrivateLSTD(**dense, weight_cap=3.0), vectors)
    yield fit(
        "PrivateGTD, vectors, one pass",
        PrivateGTD(**dense, weight_cap=3.0, batch_units=3),
        vectors,
        form="csv",
    )
    yield fit(
        "GPOPE",
        GPOPE(OneHot(3), BUDGET, 0.5, 0.1, 0.9, 5, weight_cap=3.0),
        users,
        POLICY,
        noise="draws",
    )
    on_policy = {name: said for name, said in users.items() if name != "behavior_prob"}
    for judge in (DPLSW(**table), DPLSL(**table)):
        yield fit(type(judge).__name__, judge, on_policy, noise="smooth")
    q = LoggedQ(2, (0.0, 1.0), BUDGET, num_states=3, updates=3, step=1.0)
    yield fit("LoggedQ", q, on_policy, noise="updates", ledger=True)
    yield fit(
        "LoggedQ, CSV by trajectory",
        q,
        {name: said for name, said in on_policy.items() if name != "user"},
        form="csv",
        noise="updates",
    )
    heads: dict[str, Any] = {
        "vectors": Fourier(1, *_BOX),
        "network": Network((3,), Polynomial(1, *_BOX)),
    }
    for name, features in heads.items():
        yield fit(
            f"LoggedQ, {name}",
            replace(q, features=features, num_states=None, optimiser="adam"),
            {key: said for key, said in vectors.items() if not key.endswith("_prob")},
            noise="updates",
        )

    def whole(path: Path, stance: Stated) -> str:
        asked = EvaluationSpec(
            (0.0, 1.0), 3.0, BUDGET, 4, 0.9, estimators={"value": 2.0, "gtd": 1.0, "lstd": 1.0},
            features=OneHot(3), start=[0, 1],
        )  # fmt: skip
        return json.dumps(evaluate(loaded(path, stance, users), POLICY, asked, seed=SEED).to_dict())

    reads = frozenset({"stay", "t", "r", "p", "died", "dose", "ward", "patient"})
    yield Command("Python: run.evaluate", "parquet", call=whole, reads=reads)
