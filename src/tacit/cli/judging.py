"""`tacit evaluate`, `tacit report`, `tacit demo`: the value of a policy from logged decisions."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.common import (
    ActionColumn,
    ActionWords,
    Invalid,
    Json,
    NextState,
    Nulls,
    NumActions,
    NumStates,
    Population,
    RewardColumn,
    RewardRange,
    Sort,
    StateColumns,
    StateWords,
    Table,
    Terminated,
    TimeColumn,
    TrajectoryColumn,
    Truncated,
    UserColumn,
    progress,
)

if TYPE_CHECKING:
    from tacit.run.study import Study

BehaviorProb = Annotated[str | None, typer.Option(help="Column: how likely the decision was.")]
TargetProb = Annotated[
    str | None, typer.Option(help="Column, instead of --policy: its probabilities.")
]
Stream = Annotated[
    bool,
    typer.Option("--stream", help="Read in parts, if larger than memory; gtd makes one pass."),
]


def evaluate(
    table: Table = None,
    policy: Annotated[str | None, typer.Option(help="The policy to judge: a policy.json.")] = None,
    config: Annotated[
        Path | None, typer.Option(help="A TOML or JSON file with options of the question.")
    ] = None,
    trajectory: TrajectoryColumn = None,
    user: UserColumn = None,
    time: TimeColumn = None,
    state: StateColumns = None,
    action: ActionColumn = None,
    reward: RewardColumn = None,
    behavior_prob: BehaviorProb = None,
    behavior: Annotated[
        str | None, typer.Option(help="The policy that was followed, instead: a policy.json.")
    ] = None,
    target_prob: TargetProb = None,
    terminated: Terminated = None,
    truncated: Truncated = None,
    next_state: NextState = None,
    states: StateWords = None,
    actions: ActionWords = None,
    num_states: NumStates = None,
    num_actions: NumActions = None,
    epsilon: Annotated[float | None, typer.Option(help="How much may be given away.")] = None,
    delta: Annotated[float | None, typer.Option(help="How likely the promise may fail.")] = None,
    public: Annotated[
        bool, typer.Option("--public", help="The data is nobody's: no privacy.")
    ] = False,
    reward_range: RewardRange = None,
    return_range: Annotated[
        str | None, typer.Option(help="What any sum of rewards could be, if that is less.")
    ] = None,
    horizon: Annotated[int | None, typer.Option(help="How many steps count.")] = None,
    gamma: Annotated[float | None, typer.Option(help="The discount factor; 1 if not said.")] = None,
    weight_cap: Annotated[
        float | None, typer.Option(help="How much a trajectory may count.")
    ] = None,
    largest_ratio: Annotated[
        float | None, typer.Option(help="What the policies' ratio can be at most.")
    ] = None,
    level: Annotated[float | None, typer.Option(help="Of the intervals; 0.95 if not said.")] = None,
    state_range: Annotated[
        str | None, typer.Option(help="What states could be, such as 30:200,40:140.")
    ] = None,
    features: Annotated[
        str | None, typer.Option(help="polynomial:2, fourier:3 or table, for values of states.")
    ] = None,
    start: Annotated[
        str | None, typer.Option(help="Known start states, such as 90:70,80:75.")
    ] = None,
    estimators: Annotated[
        str | None, typer.Option(help="value, gtd, lstd, with shares: value:3,gtd:1.")
    ] = None,
    return_bound: Annotated[
        float | None, typer.Option(help="How large a return could be, for gtd.")
    ] = None,
    grid: Annotated[
        bool, typer.Option("--grid", help="Integer noise: nothing assumed of arithmetic.")
    ] = False,
    nulls: Nulls = None,
    invalid: Invalid = None,
    people: Population = None,
    sort: Sort = False,
    stream: Stream = False,
    ray: Annotated[
        str | None, typer.Option(help="Gather on Ray: local, or a cluster's address.")
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="The ledger of these people, which pays.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="The run's name in the ledger.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="The run's folder; by default runs/<date and time>.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="The report's title.")] = None,
    policy_source: Annotated[
        str | None,
        typer.Option(help="Learned from these people? independent, this-data or unknown."),
    ] = None,
    behavior_source: Annotated[
        str | None,
        typer.Option(help="Of its probabilities: logged, estimated, known-protocol or unknown."),
    ] = None,
    target_name: Annotated[str | None, typer.Option(help="What to call the policy.")] = None,
    behavior_name: Annotated[str | None, typer.Option(help="What to call the old way.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Reproducible noise: for experiments, protects nobody.")
    ] = None,
    as_json: Json = False,
) -> None:
    """The value of a policy from a table of logged decisions, privately.

    Say what you have, and follow the answers: what is missing is asked for. The run's folder gets
    study.json, certificate.json and report.html.

    \b
    tacit evaluate stays.parquet --policy policy.json --epsilon 1 --delta 1e-6 \\
      --trajectory stay_id --user patient --time t --state hr,map --action dose \\
      --reward r --behavior-prob p --reward-range 0,1 --horizon 20 --weight-cap 10
    """
    words = {k: v for k, v in locals().items() if k not in _NOT_WORDS}
    words["table"] = tuple(table or ())
    _evaluate(words, config, ledger, name, out, seed, ray, as_json)


def check(
    table: Table = None,
    trajectory: TrajectoryColumn = None,
    user: UserColumn = None,
    time: TimeColumn = None,
    state: StateColumns = None,
    action: ActionColumn = None,
    reward: RewardColumn = None,
    behavior_prob: BehaviorProb = None,
    target_prob: TargetProb = None,
    terminated: Terminated = None,
    truncated: Truncated = None,
    next_state: NextState = None,
    states: StateWords = None,
    actions: ActionWords = None,
    num_states: NumStates = None,
    num_actions: NumActions = None,
    state_range: Annotated[
        str | None, typer.Option(help="What states could be, such as 30:200,40:140.")
    ] = None,
    nulls: Nulls = None,
    sort: Sort = False,
    stream: Stream = False,
    config: Annotated[
        Path | None, typer.Option(help="A TOML or JSON file with these options.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Validate a table as evaluate and train logged-q do, for its curator alone.

    What is printed, and the exit code, are about private data: nobody else may see them.
    """
    from tacit.run.request import Request

    words = {k: v for k, v in locals().items() if k not in ("config", "as_json", "Request")}
    words["table"] = tuple(table or ())
    with progress(None) as advance:
        advance("loading")
        found = Request.of(words, config).checked()
    if as_json:
        print(json.dumps({"valid": True, "private": True, **found.counts}))
        return
    print(found.words)
    print("The table is valid. This is about private data: keep it to yourself.")


