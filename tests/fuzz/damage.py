"""Ways to spoil things, each drawn from a generator of random numbers."""

import copy
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Rng = np.random.Generator

# A word that no message may quote: it is put into cells of tables, which are private.
PRIVATE_WORD = "zqxj7secret"
PRIVATE_NUMBER = "73190264.515"

DEEP = 3000


class Raw(str):
    """JSON text that stands as it is, where Python has no value for it."""

    __slots__ = ()


def choice(rng: Rng, among: Sequence[Any]) -> Any:
    """One of these, unchanged by NumPy."""
    return among[int(rng.integers(len(among)))]


ODD_JSON: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 3, 7, 1.5, -0.0, 1e-320, 1e308, -1e308, 10**30, -(10**30)),
    *("", " ", "a", "0", "1", "nan", "null", "x" * 2000, "\x1b[2Jx", "\u202e", "\x00", "é", "a\nb"),
    *(
        [],
        {},
        [[]],
        [None],
        [1, 2, 3],
        [[1, 2], [3]],
        ["a", 1],
        {"a": 1},
        {"": None},
        [{}],
        [[[1]]],
    ),
    *(Raw("NaN"), Raw("Infinity"), Raw("-Infinity"), Raw("1e400"), Raw("-1e400")),
    *(Raw("9" * 5000), Raw("0." + "1" * 5000), Raw('"\\ud800"'), Raw("1e-400"), 2**63, 2**64, 4.0),
    *([0.5, 0.5], [1.0], {"kind": "gaussian"}, "gaussian", "replace-one", "user", "2026-01-01"),
    Raw("[" * DEEP + "]" * DEEP),
]


