"""Loading that never refuses a table for what is in it: `invalid="neutral"`.

Under `invalid="refuse"` a bad cell stops the loading, and the message says where it is. That is the
curator's own step, seen by nobody else. Where nobody looks (an unattended pipeline), a refusal is
an answer about a person that no budget pays for: whoever chooses the options can ask "is anybody's
state above 2?" for nothing. With `invalid="neutral"` only the *schema* can be refused: names and
types of columns, and what the caller says of them. After that every table is loaded.

**The map.** Fix the schema and the caller's words, among them N, the number of `people`.

1. A row without an owner is left out: its user (its trajectory, if nobody is named) is null or no
   id, or it is a line of a CSV file that is not UTF-8 or has another number of cells than the
   header. A line is a row: quotes do not reach beyond it.
2. The rows of one owner are put in order, by trajectory and time, ties as they stand in the files.
   Trajectories are told apart within their owner: two people may use one trajectory id.
3. An owner is *valid* if all their rows are: every cell can be read as what its column is for; it
   is finite and in the range that the caller gave (states, actions, words, probabilities, flags);
   nulls are answered by the caller's rule for the column; times go up within each trajectory; flags
   are set on last rows only; next states are those of the next row, and there where a trajectory
   goes on after its last row; and a stream's owner has at most `batch_rows` rows.
4. An owner who is not valid is replaced by the *neutral person*: one trajectory of one row that is
   cut off, with the first state and action (or zeros), reward 0 and probabilities 1.
5. The owners, in an order that depends on ids alone, are numbered: the first N are kept, and if
   there are fewer, neutral persons are added. Exactly N come out.

**Theorem.** Let D and D' be tables of this schema that differ in the rows of one owner (of one id,
which may be another in D' and may be missing from either), and in rows without an owner. Then what
is loaded from D and from D' are N persons each, and as multisets they differ in at most one person.

*Proof.* Rows without an owner do not matter, by 1, which looks at one row at a time. Steps 2 to 4
are a function of one owner's rows: f(rows). So D gives the set {(i, f(D_i))}, and D' the same but
for one element taken out and one put in (or one of the two). Add infinitely many neutral persons
whose ids come after all others: 5 takes the N smallest of either. Replacing one element of an
ordered set by another changes its N smallest by at most one taken out and one put in. QED

So a mechanism that is private for N people under replace-one, whatever the people hold, is private
for tables of this schema, at the same price: the sensitivity of a sum of bounded contributions is
that of one person. No output may depend on places, since they shift: fits look at the multiset
alone. Secret draws for each person (Poisson samples, the step of a single pass) are independent and
alike for whatever numbers people have, so their law depends on the multiset alone, too. N is the
caller's constant and is not compared with what is in the table: nobody may learn from N that
somebody is there. If it is too small, people are left out; if it is too large, neutral persons
dilute the figures.

What is not covered: time and memory, which grow with the rows; and the schema. Types that a program
made up from the values it wrote (whole numbers turned into fractions by a missing one) are taken
alike where they can be, but the schema must be fixed before the data is looked at.

`schema.py` says what may be refused; `cells.py` and `owned_rows.py` are step 1; `people.py` is
the rest.
"""

from privrl.data.neutral.owned_rows import rows_of_chunks, rows_of_text
from privrl.data.neutral.people import People, in_batches, in_memory
from privrl.data.neutral.schema import shape_of, text_shape

__all__ = [
    "People",
    "in_batches",
    "in_memory",
    "rows_of_chunks",
    "rows_of_text",
    "shape_of",
    "text_shape",
]
