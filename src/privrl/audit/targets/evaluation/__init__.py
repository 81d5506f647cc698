"""The private estimators under attack: whole fits on neighbouring data, and all they give away.

Importing the modules of this package puts their targets into the catalogue of `privrl.audit`, where
`privrl audit` finds them. Each run is a call of a public `fit`, with fresh secret noise. What an
attacker sees of it is every number and every word of the result as it would be saved, and all else
that the promise covers: the noised sums, and where every iterate is covered, every iterate. The
promise is the certificate's. In the two worlds everybody's data is the same but for the last
person's, whose rewards and ratios lie far outside their ranges, one way or the other.

A fit takes milliseconds and a mechanism microseconds, so these audits make do with few runs. Three
things give them power: promises large enough for an attack to come near them (`BUDGET`, at which
the noise of some 900 runs that are judged shows to be 0.8 of what it should be), all noised sums
seen, and data that goes through the shipped clipping to the very bound. Where only one point of
the promise's curve can be had at a reasonable price, it lies where few runs can see it.

Noise that is used again shows in the *differences* of iterates, if somebody contributes differently
to one than to the other. So where everybody takes part in every step, what is looked at is each
noised sum less what it would be in the first world, given the iterate before, which is pure noise
there; how that changes from step to step; and by how much more likely all of it is in the second
world (`evidence`).
"""
