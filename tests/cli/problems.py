"""A tiny problem for every learner, as `privrl train` is told it, and the same in Python.

All tests of a learner use the same sizes, so that its program is compiled once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from privrl.privacy import Relation, Unit

TABLE = "stays.parquet"
SEED = 7
PEOPLE = 25
Told = list[tuple[int, int]]


def write_stays(path: Path) -> None:
    """Stays of three steps, two for each of 25 patients; more blood pressure wants a dose."""
    draw, stays = np.random.default_rng(0), 2 * PEOPLE
    count = 3 * stays
    pressure, dose = draw.uniform(40, 140, count), draw.integers(2, size=count)
    columns = {
        "stay": np.repeat(np.arange(stays), 3),
        "patient": np.repeat(np.arange(stays) % PEOPLE, 3),
        "t": np.tile(np.arange(3), stays),
        "hr": draw.uniform(30, 200, count),
        "map": pressure,
        "ward": draw.choice(["north", "south"], count),
        "dose": dose,
        "drug": np.where(dose == 1, "some", "none"),
        "p": np.full(count, 0.5),
        "r": np.where((pressure > 90) == (dose == 1), 1.0, -1.0),
    }
    pq.write_table(pa.table(columns), path)


@dataclass(frozen=True)
class Problem:
    """What to say after `privrl train LEARNER`, in a folder in which TABLE is."""

    words: Sequence[str]
    states: Any
    """Some states, at which the saved policy must be what was learned."""

    printed: Sequence[str] = ()
    """Sentences about a run whose randomness is secret, spaces as one."""

    printed_if_public: Sequence[str] = ()
    hidden: str = "return"
    """A word that is in none of them."""

    public: Sequence[str] = ()
    """What to say so that diagnostics are kept; nothing if there are none, or they take long."""

    files: Sequence[str] = ("certificate.json", "policy.json", "result.json", "run.json")
    log_lines: int = 0
    """Of log.csv, if diagnostics are kept."""

    unit: Unit | None = None
    """Of the ledger that pays; None for a paper's algorithm, for which none can."""

    relation: Relation = Relation.REPLACE_ONE
    source: str = ""
    """Of a claim."""

    paid: Sequence[int] = ()
    """How many entries the ledger has at each stop."""

    stops: Sequence[tuple[int, str]] = ()
    """After so many questions whether to stop, and what is said then; nothing if it cannot be."""

    config: str = ""
    """Options in a file, with an epsilon of 9, and lines that are refused there with a sentence."""

    settings: Callable[[Any], bool] = bool
    refused: Sequence[tuple[str, str]] = ()
    in_python: Callable[[Path, Told], Any] | None = None
    """What is learned from SEED, diagnostics kept."""


_BUDGET = ("--epsilon", "5", "--delta", "1e-6")
_REWARD = (*("certificate.json", "policy.json", "result.json"), "reward_model.json", "run.json")
_CLAIM = ("claim.json", "policy.json", "result.json", "run.json")


def _prospect(_: Path, __: Told) -> Any:
    from privrl.control import ProspectQ
    from privrl.privacy import Budget
    from privrl.privacy.session import PrivacySession
    from privrl.risk import Prospect

    agent = ProspectQ(
        prospect=Prospect.tversky_kahneman(),
        budget=Budget(1.0, 1e-6),
        reward_radius=0.01,
        reward_range=(-50.0, 0.0),
        steps=300,
        samples=5,
    )
    return agent.learn("ObstacleGrid", session=PrivacySession(seed=SEED))


def _pgc(_: Path, __: Told) -> Any:
    from privrl.control import PGC, OneOf
    from privrl.envs.control import CartPole
    from privrl.privacy.session import PrivacySession

    env = CartPole()
    varied = OneOf(env, "gravity", (9.7, 9.8))
    agent = PGC(2.0, "laplace", hidden=(2,), flight=3, buffer=4, dynamics=varied)
    return agent.learn(env, 40, session=PrivacySession(seed=SEED, public=True))


