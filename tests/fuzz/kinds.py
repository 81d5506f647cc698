"""What is fuzzed: a case follows from its kind, its number and the seed alone."""

import json
import os
import shutil
import socket
import stat
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np

from tests.fuzz import damage, oracle
from tests.fuzz import stock as goods
from tests.fuzz.damage import EVENTS, NUMBERS, PRIVATE_NUMBER, PRIVATE_WORD, WORDS, Rng, choice
from tests.fuzz.running import Label
from tests.fuzz.tables import spoiled_csv, spoiled_parquet

LEARNERS = tuple(goods.TRAIN)


@dataclass(frozen=True)
class Case:
    """A command line in a folder of its own, and what is known of it."""

    words: list[str]
    codes: tuple[int, ...] = (0, 2)
    """Exit codes that are not a fault."""

    ledger: Path | None = None
    """The one that pays: a refusal must leave it as it is."""

    resumes: bool = False
    """Whether it goes on in a folder, which a refusal may have tidied."""

    shows: bool = False
    """Whether a refusal may print something."""

    private: tuple[str, ...] = ()
    """What must not be quoted."""

    call: Callable[[], list[str]] | None = None
    """In place of a command: finds faults by itself."""


@dataclass
class Making:
    """What a case is made with."""

    rng: Rng
    stock: Path
    work: Path
    number: int

    def copy(self, *names: str) -> None:
        """Good files, under their own names."""
        for name in names:
            if (self.stock / name).is_dir():
                shutil.copytree(self.stock / name, self.work / name)
            else:
                shutil.copyfile(self.stock / name, self.work / name)

    def json(self, name: str) -> Any:
        return json.loads((self.stock / name).read_text())


def make(label: Label, stock: Path, work: Path) -> Case:
    """The case, whose files are put into `work`."""
    rng = np.random.default_rng([zlib.crc32(label.kind.encode()), label.seed, label.number])
    return KINDS[label.kind](Making(rng, stock, work, label.number))


# --- options -------------------------------------------------------------------------------------

FILES = ("stays.csv", "stays.parquet", "policy.json", "followed.json", "network.json")
BOOKS = ("people.ledger", "free.ledger", "people.json", "signed.json", "key", "key.pub")


def _base(rng: Rng, command: str) -> list[str]:
    """Good words for a command, so that odd ones are not refused for what is missing."""
    form = choice(rng, ["csv", "parquet"])
    match command:
        case "check":
            return ["check", f"stays.{form}", *goods.TABLE]
        case "init":
            return ["init", f"stays.{form}", "--out", "mine.toml"]
        case "evaluate":
            words = choice(rng, [goods.EVALUATE, goods.EVALUATE, goods.VECTORS])
            pay = choice(rng, [goods.BUDGET, goods.BUDGET, ["--public"]])
            return ["evaluate", f"stays.{form}", *words, *pay, "--out", "out"]
        case "sweep":
            return [*goods.SWEEP, "--out", "out"]
        case "budget":
            return ["budget", choice(rng, EVENTS[:7]), "--delta", "1e-5"]
        case "verify":
            return ["verify", "signed.json"]
        case "sign":
            return ["sign", "signed.json", "--key", "key"]
        case "keygen":
            return ["keygen", "mine"]
        case "audit":
            return ["audit", choice(rng, ["gaussian", "laplace", "--list"]), "--runs", "200"]
        case "limits":
            return ["limits", "--epsilon", "0.9", "--delta", "1e-4", "--tasks", "16"]
        case "risk":
            return ["risk", "--outcomes", "20:0.05,0:0.95"]
        case "report":
            return ["report", "run"]
        case "demo":
            return ["demo", "--people", "30", "--out", "out"]
        case "reproduce":
            return ["reproduce", *choice(rng, [["--list"], ["no.such"], ["report", "--out", "x"]])]
        case "ledger create":
            return ["ledger", "create", "mine.ledger", "--population", "all", "--epsilon", "3"]
        case "ledger import":
            return ["ledger", "import", "mine.ledger", "people.json"]
        case "ledger show" | "ledger check" | "ledger export":
            return [*command.split(), "people.ledger"]
        case _:
            learner = command.removeprefix("train ")
            return ["train", learner, *goods.TRAIN[learner], "--out", "out"]


