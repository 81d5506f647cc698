"""What audits found, for people."""

from collections.abc import Sequence

from privrl.audit.auditor import Audit
from privrl.audit.canaries import CanaryAudit
from privrl.audit.mutations import Finding


def audit_lines(
    found: Sequence[Audit | CanaryAudit], mutated: Sequence[Finding], false_alarm: float
) -> list[str]:
    """What audits and attacks on mutants found, as a table for a screen of 79 columns.

    Args:
        found: Audits of what ships or of the caller's own targets.
        mutated: Attacks on mutants, which are to be caught.
        false_alarm: The rate at which a promise that is kept is called refuted, at most.
    """
    lines: list[str] = []
    say = lines.append
    wide = max(len(item.target) for item in [*found, *(one.found for one in mutated)]) + 1
    if found:
        say(f"{'target':<{wide}}{'delta':>7}{'promised':>9}{'shown':>7}{'shaped':>8}")
        for item in found:
            delta = f"{item.delta:.0e}" if item.delta else "0"
            say(
                f"{item.target:<{wide}}{delta:>7}{item.certified:>9.4g}{item.epsilon:>7.3g}"
                f"{_gaussian_epsilon(item):>8}"
            )
            say(f"  {_verdict(item)}{_failure_note(item)}")
            if item.warning is not None:
                say(f"  warning: {item.warning}")
    if mutated:
        if found:
            say("")
        say(f"{'mutant':<{wide}}{'promised':>9}{'shown':>7}{'shaped':>8}  verdict")
        for name in dict.fromkeys(one.mutant for one in mutated):
            say(f"{name}:")
            for one in (item for item in mutated if item.mutant == name):
                verdict = "caught" if one.is_caught else "NOT CAUGHT"
                say(
                    f"{' ' + one.found.target:<{wide}}{one.found.certified:>9.4g}"
                    f"{one.found.epsilon:>7.3g}{_gaussian_epsilon(one.found):>8}  {verdict}"
                )
    sure = f"{100 * (found or [one.found for one in mutated])[0].confidence:.6g} %"
    say("")
    say(f"shown: no smaller epsilon is true, with confidence {sure}.")
    say("shaped: the same if the privacy loss is Gaussian in shape, an assumption.")
    say("verdict: whether the attack contradicts delta(epsilon) at any epsilon.")
    if found:
        say(f"A promise that is kept is called refuted at a rate of {false_alarm:g} at most. What")
        say("is not refuted is not proven: another attack might show more.")
    if any(item.verdict == "inconclusive" for item in found):
        say("inconclusive: so few runs could not have shown what is promised to be broken.")
    return lines


def _verdict(item: Audit | CanaryAudit) -> str:
    """The verdict, and what the audit could have shown."""
    if item.is_refuted:
        return "REFUTED"
    could = f"could have shown up to {item.could_show:.3g}"
    factor: float | None = getattr(item, "would_catch", None)
    if factor:
        could += f", or noise x {factor:.2g}"
    return f"{item.verdict.value} ({could})"


def _failure_note(item: Audit | CanaryAudit) -> str:
    """That runs ended in errors, if they did."""
    failures: tuple[float, float] = getattr(item, "failures", (0.0, 0.0))
    return f" ({max(failures):.1%} of runs failed)" if any(failures) else ""


def _gaussian_epsilon(item: Audit | CanaryAudit) -> str:
    fit = getattr(item, "gaussian", None)
    return f"{fit.epsilon:.3g}" if fit is not None and item.delta else "-"