_NOT_WORDS = ("config", "ledger", "name", "out", "seed", "ray", "as_json")


def _evaluate(
    words: dict[str, Any],
    config: Path | None = None,
    ledger: Path | None = None,
    name: str | None = None,
    out: Path | None = None,
    seed: int | None = None,
    ray: str | None = None,
    as_json: bool = False,
) -> None:
    """Answer, and write the run's folder."""
    from datetime import datetime

    from tacit.privacy import InputError, Ledger, files
    from tacit.report.folder import write_run
    from tacit.run.request import Request

    asked = Request.of(words, config)
    if name is not None and ledger is None:
        raise InputError("--name is the run's name in a ledger: say which with --ledger.")
    folder = out or Path("runs") / datetime.now().strftime("%Y-%m-%d-%H%M%S")
    if (folder / "study.json").exists():
        raise InputError(f"{folder} holds a run already: say another folder with --out.")
    options: dict[str, Any] = {} if ray is None else {"gather": _on_ray(ray)}
    with (
        files.folder(folder),
        nullcontext() if ledger is None else Ledger.open(ledger) as opened,
        progress(None) as advance,
    ):
        run = None if opened is None else name or folder.name
        study = asked.study(ledger=opened, run=run, seed=seed, progress=advance, **options)
    try:
        written = write_run(study, folder)
    except InputError:
        # It has been paid for: what cannot be kept is at least shown.
        print(json.dumps(study.to_dict()) if as_json else _study_words(study))
        raise
    if as_json:
        print(json.dumps({**study.to_dict(), "files": {k: str(v) for k, v in written.items()}}))
        return
    print(_study_words(study))
    print(f"The report is {written['report']}.")


