"""Thousands of bad and odd inputs to every command, and slow oracles for the numbers of good ones.

    python -m tests.fuzz --cases 10000         # all kinds; prints what was found, by kind
    python -m tests.fuzz --only policies --cases 500 --seed 3
    python -m tests.fuzz --case policies:17    # one case: its command, and what came out of it

- `stock`: good files of every sort, made once by the commands themselves;
- `damage`: ways to spoil bytes, JSON, TOML and tables;
- `kinds`: what is fuzzed; a case follows from its kind, its number and the seed alone;
- `running`: each case in a process of its own, forked from one that has imported everything;
- `judging`: what a command must not do, whatever it is given;
- `oracle`: a slow reader and slow evaluators in plain Python.
"""
