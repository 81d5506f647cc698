"""Private gradient collection: locally private (LDP) policy gradients from many agents.

`learner` has the promise, `privatiser` what an agent sends and its proof, `aggregator` what is made
of it, `losses` what an agent computes, `program` and `reports` the compiled simulation,
`collection` a whole run, `learned` what came of it.
"""