def _commands() -> dict[str, Any]:
    """Every command by its words, with its parameters as Typer has them."""
    import typer.main

    from privrl.cli import app

    found: dict[str, Any] = {}

    def visit(command: Any, name: str) -> None:
        if not hasattr(command, "list_commands"):
            found[name] = command
            return
        for key in command.list_commands(None):
            visit(command.get_command(None, key), f"{name} {key}".strip())

    visit(typer.main.get_command(app), "")
    return found


# Commands that compile something, or that take seconds, are run less often.
_SELDOM = {"demo": 0.15, "sweep": 0.25, "audit": 0.4, **{f"train {one}": 0.5 for one in LEARNERS}}


def options(making: Making) -> Case:
    """One to three odd options of a command."""
    rng, commands = making.rng, _commands()
    names = list(commands)
    weights = np.array([_SELDOM.get(one, 1.0) for one in names])
    name = names[int(rng.choice(len(names), p=weights / weights.sum()))]
    return _odd_options(making, name, commands[name])


def train(making: Making) -> Case:
    """The same for the learners alone."""
    name = f"train {LEARNERS[making.number % len(LEARNERS)]}"
    return _odd_options(making, name, _commands()[name])


def _odd_options(making: Making, name: str, command: Any) -> Case:
    rng = making.rng
    making.copy(*FILES)
    if "train" not in name:
        making.copy(*BOOKS)
    if name == "report":
        making.copy("run")
    words = _base(rng, name)
    ledger = None
    if name == "evaluate" and rng.random() < 0.3 and "--public" not in words:
        words += ["--ledger", "people.ledger"]
        ledger = making.work / "people.ledger"
    # Auditing all targets takes minutes, however small the options are.
    left_out = ("help", "jobs", "ray", "all_", "mutants")
    parameters = [one for one in command.params if one.name not in left_out]
    kinds = get_type_hints(command.callback)
    for _ in range(int(choice(rng, [1, 1, 1, 2, 3]))):
        parameter = choice(rng, parameters)
        value = str(_odd_value(rng, parameter.name, str(kinds.get(parameter.name))))
        words = _with_odd(rng, words, parameter, value)
    if rng.random() < 0.3 and "--json" not in words and name != "ledger export":
        # First, lest an option that was left without its value takes it for one.
        words.insert(len(name.split()), "--json")
    return Case(words, (0, 1, 2) if name in ("audit", "ledger check", "verify") else (0, 2), ledger)


def _with_odd(rng: Rng, words: list[str], parameter: Any, value: str) -> list[str]:
    flags = getattr(parameter, "opts", [])
    if parameter.param_type_name == "argument":
        places = [i for i, one in enumerate(words) if i and not one.startswith("-")]
        place = choice(rng, places or [len(words)])
        return [*words[:place], value, *words[place + int(rng.integers(2)) :]]
    flag = choice(rng, flags)
    if parameter.is_flag:
        return [*words, choice(rng, [flag, flag, f"{flag}={value}"])]
    given = [i for i, one in enumerate(words) if one == flag]
    if given and rng.random() < 0.15:
        return words[: given[0]] + words[given[0] + 2 :]
    if given and rng.random() < 0.8:
        return [*words[: given[0] + 1], value, *words[given[0] + 2 :]]
    if rng.random() < 0.05:
        return [*words, flag]
    return [*words, f"{flag}={value}"] if rng.random() < 0.5 else [*words, flag, value]


def _odd_value(rng: Rng, name: str, kind: str) -> Any:
    if rng.random() < 0.1:
        return choice(rng, [*NUMBERS, *WORDS])
    if "Path" in kind or name in ("table", "policy", "behavior", "prospect"):
        paths = [
            "out",
            "",
            ".",
            "out/",
            "no/such",
            "x" * 300,
            "a\0b",
            "stays.csv",
            "policy.json",
            "-",
        ]
        return choice(
            rng, [*paths, "people.ledger", "stays.csv/x", "stays.csv/../x", "\udcff.csv", "*"]
        )
    if name == "what":
        return choice(rng, EVENTS)
    return choice(rng, NUMBERS if "int" in kind or "float" in kind else WORDS)