def _logged_q(folder: Path, _: Told) -> Any:
    from privrl.control import LoggedQ
    from privrl.data import Fourier, Trajectories
    from privrl.privacy import Budget
    from privrl.privacy.session import PrivacySession

    data = Trajectories.from_parquet(
        folder / TABLE,
        trajectory="stay",
        user="patient",
        time="t",
        state=["hr", "map"],
        action="dose",
        reward="r",
        num_actions=2,
    )
    features = Fourier(1, (30.0, 40.0), (200.0, 140.0))
    learner = LoggedQ(2, (-1.0, 1.0), Budget(1.0, 1e-3), features, updates=4)
    return learner.fit(data, session=PrivacySession(seed=SEED))


def _seo2020(_: Path, __: Told) -> Any:
    from privrl.papers.seo2020 import ActorCritic

    return ActorCritic(epsilon=5.0, delta=1e-6, max_steps=6).learn(
        "Chain", 40, seed=SEED, public=True
    )


def _rajabi2022(_: Path, told: Told) -> Any:
    from privrl.papers.rajabi2022 import ProspectQ

    agent = ProspectQ.printed(epsilon=0.9, iterations=2, batch=3, samples=4)
    found = agent.learn(
        "ObstacleSquare", seed=SEED, public=True, progress=lambda *at: told.append(at)
    )
    assert told[-1] == (2, 2)
    return found


