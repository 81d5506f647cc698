"""Golden files: what small cases gave before a change, so that no figure changes unnoticed.

    python -m tests.golden write [DIR]      run all cases and store what they gave
    python -m tests.golden compare [DIR]    run them again and print every difference

A case is a command line, or calls in Python, at a fixed seed; what it gave is one file of JSON
(`files/<case>.json`). What varies from run to run, and the package's own name, is taken out by
`canonical.py`, rule by rule. `files/machine.json` says on what kind of machine, and with which
versions, the files were written.

On that kind of machine all is compared to the last digit. On another, rounding differs, and with it
whatever a rounding decides: there certificates and figures of evaluations are compared with a
relative tolerance of 1e-9, printed text without its numbers, and of learned policies and results
only certificates, claims, settings and shapes, since a rounding may flip a sampled action.

`ledgers/` holds a ledger, certificates and an interrupted run, made when the package was called
tacit: they must stay readable.
"""
