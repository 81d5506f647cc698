"""`tacit audit`, `tacit limits`: attacks on promises, and what no private learner can do."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.common import Json, progress

if TYPE_CHECKING:
    from tacit.privacy.audit import Audit, CanaryAudit
    from tacit.privacy.audit.sabotage import Bite


def audit(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TARGET]...",
            help="Names from --list, or yours as module:name.",
            show_default=False,
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Attack all that ships.")] = False,
    teeth: Annotated[
        bool, typer.Option("--teeth", help="Attack sabotaged twins, which must be caught.")
    ] = False,
    names: Annotated[bool, typer.Option("--list", help="Print what can be attacked.")] = False,
    runs: Annotated[
        int | None, typer.Option(help="Runs in each world.", show_default="the target's own")
    ] = None,
    confidence: Annotated[float, typer.Option(help="How sure the bounds are.")] = 0.95,
    as_json: Json = False,
) -> None:
    """Attack mechanisms and whole fits, and bound their epsilon from below.

    Leaves with exit code 1 if a promise is refuted, or if a sabotaged twin goes unnoticed.

    \b
    tacit audit --all --teeth
    tacit audit gaussian laplace --runs 1000000
    tacit audit my_module:my_target
    """
    # Not used here by name: importing them puts their targets into the catalogue.
    import tacit.control.audits
    import tacit.control.pgc_audits
    import tacit.control.q_audits
    import tacit.evaluation.audits  # noqa: F401
    from tacit.privacy import InputError
    from tacit.privacy.audit import sabotage
    from tacit.privacy.audit.targets import TARGETS, find

    if names:
        print(json.dumps(list(TARGETS)) if as_json else "\n".join(TARGETS))
        return
    chosen = {name: find(name) for name in [*(targets or []), *(TARGETS if everything else [])]}
    if not chosen and not teeth:
        raise InputError("Say what to attack: --all, --teeth, or names from --list.")
    twins = [(twin, name) for twin in sabotage.TWINS for name in twin.targets] if teeth else []
    twins = [(twin, name) for twin, name in twins if not chosen or name in chosen]
    if teeth and not twins:
        raise InputError(f"There is no sabotaged twin of {', '.join(chosen)}.")
    with progress(len(chosen) + len(twins)) as advance:
        found = []
        for name, build in chosen.items():
            advance(name)
            found.append(sabotage.attacked(build(), runs=runs, confidence=confidence))
        bitten = []
        for twin, name in twins:
            advance(f"{name}, {twin.name}")
            bitten.append(sabotage.bite(twin, name, runs=runs, confidence=confidence))
    bad = sum(item.broken for item in found) + sum(not item.caught for item in bitten)
    if as_json:
        print(
            json.dumps(
                {
                    "audits": [item.to_dict() for item in found],
                    "twins": [item.to_dict() for item in bitten],
                    "failed": bad,
                }
            )
        )
    else:
        _show_audits(found, bitten)
    if bad:
        raise typer.Exit(1)


def _show_audits(found: "list[Audit | CanaryAudit]", bitten: "list[Bite]") -> None:
    wide = max(len(item.target) for item in [*found, *(twin.found for twin in bitten)]) + 1
    if found:
        print(f"{'target':<{wide}}{'delta':>7}{'promised':>9}{'shown':>7}{'shaped':>8}  verdict")
        for item in found:
            delta = f"{item.delta:.0e}" if item.delta else "0"
            verdict = "BROKEN" if item.broken else "holds"
            print(
                f"{item.target:<{wide}}{delta:>7}{item.certified:>9.4g}{item.epsilon:>7.3g}"
                f"{_shaped(item):>8}  {verdict}{_failed(item)}"
            )
    if bitten:
        if found:
            print()
        print(f"{'sabotaged':<{wide}}{'promised':>9}{'shown':>7}{'shaped':>8}  verdict")
        for name in dict.fromkeys(twin.twin for twin in bitten):
            print(f"{name}:")
            for twin in (item for item in bitten if item.twin == name):
                verdict = "caught" if twin.caught else "NOT CAUGHT"
                print(
                    f"{' ' + twin.found.target:<{wide}}{twin.found.certified:>9.4g}"
                    f"{twin.found.epsilon:>7.3g}{_shaped(twin.found):>8}  {verdict}"
                )
    sure = f"{100 * (found or [twin.found for twin in bitten])[0].confidence:.6g} %"
    print()
    print(f"shown: no smaller epsilon is true, with confidence {sure}.")
    print("shaped: the same if the privacy loss is Gaussian in shape, an assumption.")
    print("verdict: whether the attack contradicts delta(epsilon) at any epsilon; it")
    print("errs once in a million audits, whatever the confidence.")


def _failed(item: "Audit | CanaryAudit") -> str:
    """That runs ended in errors, if they did."""
    failures: tuple[float, float] = getattr(item, "failures", (0.0, 0.0))
    return f" ({max(failures):.1%} of runs failed)" if any(failures) else ""


def _shaped(item: "Audit | CanaryAudit") -> str:
    fit = getattr(item, "gaussian", None)
    return f"{fit.epsilon:.3g}" if fit is not None and item.delta else "-"


def limits(
    epsilon: Annotated[float, typer.Option(help="What is promised.")],
    delta: Annotated[float, typer.Option(help="The delta it is promised at.")] = 0.0,
    tasks: Annotated[int, typer.Option(help="How many tasks it may be.")] = 2,
    distance: Annotated[
        float | None, typer.Option(help="How far apart the tasks are, if above the radius.")
    ] = None,
    radius: Annotated[
        float | None, typer.Option(help="How far apart neighbours may be, with --distance.")
    ] = None,
    as_json: Json = False,
) -> None:
    """The best that any private learner can do when it may face one of several tasks.

    \b
    tacit limits --epsilon 0.9 --delta 1e-4 --tasks 16
    tacit limits --epsilon 0.9 --delta 1e-4 --distance 0.05 --radius 0.01
    """
    from tacit.privacy import Budget, InputError
    from tacit.privacy.audit import limits as ceilings

    if (distance is None) != (radius is None):
        raise InputError("--distance and --radius belong together.")
    promised = Budget(epsilon, delta)
    answer: dict[str, Any] = {"tasks": tasks, "epsilon": epsilon, "delta": delta}
    if distance is not None and radius is not None:
        steps = ceilings.steps_between(distance, radius)
        promised = ceilings.group(promised, steps)
        answer |= {"steps": steps, "group": [promised.epsilon, promised.delta]}
    answer["accuracy"] = ceilings.best_accuracy(tasks, promised)
    if as_json:
        print(json.dumps(answer))
        return
    print(f"One of {tasks} tasks, under epsilon {epsilon:g} at delta {delta:g}.")
    if "steps" in answer:
        print(
            f"They are {answer['steps']} steps between neighbours apart, which makes it "
            f"epsilon {promised.epsilon:g} at delta {promised.delta:.3g}."
        )
    print(f"No private learner is right with a probability above {answer['accuracy']:.4f}.")