# --- files that are none -------------------------------------------------------------------------

_SPECIAL = (
    *("folder", "fifo", "socket", "null", "zero", "full", "loop", "unreadable", "long", "longer"),
    *("missing", "empty", "dangling", "under a file", "no utf-8", "newline", "folder of fifos"),
    *("hidden", "urandom", "many links", "folder loop", "control"),
)


_DEVICES = {"null": 3, "zero": 5, "full": 7, "urandom": 9}


def _device(path: Path, name: str) -> None:
    """A device in the case's own folder: whoever may make one may also replace that in /dev."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, _DEVICES[name]))
    except PermissionError:
        path.symlink_to(f"/dev/{name}")


def _special(making: Making, suffix: str) -> str:
    """The path of something that is not the file it should be."""
    rng, work = making.rng, making.work
    sort = choice(rng, _SPECIAL)
    path = work / f"odd{suffix}"
    match sort:
        case "folder":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case "socket":
            server = socket.socket(socket.AF_UNIX)
            # The full path may be too long for a socket.
            server.bind(path.name)
        case "null" | "zero" | "full" | "urandom":
            _device(path, sort)
        case "loop":
            path.symlink_to(path.name)
        case "unreadable":
            path.write_bytes(b"x")
            path.chmod(0)
        case "long":
            return "n" * 250 + suffix
        case "longer":
            return "/".join(["n" * 200] * 30) + suffix
        case "empty":
            path.touch()
        case "dangling":
            path.symlink_to("nowhere")
        case "under a file":
            return f"stays.csv/x{suffix}"
        case "no utf-8":
            if suffix == ".csv":
                shutil.copyfile(work / "stays.csv", work / f"\udcff\udcfe{suffix}")
            return f"\udcff\udcfe{suffix}"
        case "newline":
            return f"a\nb{suffix}"
        case "control":
            return f"\x1b[2Ja{suffix}"
        case "folder of fifos":
            (work / "fifos").mkdir()
            for ending in (".csv", ".parquet", ".json"):
                os.mkfifo(work / "fifos" / f"one{ending}")
            return "fifos"
        case "hidden":
            (work / "hidden").mkdir()
            (work / "hidden" / f".x{suffix}").write_bytes(b"a,b\n1,2\n")
            return "hidden"
        case "many links":
            before = Path("stays.csv")
            for number in range(50):
                (work / f"link{number}").symlink_to(before)
                before = work / f"link{number}"
            return before.name
        case "folder loop":
            (work / "round").mkdir()
            (work / "round" / "again").symlink_to("..")
            return "round"
        case _:
            return f"missing{suffix}"
    return path.name


def paths(making: Making) -> Case:
    """In the place of a file, something that is none; in any option that takes a path."""
    rng = making.rng
    making.copy(*FILES, *BOOKS, "config.toml", "anchor")
    odd = ["--seed", "7", "--out", "out"]
    budget = ["--epsilon", "1", "--delta", "1e-3"]
    evaluate = ["evaluate", "stays.csv", *goods.EVALUATE, *budget]
    reading = choice(
        rng,
        [
            lambda p: ["check", p(".csv"), *goods.TABLE],
            lambda p: ["check", p(".parquet"), *goods.TABLE],
            lambda p: ["check", "stays.csv", p(".csv"), *goods.TABLE],
            lambda p: ["check", "stays.parquet", p(".parquet"), *goods.TABLE],
            lambda p: ["check", "stays.parquet", p(".parquet"), *goods.TABLE, "--stream"],
            lambda p: ["evaluate", p(".parquet"), *goods.EVALUATE, *budget, *odd],
            lambda p: ["evaluate", p(".csv"), *goods.EVALUATE, *budget, *odd, *_NEUTRAL],
            lambda p: [*_without(evaluate, "--policy"), "--policy", p(".json"), *odd],
            lambda p: [*_without(evaluate, "--behavior-prob"), "--behavior", p(".json"), *odd],
            lambda p: ["evaluate", "--config", p(choice(rng, [".toml", ".json"])), *odd],
            lambda p: [*evaluate, "--ledger", p(".ledger"), *odd],
            lambda p: [*evaluate, "--seed", "7", "--out", p("")],
            lambda p: ["train", "logged-q", p(".csv"), *goods.TRAIN["logged-q"][1:], *odd[2:]],
            lambda p: ["train", "functional-q", "--config", p(".toml"), *odd],
            lambda p: ["train", "functional-q", *goods.TRAIN["functional-q"], "--out", p("")],
            lambda p: ["train", choice(rng, LEARNERS), "--out", p(""), "--resume"],
            lambda p: ["sweep", "actor-critic", "--out", p(""), "--resume"],
            lambda p: ["sweep", "actor-critic", "--config", p(".toml"), *odd[2:]],
            lambda p: ["report", p("")],
            lambda p: ["verify", p(".json")],
            lambda p: ["verify", "signed.json", "--public-key", p("")],
            lambda p: ["sign", p(".json"), "--key", "key"],
            lambda p: ["sign", "signed.json", "--key", p("")],
            lambda p: ["keygen", p("")],
            lambda p: ["ledger", "show", p(".ledger")],
            lambda p: ["ledger", "check", p(".ledger")],
            lambda p: ["ledger", "check", "people.ledger", "--certificate", p(".json")],
            lambda p: ["ledger", "check", "people.ledger", "--anchor", p("")],
            lambda p: ["ledger", "export", p(".ledger")],
            lambda p: ["ledger", "import", "mine.ledger", p(".json")],
            lambda p: ["ledger", "create", p(".ledger"), "--population", "x"],
            lambda p: ["risk", "--outcomes", "1:1", "--prospect", p(".json")],
            lambda p: ["risk", "--page", p(".html")],
            lambda p: [
                "budget",
                "Gaussian(1, 1)",
                "--delta",
                "1e-5",
                "--unit",
                "user",
                "--save",
                p(""),
            ],
            lambda p: ["demo", "--people", "30", "--out", p("")],
        ],
    )
    words = reading(lambda suffix: _special(making, suffix))
    paying = making.work / "people.ledger" if "people.ledger" in words else None
    codes = (0, 1, 2) if words[0] in ("ledger", "verify") else (0, 2)
    return Case(words, codes, paying)


_NEUTRAL = ("--invalid", "neutral", "--people", "12")


def _without(words: list[str], flag: str) -> list[str]:
    place = words.index(flag)
    return words[:place] + words[place + 2 :]


# --- tables --------------------------------------------------------------------------------------


def _reading(making: Making, form: str, paths_: list[str]) -> Case:
    """A command that reads these files."""
    rng = making.rng
    making.copy("policy.json", "network.json", "people.ledger")
    command = choice(rng, ["check", "check", "evaluate", "evaluate", "neutral", "train", "ledger"])
    more = [] if rng.random() < 0.8 else ["--sort"]
    if form == "parquet" and rng.random() < 0.3 and command != "train":
        more.append("--stream")
    if rng.random() < 0.1:
        more += ["--nulls", "carry,reward=0" + ("" if command in ("check", "train") else ",p=0.5")]
    private = (PRIVATE_WORD, PRIVATE_NUMBER)
    if command == "check":
        return Case(
            ["check", *paths_, *goods.TABLE, "--terminated", "died", *more], private=private
        )
    if command == "train":
        words = ["train", "logged-q", *paths_, *goods.TRAIN["logged-q"][1:], "--out", "out", *more]
        # Compiling takes seconds: only what is refused before that is of interest, and some more.
        words = words if rng.random() < 0.2 else ["check", *paths_, *goods.TABLE, *more]
        return Case(words, private=private)
    how = choice(rng, [goods.EVALUATE, goods.EVALUATE, goods.VECTORS])
    pay = ["--public"] if rng.random() < 0.3 and command == "evaluate" else goods.BUDGET
    words = ["evaluate", *paths_, *how, *pay, "--out", "out", *more]
    ledger = None
    if command == "neutral":
        words += _NEUTRAL
    elif command == "ledger" and pay is goods.BUDGET:
        words += ["--ledger", "people.ledger"]
        ledger = making.work / "people.ledger"
    if rng.random() < 0.3:
        words.append("--json")
    return Case(words, ledger=ledger, private=private)


def csv(making: Making) -> Case:
    """Damaged CSV files: one alone, or the second of two."""
    rng = making.rng
    if rng.random() < 0.3:
        making.copy("part-0.csv")
        (making.work / "part-1.csv").write_bytes(
            spoiled_csv(rng, (making.stock / "part-1.csv").read_bytes())
        )
        return _reading(making, "csv", ["part-0.csv", "part-1.csv"])
    content = spoiled_csv(rng, (making.stock / "stays.csv").read_bytes())
    (making.work / "stays.csv").write_bytes(content)
    return _reading(making, "csv", ["stays.csv"])


def parquet(making: Making) -> Case:
    """Damaged Parquet files: bytes, or columns of other types; one alone, or the second of two."""
    rng = making.rng
    several = rng.random() < 0.4
    names = ["part-0.parquet", "part-1.parquet"] if several else ["stays.parquet"]
    if several:
        making.copy(names[0])
    spoiled_parquet(rng, making.stock / names[-1], making.work / names[-1])
    return _reading(making, "parquet", names)


# --- JSON and TOML -------------------------------------------------------------------------------


def policies(making: Making) -> Case:
    """Policies that are none, and how they are used."""
    rng = making.rng
    kinds = ("policy", "policy", "softmax", "greedy", "network", "learned")
    name = choice(rng, kinds)
    making.copy("stays.csv", "stays.parquet", "people.ledger")
    content = damage.spoiled_json(rng, making.json(f"{name}.json"))
    (making.work / "policy.json").write_bytes(content)
    words = list(goods.EVALUATE)
    if name in ("softmax", "network"):
        words = [*_without(list(goods.VECTORS), "--target-prob"), "--policy", "policy.json"]
    if rng.random() < 0.15:
        making.copy("followed.json")
        words = ["followed.json" if one == "policy.json" else one for one in words]
        words = [*_without(words, "--behavior-prob"), "--behavior", "policy.json"]
    form = choice(rng, ["csv", "parquet"])
    pay = choice(rng, [goods.BUDGET, ["--public"], [*goods.BUDGET, "--ledger", "people.ledger"]])
    more = ["--json"] if rng.random() < 0.5 else []
    paying = making.work / "people.ledger" if "--ledger" in pay else None
    return Case(["evaluate", f"stays.{form}", *words, *pay, "--out", "out", *more], ledger=paying)


def configs(making: Making) -> Case:
    """TOML and JSON of options, with values of other types."""
    rng = making.rng
    making.copy(*FILES)
    target = choice(
        rng, ["evaluate", "evaluate", "check", *(f"train {one}" for one in LEARNERS), "sweep"]
    )
    words = _base(rng, target)
    command = words[: 2 if target.startswith("train") or target == "sweep" else 1]
    held = _as_config(words[len(command) :])
    if target == "sweep":
        held = {k: v for k, v in held.items() if k not in ("grid", "set")}
        held["grid"] = {"actor_step": [0.1, 0.5]}
    for name in ("seed", "out"):
        held.pop(name, None)
    if rng.random() < 0.5:
        content = damage.spoiled_json(rng, held, 1 if rng.random() < 0.8 else None)
        (making.work / "job.json").write_bytes(content)
        path = "job.json"
    else:
        path = "job.toml"
        (making.work / path).write_bytes(_spoiled_toml(rng, held))
    seed = [] if target in ("check", "sweep") else ["--seed", "3"]
    out = [] if target == "check" else ["--out", "out"]
    return Case([*command, "--config", path, *seed, *out])


def _as_config(words: list[str]) -> dict[str, Any]:
    held: dict[str, Any] = {}
    tables: list[str] = []
    k = 0
    while k < len(words):
        name = words[k].removeprefix("--").replace("-", "_")
        if not words[k].startswith("--"):
            tables.append(words[k])
        elif "=" in words[k]:
            name, _, held_value = words[k][2:].partition("=")
            held[name.replace("-", "_")] = held_value
        elif k + 1 < len(words) and not words[k + 1].startswith("--"):
            value: Any = words[k + 1]
            for kind in (int, float):
                try:
                    value = kind(value)
                    break
                except ValueError:
                    continue
            held[name] = value
            k += 1
        else:
            held[name] = True
        k += 1
    return {**({"table": tables} if tables else {}), **held}


_TOML_VALUES = [
    *(
        "1979-05-27",
        "07:32:00",
        "1979-05-27T07:32:00Z",
        "{ a = 1 }",
        "[1, 'a']",
        "[[1], [2]]",
        "[]",
    ),
    *("nan", "inf", "-inf", "1e400", "true", "false", "''", "'x'", "0x10", "9" * 400, "'''a\nb'''"),
    *(
        "-1",
        "0",
        "1.5",
        "[1979-05-27]",
        "[{ a = 1 }]",
        '"\\u0000"',
        '"\\u001b[2J"',
        "1_000",
        "1e308",
    ),
    *("[" * 2000 + "]" * 2000, "{}", "[nan]", "[true]", "''''", "1e-320", "'0,1'", "'a,b'", "+5"),
]


def _spoiled_toml(rng: Rng, held: dict[str, Any]) -> bytes:
    lines = []
    for name, value in held.items():
        if isinstance(value, dict):
            continue
        shown = json.dumps(value)
        lines.append(f"{name.replace('_', choice(rng, ['_', '-']))} = {shown}")
    for _ in range(int(choice(rng, [1, 1, 2]))):
        place = int(rng.integers(len(lines) + 1))
        action = choice(
            rng, ["value", "value", "value", "value", "delete", "twice", "more", "table"]
        )
        if action == "more" or place == len(lines):
            name = choice(rng, ["seed", "out", "nothing", "name", "'a b'", "a.b", '""', "_class"])
            lines.insert(place, f"{name} = {choice(rng, _TOML_VALUES)}")
        elif action == "value":
            lines[place] = lines[place].partition(" = ")[0] + f" = {choice(rng, _TOML_VALUES)}"
        elif action == "delete":
            del lines[place]
        elif action == "twice":
            lines.insert(place, lines[place])
        else:
            lines.insert(
                place, choice(rng, ["[grid]", "[[a]]", "[a.b]", "[table]", "=", "[", "[x"])
            )
    for name, value in held.items():
        if isinstance(value, dict):
            lines.append(f"[{name}]")
            lines += [f"{k} = {json.dumps(v)}" for k, v in value.items()]
    text = "\n".join(lines).encode()
    return damage.spoiled_bytes(rng, text) if rng.random() < 0.1 else text


def studies(making: Making) -> Case:
    """`privrl report` on a folder whose study is damaged."""
    rng = making.rng
    held = choice(rng, ["run", "public"])
    making.copy(held)
    content = damage.spoiled_json(rng, making.json(f"{held}/study.json"))
    (making.work / held / "study.json").write_bytes(content)
    words = ["report", held]
    if rng.random() < 0.3:
        words += ["--out", choice(rng, ["page.html", "no/such/page.html", "run", "full"])]
        _device(making.work / "full", "full")
    return Case(words + (["--json"] if rng.random() < 0.3 else []))


def certificates(making: Making) -> Case:
    """Certificates with other values, and with other bytes."""
    rng = making.rng
    names = ["plan-0.json", "plan-1.json", "plan-2.json", "signed.json", "run/certificate.json"]
    content = damage.spoiled_json(rng, making.json(choice(rng, names)))
    (making.work / "certificate.json").write_bytes(content)
    command = choice(rng, ["verify", "verify", "verify", "sign", "check"])
    if command == "verify":
        words = ["verify", "certificate.json"]
        if rng.random() < 0.3:
            making.copy("key.pub")
            words += ["--public-key", "key.pub"]
        words += ["--strict"] if rng.random() < 0.2 else []
        words += ["--json"] if rng.random() < 0.4 else []
        return Case(words, (0, 1, 2), shows=True)
    if command == "sign":
        making.copy("key")
        return Case(["sign", "certificate.json", "--key", "key"])
    making.copy("people.ledger")
    words = ["ledger", "check", "people.ledger", "--certificate", "certificate.json"]
    return Case(words, (0, 1, 2), shows=True)


def ledgers(making: Making) -> Case:
    """Ledgers with other bytes, and with other values in their JSON form."""
    rng = making.rng
    name = choice(rng, ["people", "people", "free"])
    if rng.random() < 0.35:
        content = damage.spoiled_json(rng, making.json("people.json"))
        (making.work / "people.json").write_bytes(content)
        return Case(["ledger", "import", "mine.ledger", "people.json"])
    content = (making.stock / f"{name}.ledger").read_bytes()
    content = damage.spoiled_bytes(rng, content)
    if rng.random() < 0.2:
        content = damage.spoiled_bytes(rng, content)
    (making.work / "people.ledger").write_bytes(content)
    if rng.random() < 0.15:
        making.copy("anchor")
        held = damage.spoiled_bytes(rng, (making.stock / "anchor").read_bytes())
        (making.work / "anchor").write_bytes(held)
        making.copy("people.ledger")
        return Case(
            ["ledger", "check", "people.ledger", "--anchor", "anchor"], (0, 1, 2), shows=True
        )
    if rng.random() < 0.3:
        making.copy("stays.csv", "policy.json")
        pay = [*goods.BUDGET, "--ledger", "people.ledger", "--out", "out"]
        words = ["evaluate", "stays.csv", *goods.EVALUATE, *pay]
        return Case(words, ledger=making.work / "people.ledger")
    words = ["ledger", choice(rng, ["show", "check", "export"]), "people.ledger"]
    if words[1] == "show":
        words += choice(rng, [[], ["--delta", "1e-5"], ["--json"], ["--delta", "1e-9"]])
    return Case(words, (0, 1, 2))


def _spoiled_again(rng: Rng, content: bytes) -> bytes:
    """JSON with something wrong, of what may have something wrong already."""
    try:
        return damage.spoiled_json(rng, json.loads(content))
    except (ValueError, RecursionError):
        return damage.spoiled_bytes(rng, content)


def runs(making: Making) -> Case:
    """Folders of runs, of which one file or more is damaged, or gone, or another's."""
    rng = making.rng
    held = choice(rng, [*(f"half-{one}" for one in LEARNERS), "half-sweep", "swept", "done-pgc"])
    making.copy(held, "stays.csv")
    folder = making.work / held
    listed = sorted(path for path in folder.rglob("*") if path.is_file())
    for _ in range(int(choice(rng, [1, 1, 1, 2]))):
        path = choice(rng, listed)
        if not path.exists():
            continue
        action = choice(rng, ["bytes", "json", "json", "delete", "other", "folder", "special"])
        if action == "delete":
            path.unlink()
        elif action == "json" and path.suffix == ".json":
            path.write_bytes(_spoiled_again(rng, path.read_bytes()))
        elif action == "other":
            other = choice(rng, listed)
            path.write_bytes(other.read_bytes() if other.is_file() else b"")
        elif action == "folder":
            path.unlink()
            path.mkdir()
        elif action == "special":
            path.unlink()
            place = Path.cwd()
            try:
                os.chdir(path.parent)
                choice(rng, [os.mkfifo, lambda p: _device(Path(p), "zero")])(path.name)
            finally:
                os.chdir(place)
        else:
            path.write_bytes(damage.spoiled_bytes(rng, path.read_bytes()))
        listed = [one for one in listed if one.is_file()] or [making.work / "stays.csv"]
    command = ["sweep", "actor-critic"] if "sw" in held else ["train", held.partition("-")[2]]
    if rng.random() < 0.1 and "sw" not in held:
        command = ["train", choice(rng, LEARNERS)]
    if rng.random() < 0.1:
        return Case(["report", held])
    return Case([*command, "--out", held, "--resume"], resumes=True)


