"""The notebook runs, from the first cell to the last, and shows what it showed when it was written.

`python -m tests.test_notebook` runs it and stores what its cells show.
"""

import ast
import contextlib
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[1] / "docs" / "walkthrough.ipynb"


def run(cells: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    """What each code cell prints, and the value of its last line if that is an expression."""
    names: dict[str, Any] = {"__name__": "__notebook__"}
    shown = []
    for number, cell in enumerate(cells):
        tree = ast.parse("".join(cell["source"]), f"cell {number}")
        last = tree.body[-1] if isinstance(tree.body[-1], ast.Expr) else None
        body = ast.Module(tree.body[:-1] if last else tree.body, [])
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(body, f"cell {number}", "exec"), names)
            value = last and eval(
                compile(ast.Expression(last.value), f"cell {number}", "eval"), names
            )
        shown.append((printed.getvalue(), value))
    return shown


def outputs(printed: str, value: Any) -> list[dict[str, Any]]:
    """What a notebook stores of them."""
    found: list[dict[str, Any]] = []
    if printed:
        found.append({"name": "stdout", "output_type": "stream", "text": [printed]})
    if value is not None:
        data = {"text/plain": [repr(value)]}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = [value._repr_html_()]
        found.append(
            {"data": data, "execution_count": None, "metadata": {}, "output_type": "execute_result"}
        )
    return found


def _plain(cell: dict[str, Any]) -> str:
    """What a cell shows, but for paths and dates, which are others each time."""
    text = json.dumps(cell["outputs"])
    return re.sub(r"/tmp/\w+|\d{4}-\d\d-\d\d[T ]?[\d:.+]*", "", text)


@pytest.mark.slow
def test_every_cell_runs_and_shows_what_it_showed() -> None:
    code = [one for one in json.loads(NOTEBOOK.read_text("utf-8"))["cells"] if "outputs" in one]
    assert len(code) > 8
    for cell, (printed, value) in zip(code, run(code), strict=True):
        assert _plain(cell) == _plain({"outputs": outputs(printed, value)})


def test_the_walk_ends_where_it_began() -> None:
    """A resumed run and a loaded result are what was learned: the last values are True."""
    code = [one for one in json.loads(NOTEBOOK.read_text("utf-8"))["cells"] if "outputs" in one]
    said = [
        "".join(one["outputs"][-1]["data"]["text/plain"])
        for one in code
        if one["outputs"] and "data" in one["outputs"][-1]
    ]
    assert said[-1] == "True"
    assert "(True, True)" in said


def main() -> None:
    held = json.loads(NOTEBOOK.read_text("utf-8"))
    code = [one for one in held["cells"] if one["cell_type"] == "code"]
    for cell, (printed, value) in zip(code, run(code), strict=True):
        cell["outputs"] = outputs(printed, value)
    NOTEBOOK.write_text(json.dumps(held, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
