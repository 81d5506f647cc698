"""Options of the papers' learners that show Q with functional noise."""

from typing import Annotated

import typer

Preset = Annotated[str | None, typer.Option(help="printed (default), or public-code (authors').")]
ClaimedEpsilon = Annotated[
    float | None, typer.Option(help="The privacy budget that the paper's theorem claims.")
]
ClaimedDelta = Annotated[float | None, typer.Option(help="The theorem's failure probability.")]
PublicReturns = Annotated[
    bool, typer.Option("--public", help="Returns may be logged, and the score shown.")
]
LearningRate = Annotated[float | None, typer.Option(help="The learning rate, alpha.")]
Sigma = Annotated[float | None, typer.Option(help="The noise, instead of --epsilon.")]
Rate = Annotated[float | None, typer.Option(help="How fast the noise forgets, beta.")]
