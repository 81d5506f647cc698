"""Text that came from a file, made fit to be printed."""


def printable(text: str) -> str:
    r"""`text` with each character that does not show as itself written as its escape, `\x1b`.

    Whoever wrote a file wrote the names and sentences in it. On a terminal, control characters in
    them would move the cursor, clear lines or turn the order of letters around, and so make a
    refusal look like a confirmation. What Python calls printable stays: letters of all scripts,
    marks and the space; neither line breaks nor other spaces do.
    """
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