def places(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to everything in a JSON value, itself included."""
    found = [here]
    inside: Any = ()
    if isinstance(value, dict):
        inside = value.items()
    elif isinstance(value, list):
        inside = enumerate(value[:40])
    for key, one in inside:
        found += places(one, (*here, key))
    return found


def spoiled_json(rng: Rng, value: Any, times: int | None = None) -> bytes:
    """JSON text of the value, with something wrong in one place or some."""
    spoiled = copy.deepcopy(value)
    for _ in range(times or int(choice(rng, [1, 1, 1, 2, 4]))):
        # Places near the root are as likely as the many leaves of a long list.
        listed = places(spoiled)
        depth = int(rng.integers(1 + max(map(len, listed))))
        listed = [one for one in listed if len(one) == depth] or listed
        spoiled = _spoiled_at(rng, spoiled, choice(rng, listed))
    text = written(spoiled)
    if rng.random() < 0.15:
        return spoiled_bytes(rng, text.encode(errors="surrogatepass"))
    if rng.random() < 0.05:
        text = _doubled(rng, text)
    return text.encode(errors="surrogatepass")


def _spoiled_at(rng: Rng, whole: Any, path: tuple[Any, ...]) -> Any:
    if not path:
        return _other(rng, whole)
    holder = whole
    for key in path[:-1]:
        holder = holder[key]
    key = path[-1]
    action = choice(rng, ["replace", "replace", "replace", "change", "delete", "rename", "swap"])
    if action == "delete":
        del holder[key]
    elif action == "rename" and isinstance(holder, dict):
        holder[choice(rng, [f"{key}x", "", key.upper(), "kind", "_class"])] = holder.pop(key)
    elif action == "swap" and len(holder) > 1:
        other = choice(rng, list(holder) if isinstance(holder, dict) else range(len(holder)))
        holder[key], holder[other] = holder[other], holder[key]
    elif action == "replace":
        holder[key] = copy.deepcopy(choice(rng, ODD_JSON))
    else:
        holder[key] = _other(rng, holder[key])
    return whole


def _other(rng: Rng, value: Any) -> Any:
    """Something like the value, and yet not."""
    if isinstance(value, bool) or value is None:
        return choice(rng, ODD_JSON)
    if isinstance(value, int | float):
        by = [-value, value + 1, value * 1e6, str(value), [value], value / 3, 1e308, Raw("NaN")]
        return choice(rng, [*by, int(value) if math.isfinite(value) else 0, 0, None])
    if isinstance(value, str) and not isinstance(value, Raw):
        by_text = [value + "x", value[:-1], [value], {value: value}, value.upper(), value * 50]
        return choice(rng, [*by_text, 0, None, value + "\x1b[31m", len(value)])
    if isinstance(value, list):
        by_list = [value[:-1], value + value[-1:], value[::-1], [value], dict(enumerate(value)), []]
        return choice(rng, [*by_list, [*value, None], value * 3, tuple(value)[:1], [*value, "x"]])
    if isinstance(value, dict):
        by_dict = [list(value.items()), list(value), {**value, "more": 1}, {}, [value]]
        return choice(rng, [*by_dict, {"": value}, None, "x"])
    return choice(rng, ODD_JSON)


def written(value: Any) -> str:
    """JSON text, in which `Raw` parts stand as they are."""
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, dict):
        inside = (f"{json.dumps(str(k))}: {written(v)}" for k, v in value.items())
        return "{" + ", ".join(inside) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(written, value)) + "]"
    return json.dumps(value)


def _doubled(rng: Rng, text: str) -> str:
    """The text with the first key of some object twice."""
    opened = [i for i, sign in enumerate(text) if sign == "{"]
    if not opened:
        return text + text
    at = choice(rng, opened) + 1
    return text[:at] + '"kind": 1, "kind": 2, ' + text[at:]


def spoiled_bytes(rng: Rng, content: bytes) -> bytes:
    """Bytes flipped, cut, put in, doubled, or in another encoding."""

    def flipped() -> bytes:
        changed = bytearray(content)
        for place in rng.integers(len(changed), size=int(rng.integers(1, 5))):
            changed[place] ^= int(rng.integers(1, 256))
        return bytes(changed)

    def cut() -> bytes:
        return content[: int(rng.integers(len(content)))]

    def holed() -> bytes:
        begin = int(rng.integers(len(content)))
        return content[:begin] + content[begin + int(rng.integers(1, 40)) :]

    def filled() -> bytes:
        begin = int(rng.integers(len(content)))
        more: bytes = choice(
            rng, [b"\0", b"\xff\xfe", b"\n", b"\r", b'"', b",", b"{", b"\x1b[2J", b"\x1a"]
        )
        return content[:begin] + more * int(rng.integers(1, 5)) + content[begin:]

    def zeroed() -> bytes:
        begin = int(rng.integers(len(content)))
        end = min(len(content), begin + int(rng.integers(1, 200)))
        return content[:begin] + bytes(end - begin) + content[end:]

    def noise() -> bytes:
        return rng.bytes(int(rng.integers(0, 300)))

    def moved() -> bytes:
        half = int(rng.integers(len(content)))
        return content[half:] + content[:half]

    def encoded() -> bytes:
        text = content.decode("latin-1")
        return text.encode(choice(rng, ["utf-16", "utf-32", "utf-8", "utf-8-sig", "utf-16-le"]))

    def replaced() -> bytes:
        known = [b"", b"\n", b"\xef\xbb\xbf", b"null", b"[]", b"{}", b"0", b'""']
        return bytes(choice(rng, known))

    ways: list[Callable[[], bytes]] = [flipped, flipped, flipped, cut, cut, holed, filled, zeroed]
    ways += [noise, moved, encoded, replaced, lambda: content + content]
    return replaced() if not content else choice(rng, ways)()


# --- words of the command line -------------------------------------------------------------------

NUMBERS = [
    *(
        "0",
        "-1",
        "1",
        "2",
        "3",
        "1.5",
        "-0.0",
        "0.5",
        "0.999999",
        "1e-3",
        "1e-9",
        "1e-100",
        "1e-300",
    ),
    *("5e-324", "1e300", "1e308", "-1e308", "1e400", "nan", "inf", "-inf", "", " ", "abc", "0x10"),
    *(
        "1_000",
        "1,5",
        "١٢",
        "1e3",
        "100000",
        "1000000",
        "1000000000",
        "9" * 18,
        "9" * 30,
        "9" * 5000,
    ),
    *("--", "1 2", "\x1b[2J", "true", "None", "2.0", "4", "16", "64", "-5", "1e-30", "0.1", "10"),
]
WORDS = [
    *(
        "",
        " ",
        ",",
        ":",
        ",,",
        "a",
        "a,b",
        "0,1",
        "1,0",
        "0,0",
        "0:1",
        "0:1,0:1",
        "nan,nan",
        "1,2,3",
    ),
    *(
        "-inf,inf",
        "-1e308,1e308",
        "1e-300,2e-300",
        "0,1e400",
        "x" * 5000,
        "\x1b[2Jx",
        "\udcff",
        "é",
    ),
    *(
        "true",
        "false",
        "None",
        "null",
        "-",
        "--",
        "*",
        "[",
        "{}",
        "state",
        "r",
        "stay",
        "ward",
        "hr",
    ),
    *("hr,map", "hr,hr", "t", "p", "q", "died", "patient", "nothing", "r,r", "ward,", "ward=carry"),
    *("reward=0", "carry", "carry,reward=0", "refuse", "neutral", "table", "polynomial:2", "all"),
    *("polynomial:0", "polynomial:1000000", "polynomial:30", "fourier:3", "fourier:99999999"),
    *("network:16", "network:", "network:0", "network:-1", "network:1000000000", "network:4,4,4"),
    *("network:" + "2," * 300 + "2", "value", "value:1,gtd:1", "value:0", "value,lstd", "gtd"),
    *(
        "value:nan",
        "value:1e-300,gtd:1",
        "lstd:1e300,value",
        *("value,gpope", "dplsw", "value,dplsl:1e-300"),
        "0",
        "1",
        "-1",
        "1.5",
        "user",
        "agent",
    ),
    *("replace-one", "add-or-remove-one", "reward-radius", "local", "gaussian", "laplace", "auto"),
    *("sgd", "adam", "linear", "constant", "paid", "hidden", "softmax", "greedy", "median", "both"),
    *("actor", "critic", "none", "certified", "paper", "csv", "csv,jsonl", "jsonl,jsonl", "pdf"),
    *("independent", "this-data", "unknown", "logged", "estimated", "known-protocol"),
    *("Chain", "Taxi-v4", "MDP100", "Interval", "CartPole", "HIV", "ObstacleGrid", "FrozenLake-v1"),
    *(
        "NoSuchEnv-v0",
        "privrl/Chain-v0",
        "privrl/",
        "os:system",
        "Gaussian(1, 1)",
        "Gaussian(?, 1)",
    ),
    *("rajabi2022", "tversky-kahneman", "sigma=1", "sigma=", "=1", "actor_step=0.1,0.5", "a=b=c"),
    *("9" * 400, "1/2", "a/b", "a/", "\n", "a\nb", "A" * 300, "😀", "Infinity", "1,,2", "0.5:0.5"),
]
EVENTS = [
    *(
        "Gaussian(1, 1)",
        "Gaussian(1e-300, 1)",
        "Gaussian(1, 1e300)",
        "Laplace(1, 1)",
        "Laplace(0, 1)",
    ),
    *("Repeated(Gaussian(1, 1), 1000000000)", "Repeated(Laplace(1, 1), 100)", "Gaussian(-1, 1)"),
    *("Repeated(PoissonSampled(Gaussian(1, 1), 0.01), 100)", "PoissonSampled(Gaussian(1, 1), 2)"),
    *("PoissonSampled(PoissonSampled(Gaussian(1, 1), .1), .1)", "Gaussian(?, 1)", "Gaussian(?, ?)"),
    *("Repeated(Gaussian(1, 1), ?)", "Gaussian()", "Gaussian(1)", "Gaussian(1, 1, 1)", "Gaussian"),
    *("Gaussian(1, 1", "Gaussian(1, 1))", "__import__('os')", "Gaussian(x, 1)", "Gaussian('a', 1)"),
    *("Gaussian(nan, 1)", "Gaussian(1e400, 1)", "Gaussian(std=1, bound=1)", "Gaussian(a=1)", ""),
    *(
        "Repeated(" * 100 + "Gaussian(1, 1)" + ", 2)" * 100,
        "Repeated(" * 9 + "Gaussian(1,1)" + ",9)" * 9,
    ),
    *(
        "(" * 5000,
        "-" * 5000 + "1",
        "lambda: 0",
        "Gaussian(1, 1).std",
        "[Gaussian(1, 1)]",
        "1",
        "?",
    ),
    *("DiscreteGaussian(1, 1, 1)", "RandomizedResponse(0.5)", "Repeated(Gaussian(1, 1), 0)"),
    *("Repeated(Gaussian(1, 1), 1.5)", "Gaussian(1j, 1)", "Gaussian(True, 1)", "Gaussian(**{})"),
    *("Gaussian(*[1, 1])", "Gaussian(9**9**9, 1)", "Gaussian(1 if 1 else 2, 1)", "Gaussian(1,1);1"),
    *(
        "Parallel(Gaussian(1, 1))",
        "RandomAllocated(Gaussian(1, 1), 10)",
        "Laplace(?, 1)",
        "\0",
        "é",
    ),
]
