"""`privrl risk`: what an uncertain outcome is worth to somebody."""

from pathlib import Path
from typing import Any

from privrl.cli.derived import CommandSpec
from privrl.cli.printing import answer, shell_quote
from privrl.core.errors import InputError
from privrl.core.spec import option


class Options(CommandSpec):
    """What an uncertain outcome is worth to somebody, by prospect theory.

    \b
    privrl risk --outcomes 20:0.05,0:0.95
    privrl risk --samples=-3,1,1,2 --prospect rajabi2022
    privrl risk --page weights.html
    """

    outcomes: str | None = option("Each with its probability, by commas, such as 20:0.05,0:0.95.")
    samples: str | None = option("Outcomes that are equally likely, by commas, such as -1,0,4.")
    prospect: str = option(
        "neutral, tversky-kahneman, rajabi2022, or a file .json.", "tversky-kahneman"
    )
    page: Path | None = option("Where to write the weights and utilities, as HTML.")

    def run(self) -> None:
        from privrl.risk.prospect import Prospect, parse_outcomes, parse_prospect

        who: Prospect = parse_prospect(self.prospect)
        if self.outcomes is not None and self.samples is not None:
            raise InputError("Say --outcomes with their probabilities, or --samples, and not both.")
        text = self.outcomes if self.samples is None else self.samples
        if text is None and self.page is None:
            raise InputError("Say --outcomes 20:0.05,0:0.95, or --samples 3,4,5, or --page FILE.")
        found: dict[str, Any] = {"prospect": who.to_dict()}
        lines = []
        if text is not None:
            values, probs = parse_outcomes(text, equally_likely=self.samples is not None)
            value = float(who.of_distribution(values, probs))
            mean = float(Prospect.neutral().of_distribution(values, probs))
            equivalent = float(who.certainty_equivalent(value))
            found |= {"mean": mean, "value": value, "equivalent": equivalent}
            lines += [
                f"To {shell_quote(self.prospect)} it is worth {value:.6g}, as much as",
                f"{equivalent:.6g} for certain. Its mean is {mean:.6g}.",
            ]
        if self.page is not None:
            from privrl.report import prospects

            prospects.write(who, self.prospect, self.page)
            found["page"] = str(self.page)
            lines.append(f"Weights and utilities are in {shell_quote(self.page)}.")
        answer(found, *lines)
