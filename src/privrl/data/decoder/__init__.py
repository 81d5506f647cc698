"""From Arrow batches to checked NumPy columns, one batch at a time.

`Decoder.block` takes the next batch of rows and either returns it checked and converted, or raises
one sentence with file, column and first offending row. What a later row must agree with (the
trajectory and user it continues, the time it follows, the value to carry forward) is kept from
batch to batch, so a trajectory that straddles row groups or files is checked, and put together, as
if it did not. Everything is vectorised; Python runs per batch and, for ids in words, per
trajectory.

No message quotes a cell: rows are private, their positions are for their owner to look up.
"""

from privrl.data.decoder.blocks import Block, Decoder

__all__ = ["Block", "Decoder"]