# --- small things --------------------------------------------------------------------------------


def events(making: Making) -> Case:
    """What `privrl budget` is told of noise."""
    rng = making.rng
    words = ["budget", *(choice(rng, EVENTS) for _ in range(int(choice(rng, [1, 1, 1, 2, 3]))))]
    if rng.random() < 0.4:
        name = choice(
            rng, ["gaussian", "xie2019", "ono2020", "all", "wang2019", "nothing", "seo2020"]
        )
        parameter = choice(rng, ["sigma", "epsilon", "iterations", "x", "delta", "batch"])
        given = [f"{parameter}={choice(rng, NUMBERS)}"]
        words = ["budget", "--claim", name, *given * int(rng.integers(1, 3))]
    for flag in ("--delta", "--epsilon"):
        if rng.random() < 0.6:
            words += [flag, choice(rng, [*NUMBERS, "1e-5", "1e-5", "1"])]
    if rng.random() < 0.3:
        words += ["--relation", choice(rng, ["replace-one", "add-or-remove-one", "local", "x", ""])]
    if rng.random() < 0.2:
        words += ["--save", "plan.json", "--unit", choice(rng, ["user", "agent", "x"])]
    return Case(words + (["--json"] if rng.random() < 0.3 else []))


def keys(making: Making) -> Case:
    """Damaged keys."""
    rng = making.rng
    making.copy("signed.json", "key", "key.pub")
    name = choice(rng, ["key", "key.pub"])
    path = making.work / name
    path.write_bytes(damage.spoiled_bytes(rng, path.read_bytes()))
    if name == "key" or rng.random() < 0.2:
        return Case(["sign", "signed.json", "--key", name])
    return Case(["verify", "signed.json", "--public-key", name], (0, 1, 2), shows=True)


