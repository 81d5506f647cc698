"""Neighbouring tables: whatever one person's rows say, nothing but noised figures may change.

    python -m tests.neighbours            every command on every pair that CI runs
    python -m tests.neighbours --all      all of them, as `make test-nightly` does

Two instruments. `comparing` runs a command on two tables that differ in one person, under the same
noise, and compares exit code, stdout, stderr and every file byte by byte; what may differ is listed
there. `replaying` runs both with the *same released values*, and so sees by how much each exact sum
moves: in no release by more than its certificate charges for, and with disjoint batches in no more
than one of them.
"""
