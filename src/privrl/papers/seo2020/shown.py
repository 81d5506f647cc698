"""What the targets of Seo and Yang (2020) share: names, readings, and what earlier runs gave."""

from typing import Any

from privrl.papers.reproduce import Reading

NAMES = ("MDP-100", "Taxi-v2")
TITLES = {"none": "Non-DP", "actor": "DP-Actor", "critic": "DP-Critic", "both": "DP-Both"}
PRIVATE = ("actor", "critic", "both")
LOST = "Our copy of the paper has no pictures."
TRIALS = "privrl.papers.seo2020.trials"
PRIVACY = f"{TRIALS}:privacy_rows"
POINTS = tuple(20.0 * k + 10.0 for k in range(25))

# --- readings -------------------------------------------------------------------------------------

STAY = {"stay": 0.9, "limit": 2000}


def by_environment(chain: dict[str, Any], **others: Any) -> dict[str, Any]:
    """By environment, so that what differs in MDP-100 alone is run once in Taxi-v2."""
    return {"MDP-100": {**chain, **others}, "Taxi-v2": others}


READINGS = (
    Reading("as printed", why="stay stays, 500 steps at most; Table 2's settings for all"),
    Reading(
        "stay advances",
        by_environment(STAY),
        "right is 'for example': stay may advance with probability 0.1; episodes have no cap",
    ),
    Reading(
        "best settings",
        by_environment({}, settings="best"),
        "the optimal combination is chosen for each case",
    ),
    Reading("stay advances, best settings", by_environment(STAY, settings="best"), "both"),
    Reading(
        "greedy law",
        by_environment(STAY, law="epsilon-greedy", rows="visited"),
        "gradient and ratio of the epsilon-greedy law, noise on the visited row alone",
        private=False,
    ),
)


_MEASURED: dict[tuple[str, str], tuple[float, float]] = {
    ("MDP-100", "none"): (-205.3, 12.0),
    ("MDP-100", "actor 10"): (-472.9, 27.0),
    ("MDP-100", "critic 10"): (-226.1, 30.0),
    ("MDP-100", "both 10"): (-480.2, 17.0),
    ("MDP-100", "chance"): (-219.0, 3.0),
    ("MDP-100", "certified 10"): (-109.1, 0.4),
    ("MDP-100", "certified 1"): (-112.2, 5.0),
    ("Taxi-v2", "none"): (-208.2, 10.0),
    ("Taxi-v2", "actor 10"): (-840.4, 121.0),
    ("Taxi-v2", "critic 10"): (-338.1, 58.0),
    ("Taxi-v2", "both 10"): (-984.1, 78.0),
    ("Taxi-v2", "chance"): (-766.0, 20.0),
}
"""What earlier runs in the reading as printed gave (docs/control/actor-critic.md): return of the
last 50 episodes, and its spread over runs. For planning alone."""

SPREAD = {"MDP-100": 40.0, "Taxi-v2": 120.0}
"""What is planned with where nothing was measured."""


def pilot(name: str, series: str) -> dict[str, Any]:
    mean, spread = _MEASURED.get((name, series), (None, SPREAD[name]))
    return {"pilot": mean, "spread": spread}


MARGIN = {"MDP-100": 60.0, "Taxi-v2": 120.0}
"""0.15 of what lies between the optimum (-109; 8.5) and learning nothing (-500; -766)."""