def risks(making: Making) -> Case:
    """Prospects in damaged files, and odd outcomes."""
    rng = making.rng
    content = damage.spoiled_json(rng, making.json("prospect.json"))
    (making.work / "prospect.json").write_bytes(content)
    parts = [
        f"{choice(rng, NUMBERS)}:{choice(rng, NUMBERS)}" for _ in range(int(rng.integers(1, 4)))
    ]
    outcomes = choice(rng, ["20:0.05,0:0.95", "-1:0.5,1:0.5", ",".join(parts)])
    words = ["risk", f"--outcomes={outcomes}"]
    if rng.random() < 0.2:
        words = ["risk", f"--samples={','.join(choice(rng, NUMBERS) for _ in range(3))}"]
    if rng.random() < 0.7:
        words += ["--prospect", "prospect.json"]
    if rng.random() < 0.3:
        words += ["--page", "page.html"]
    return Case(words + (["--json"] if rng.random() < 0.3 else []))


# --- numbers -------------------------------------------------------------------------------------


def reading(making: Making) -> Case:
    """Tables, some of them valid: taken, with the same values, or refused, as by a slow reader."""
    return Case(["(reader)"], call=lambda: oracle.compare_reading(making.rng, making.work))


def values(making: Making) -> Case:
    """Estimates from valid tables, against slow evaluators."""
    return Case(["(evaluators)"], call=lambda: oracle.compare_values(making.rng, making.work))


KINDS: dict[str, Callable[[Making], Case]] = {
    one.__name__: one
    for one in (
        *(options, paths, csv, parquet, policies, configs, studies, certificates, ledgers, runs),
        *(train, events, keys, risks, reading, values),
    )
}

# Of every 100 cases; those that compile programs are fewer.
SHARES = {
    "options": 16,
    "paths": 8,
    "csv": 11,
    "parquet": 10,
    "policies": 9,
    "configs": 6,
    "studies": 6,
    "certificates": 6,
    "ledgers": 6,
    "runs": 4,
    "train": 3,
    "events": 4,
    "keys": 2,
    "risks": 3,
    "reading": 4,
    "values": 2,
}
