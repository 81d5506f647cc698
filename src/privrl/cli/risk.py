"""`privrl risk`: what an uncertain outcome is worth to somebody."""

import math
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from privrl.cli.common import Json
from privrl.cli.printing import answer, shell_quote


def risk(
    outcomes: Annotated[
        str | None,
        Option(help="Each with its probability, by commas, such as 20:0.05,0:0.95."),
    ] = None,
    samples: Annotated[
        str | None,
        Option(help="Outcomes that are equally likely, by commas, such as -1,0,4."),
    ] = None,
    prospect: Annotated[
        str | None,
        Option(help="neutral, tversky-kahneman, rajabi2022, or a file .json."),
    ] = None,
    page: Annotated[
        Path | None, Option(help="Where to write the weights and utilities, as HTML.")
    ] = None,
    as_json: Json = False,
) -> None:
    """What an uncertain outcome is worth to somebody, by prospect theory.

    \b
    privrl risk --outcomes 20:0.05,0:0.95
    privrl risk --samples=-3,1,1,2 --prospect rajabi2022
    privrl risk --page weights.html
    """
    from privrl.core.spec import number
    from privrl.privacy import InputError
    from privrl.risk import Prospect, parse_prospect

    name = "tversky-kahneman" if prospect is None else prospect
    who: Prospect = parse_prospect(name)
    if outcomes is not None and samples is not None:
        raise InputError("Say --outcomes with their probabilities, or --samples, and not both.")
    if outcomes is None and samples is None and page is None:
        raise InputError("Say --outcomes 20:0.05,0:0.95, or --samples 3,4,5, or --page FILE.")
    found: dict[str, Any] = {"prospect": who.to_dict()}
    lines = []
    if outcomes is not None or samples is not None:
        values, probs = [], []
        parts = [one.strip() for one in (outcomes or samples or "").split(",")]
        for part in parts:
            outcome, colon, prob = part.partition(":")
            if samples is not None and colon:
                raise InputError(
                    f"Samples are equally likely: say {outcome!r} without a probability."
                )
            if outcomes is not None and not colon:
                raise InputError(f"Say how likely {part!r} is, such as {part or 20}:0.05.")
            values.append(number("outcomes", outcome))
            if not math.isfinite(values[-1]):
                raise InputError(f"must be finite, not {outcome}.", field="outcomes")
            probs.append(number("A probability", prob) if outcomes is not None else 1 / len(parts))
        value = float(who.of_distribution(values, probs))
        mean = float(Prospect.neutral().of_distribution(values, probs))
        equivalent = float(who.certainty_equivalent(value))
        found |= {"mean": mean, "value": value, "equivalent": equivalent}
        lines += [
            f"To {shell_quote(name)} it is worth {value:.6g}, as much as",
            f"{equivalent:.6g} for certain. Its mean is {mean:.6g}.",
        ]
    if page is not None:
        from privrl.report import prospects

        prospects.write(who, name, page)
        found["page"] = str(page)
        lines.append(f"Weights and utilities are in {shell_quote(page)}.")
    answer(as_json, found, *lines)
