"""What is missing is asked for in one sentence, or in one list."""

import pickle

import pytest

from privrl.core.errors import InputError, Option, option
from privrl.core.questions import MissingOptions, Question, ask

EPSILON = Question("epsilon", "the privacy budget, such as 1", "Or " + option("public", True))
DELTA = Question("delta", "the failure probability, such as 1e-6")
STATE = Question("state", "the columns of states", "The columns are a, b")
ACTION = Question("action", "the column of actions", "The columns are a, b")


def flags(one: Option) -> str:
    return one.name if one.given else f"--{one.name}"


def test_nothing_is_asked_if_nothing_is_missing() -> None:
    ask([])
    ask(iter(()))


def test_one_question_is_one_sentence() -> None:
    with pytest.raises(InputError) as refused:
        ask([EPSILON])
    error = refused.value
    assert isinstance(error, MissingOptions)
    assert (error.field, error.problem) == ("epsilon", "is needed")
    assert str(error) == (
        "epsilon is needed: say with epsilon the privacy budget, such as 1. Or public=True."
    )
    told = "epsilon is needed: say with --epsilon the privacy budget, such as 1. Or --public."
    assert error.render(flags) == told
    assert error.lines(flags) == [told]
    assert str(MissingOptions([DELTA])).endswith("such as 1e-6.")


def test_several_are_a_list_in_the_order_they_are_asked() -> None:
    error = MissingOptions([STATE, EPSILON, ACTION, DELTA])
    assert error.lines(flags) == [
        "4 options are needed:",
        "  --state: the columns of states.",
        "  --epsilon: the privacy budget, such as 1. Or --public.",
        "  --action: the column of actions.",
        "  --delta: the failure probability, such as 1e-6.",
        "  The columns are a, b.",
    ]
    assert str(error).split("\n") == error.lines()
    assert error.render(flags).split("\n") == error.lines(flags)
    assert error.field is None


def test_questions_are_kept_in_other_processes_and_in_json() -> None:
    for questions in ((DELTA,), (EPSILON, DELTA)):
        error = MissingOptions(questions)
        again = pickle.loads(pickle.dumps(error))
        assert (again.questions, str(again)) == (error.questions, str(error))
        assert again.lines(flags) == error.lines(flags)
    assert MissingOptions([EPSILON, DELTA]).to_list(flags) == [
        {
            "field": "epsilon",
            "option": "--epsilon",
            "question": "the privacy budget, such as 1",
            "hint": "Or --public",
        },
        {
            "field": "delta",
            "option": "--delta",
            "question": "the failure probability, such as 1e-6",
            "hint": "",
        },
    ]