def _on_ray(address: str) -> Any:
    from functools import partial

    from tacit.run.cluster import gather

    return partial(gather, workers="ray" if address == "local" else address)


def _study_words(study: "Study") -> str:
    """The figures, and what they promise, for a screen of 79 columns."""
    import textwrap

    main = study.main
    level = f"{100 * main.interval.level:g} %" if main.interval else ""
    lines = textwrap.wrap(study.title, 78)
    lines.append(f"  {'':<22}{'value':>10}{'from':>10}{'to':>10}   {level}")
    names = {
        "target": study.target_name,
        "behavior": study.behavior_name,
        "difference": "difference",
    }
    for key, label in names.items():
        found = main.details.get(key)
        if found is None and key == "target" and main.interval is not None:
            found = {"estimate": main.estimate, "interval": main.interval.to_dict()}
        if found is not None:
            ends = [found["interval"][end] for end in ("low", "high")]
            lines.append(_row(label, found["estimate"], *ends))
    others = [one for one in study.results[1:] if one.estimate is not None]
    if others:
        lines.append(f"  {study.target_name[:40]}, by other estimators:")
    for one in others:
        held = one.interval
        if held is None:
            apart = main.interval is not None and not (
                main.interval.low <= (one.estimate or 0.0) <= main.interval.high
            )
            remark = "  no interval, and outside of the one above" if apart else "  no interval"
            lines.append(_row(one.method, one.estimate) + remark)
        else:
            lines.append(_row(one.method, one.estimate, held.low, held.high))
    notes = list(study.notes)
    if study.certificate is None:
        notes.insert(0, "Not private: the data was declared public.")
    else:
        made = study.certificate
        promise = f"Certified: epsilon {made.epsilon:.4g} at delta {made.delta:g}, {made.unit}, "
        notes.insert(0, promise + f"{made.relation}.")
    for note in notes:
        lines += textwrap.wrap(note, 78, initial_indent="  ", subsequent_indent="  ")
    return "\n".join(lines)


def _row(label: str, *numbers: float | None) -> str:
    shown = ("-" if x is None else format(x, ".4g") for x in numbers)
    return f"  {label[:21]:<22}" + "".join(f" {text:>9}" for text in shown)


def report(
    run_folder: Annotated[Path, typer.Argument(help="A run's folder, with its study.json.")],
    out: Annotated[
        Path | None, typer.Option(help="Where to write; by default report.html in the folder.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write the report of a run again."""
    from tacit.privacy import InputError, TacitError
    from tacit.report import write
    from tacit.run.lessons import RUN
    from tacit.run.study import Study

    target = out or run_folder / "report.html"
    if (run_folder / RUN).exists() and not (run_folder / "study.json").exists():
        raise InputError(
            f"{str(run_folder)!r} holds what `tacit train` learned: a report is about what `tacit "
            "evaluate` found."
        )
    try:
        write(Study.load(run_folder / "study.json"), target)
    except TacitError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        # Details of results are of any form; those that were edited need not fit together.
        held = str(run_folder / "study.json")
        raise InputError(f"{held!r} is damaged: what it holds cannot be shown.") from None
    print(json.dumps({"report": str(target)}) if as_json else f"The report is {target}.")


def demo(
    out: Annotated[Path, typer.Option(help="Where to put the data and the run.")] = Path(
        "tacit-demo"
    ),
    people: Annotated[int, typer.Option(help="How many patients to make up.")] = 6000,
    seed: Annotated[int, typer.Option(help="Which patients; the noise is always fresh.")] = 0,
    as_json: Json = False,
) -> None:
    """A made-up HIV clinic: is the new protocol better, and what does it say of each patient?"""
    from tacit.run import clinic

    with progress(None) as advance:
        advance("making up a clinic")
        words = clinic.write(out, people, seed)
    _evaluate(words, out=_unused(out / "run"), as_json=as_json)


def _unused(folder: Path) -> Path:
    """`folder`, or with a number behind if a run is in there."""
    tried, number = folder, 1
    while (tried / "study.json").exists():
        number += 1
        tried = folder.with_name(f"{folder.name}-{number}")
    return tried