PROBLEMS = {
    "actor-critic": Problem(
        [
            *("--env", "Chain", "--max-steps", "6", "--people", "40", "--batch", "4"),
            *("--return-range", "0,1", *_BUDGET),
        ],
        np.arange(3),
        ["Certified: epsilon 5 at delta 1e-06, trajectory, replace-one."],
        [
            "mean return of the first tenth",
            "The returns were declared public: no promise is made about them.",
        ],
        public=["--public"],
        log_lines=41,
        unit=Unit.TRAJECTORY,
        paid=(1, 1),
        stops=[(3, "Stopped after"), (2, "Stopped after")],
        config='env = "Chain"\npeople = 40\nbatch = 4\nmax-steps = 6\nepsilon = 9\ndelta = 1e-6\n'
        "clip = 2\nlambda_ = 0.5\nreturn-range = [0, 1]\n",
        settings=lambda x: (x["epsilon"], x["clip"], x["lambda_"]) == (5.0, 2.0, 0.5),
        refused=[
            ("peple = 3", "There is no option 'peple' of actor-critic. Did you mean 'people'?"),
            ("seed = 3", "seed belongs on the command line"),
            ("people = 2.5", "people must be a whole number"),
            ("public = 1", "public must be true or false"),
            ("env = 3", "env must be text"),
        ],
    ),
    "functional-q": Problem(
        [
            *("--env", "Interval", "--steps", "200", "--rounds", "20", "--reward-radius", "0.01"),
            *("--reward-range", "0,0.5", "--epsilon", "0.9", "--delta", "1e-4"),
        ],
        np.array([[0.1], [0.5], [0.9]]),
        [
            "Certified: epsilon 0.9 at delta 0.0001, reward-function, reward-radius.",
            "from any other within 0.01 of it at every point",
            "Any number of queries is free.",
        ],
        files=_REWARD,
        unit=Unit.REWARD_FUNCTION,
        relation=Relation.REWARD_RADIUS,
        paid=(0, 1),
        stops=[
            (0, "Stopped after 1 of 3 stages; what was done is kept."),
            (1, "Stopped after 2 of 3 stages; what was done is kept."),
        ],
        config='env = "Chain"\nsteps = 50\nreward-radius = 1\nepsilon = 9\ndelta = 1e-6\n'
        "design = 0\nreward-range = [0, 1]\n",
        settings=lambda x: (x["epsilon"], x["reward_range"], x["design"]) == (5.0, [0.0, 1.0], 0),
        refused=[
            ("people = 3", "There is no option 'people' of functional-q."),
            ("reward_radus = 3", "Did you mean 'reward_radius'?"),
            ("out = 'x'", "out belongs on the command line"),
            ("steps = 2.5", "steps must be a whole number"),
            ("learner = 'actor-critic'", "is for the learner 'actor-critic', and you said"),
        ],
    ),
    "prospect": Problem(
        [
            *("--env", "ObstacleGrid", "--steps", "300", "--samples", "5"),
            *("--reward-radius", "0.01", "--reward-range=-50,0", "--epsilon", "1"),
            *("--delta", "1e-6", "--prospect", "tversky-kahneman"),
        ],
        np.arange(4),
        [
            "Certified: epsilon 1 at delta 1e-06, reward-function, reward-radius.",
            "from any other within 0.01 of it at every point",
        ],
        files=_REWARD,
        unit=Unit.REWARD_FUNCTION,
        relation=Relation.REWARD_RADIUS,
        in_python=_prospect,
    ),
    "pgc": Problem(
        [
            *("--env", "CartPole", "--agents", "40", "--epsilon", "2", "--mechanism", "laplace"),
            *("--hidden", "2", "--flight", "3", "--buffer", "4", "--vary", "gravity=9.7,9.8"),
        ],
        np.random.default_rng(1).normal(size=(4, 4)),
        [
            "CartPole: a policy from 40 reports of agents.",
            "Certified: epsilon 2 at delta 0, agent, local.",
        ],
        ["With secret noise, and not from a seed, protected would be each agent"],
        public=["--public"],
        log_lines=41,
        stops=[(5, "of 40 reports; what was done is kept")],
        in_python=_pgc,
    ),
    "logged-q": Problem(
        [
            *(TABLE, "--trajectory", "stay", "--user", "patient", "--time", "t"),
            *("--state", "hr,map", "--action", "dose", "--reward", "r", "--epsilon", "1"),
            *("--delta", "1e-3", "--reward-range", "-1,1", "--num-actions", "2"),
            *("--state-range", "30:200,40:140", "--features", "fourier:1", "--updates", "4"),
        ],
        np.array([[60.0, 50.0], [90.0, 130.0]]),
        [
            "stays.parquet: values of actions from 25 people.",
            "Certified: epsilon 1 at delta 0.001, user, replace-one.",
            "Protected is each user,",
            "What rewards are given for is not protected.",
            "Judge the policy by privrl evaluate on other people",
        ],
        hidden="--user",
        unit=Unit.USER,
        config=f'table = "{TABLE}"\n'
        'trajectory = "stay"\nuser = "patient"\nstate = ["hr", "map"]\naction = "dose"\n'
        'reward = "r"\nstate-range = [[30, 200], [40, 140]]\nreward-range = [-1, 1]\n'
        "num-actions = 2\nepsilon = 9\ndelta = 1e-3\nupdates = 2\n",
        refused=[
            ("env = 'Taxi-v4'", "env is not used: logged-q learns from a table."),
            ("episodes = 3", "There is no option 'episodes' of logged-q."),
            ("out = 'x'", "out belongs on the command line"),
            ("learner = 'actor-critic'", "is for the learner 'actor-critic', and you said"),
        ],
        in_python=_logged_q,
    ),
    "seo2020-actor-critic": Problem(
        ["--env", "Chain", "--max-steps", "6", "--episodes", "40", *_BUDGET],
        np.arange(3),
        ["Claimed, not certified: epsilon 5 at delta 1e-06"],
        public=["--public"],
        files=_CLAIM,
        log_lines=41,
        stops=[(3, "Stopped after"), (2, "Stopped after")],
        in_python=_seo2020,
    ),
    "wang2019-functional-q": Problem(
        [
            *("--env", "Interval", "--epsilon", "0.9", "--delta", "1e-4", "--samples", "300"),
            *("--resets", "2"),
        ],
        np.linspace(0.0, 1.0, 11)[:, None],
        [
            "Claimed, not certified: epsilon 0.9 at delta 0.0002 for the whole run",
            "Nothing is certified: the parameters themselves are never noised",
        ],
        files=_CLAIM,
        stops=[(2, "Stopped after 3 of 6 episodes")],
    ),
    "rajabi2022-prospect": Problem(
        [
            *("--env", "ObstacleSquare", "--iterations", "2", "--batch", "3", "--samples", "4"),
            *("--epsilon", "0.9"),
        ],
        np.array([[0.5, 0.5], [7.2, 3.3]]),
        [
            "ObstacleSquare: values of actions from 2 iterations of 3 steps.",
            "Claimed, not certified: epsilon 0.9",
            "Nothing is certified: iterations are never added up",
        ],
        source="rajabi2022, Theorem 1",
        public=["--public"],
        files=_CLAIM,
        log_lines=3,
        in_python=_rajabi2022,
    ),
}
