"""Privacy sessions: who pays for a run before any noise is drawn, and where that noise comes from.

    session = PrivacySession(ledger=ledger, run="icu 2026")
    PrivateLSTD(...).fit(data, policy, session=session)

A learner or estimator opens the session for its unit and relation, pays for everything that it is
about to release, draws noise from the session's source, and lets the session certify.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from privrl.core import checks
from privrl.core.errors import InputError, PrivRLError
from privrl.privacy import accounting
from privrl.privacy.certificate import IDEALISED_ARITHMETIC, Assumption, Certificate
from privrl.privacy.events import Event, as_events
from privrl.privacy.ledger import Ledger
from privrl.privacy.noise import Source, reproducible, secure
from privrl.privacy.promise import Relation, Release, Unit
from privrl.privacy.resuming import NoiseKey

_TOKEN_PREFIX = "run "  # before the run's token, in the note of its payment


@dataclass(frozen=True, kw_only=True)
class PrivacySession:
    """Who pays for a run, under which name, and whether its noise is secret."""

    ledger: Ledger | None = None
    """Of those who are protected: what a run costs is on disk before its noise exists, and a ledger
    with a limit may refuse it. None if nobody keeps count."""

    run: str | None = None
    """The run's name in the ledger."""

    seed: int | None = None
    """Makes the run reproducible, which its certificate says: for experiments; two fits with one
    seed draw the same noise. None for secret noise."""

    public: bool = False
    """The data, or who is in the environment, needs no protection: what is not private is shown
    beside the result."""

    def __post_init__(self) -> None:
        checks.boolean("public", self.public)
        if self.ledger is not None and not isinstance(self.ledger, Ledger):
            raise InputError("must be a Ledger: open its file with Ledger.open.", field="ledger")
        if self.ledger is not None and self.run is None:
            raise InputError("A ledger needs the run's name: say run='...'.")
        if self.ledger is None and self.run is not None:
            raise InputError("run is the run's name in a ledger: say which, or leave it out.")
        self.source()  # refuses what is no seed

    def source(self) -> Source:
        """Where the noise comes from."""
        return secure() if self.seed is None else reproducible(self.seed)

    def open(
        self,
        unit: Unit,
        relation: Relation,
        *,
        source: Source | None = None,
        reward_radius: float | None = None,
    ) -> "OpenSession":
        """The session of one run that protects `unit` under `relation`.

        `source` is where the noise comes from instead of the seed, if a run of several releases has
        one for each. `reward_radius` is how far apart neighbouring reward functions are.
        """
        return OpenSession(self, unit, relation, source or self.source(), reward_radius)


SECRET_SESSION = PrivacySession()
"""Secret noise, and no ledger."""


class OpenSession:
    """One run's spending: `pay` for everything first, then draw from `source`, then `certify`."""

    def __init__(
        self,
        session: PrivacySession,
        unit: Unit,
        relation: Relation,
        source: Source,
        reward_radius: float | None,
    ) -> None:
        ledger = session.ledger
        if ledger is not None and (ledger.about.unit, ledger.about.relation) != (unit, relation):
            raise InputError(
                f"This ledger protects a {ledger.about.unit} under {ledger.about.relation}, "
                f"and the fit a {unit} under {relation}: they do not add up."
            )
        self.unit, self.relation = unit, relation
        self.ledger, self.run, self.seed = ledger, session.run, session.seed
        self.source, self.reward_radius = source, reward_radius
        self.kept: NoiseKey | None = None
        self._paid: tuple[Event, ...] = ()
        self._parts: list[Event] = []
        self._whole = True  # and no part of another one

    def attach_key(self, kept: NoiseKey) -> None:
        """What a run that can be gone on with has in its folder: where its noise comes from, and by
        what its payment is known again."""
        self.kept = kept
        if self.seed is None:
            self.source = kept.source()

    @property
    def folder_assumptions(self) -> tuple[Assumption, ...]:
        """What a certificate rests on because of what the run has in its folder, if it has one."""
        return () if self.kept is None else self.kept.assumptions(self.ledger)

    @property
    def has_paid(self) -> bool:
        """Whether anything was paid, by this process or by the run it goes on with."""
        return bool(self._paid)

    def pay(
        self,
        events: Event | Iterable[Event],
        *,
        delta: float | None = None,
        new_run: bool = False,
    ) -> None:
        """Record what is about to happen, unless the run that goes on had done so before.

        `delta` is the one that `certify` will be asked for: what cannot be certified at it is not
        paid for. `new_run` refuses a name that the ledger has already.
        """
        if not self._whole:
            raise AssertionError("A part of a payment pays nothing itself.")
        listed = as_events(events)
        again = self.kept is not None and not self.kept.begun_here
        if (
            self.ledger is not None
            and self.run is not None
            and not (again and self._has_ledger_payment(listed))
        ):
            note = "" if self.kept is None else _TOKEN_PREFIX + self.kept.token
            self.ledger.spend(
                listed,
                run=self.run,
                note=note,
                reward_radius=self.reward_radius,
                delta=delta,
                new_run=new_run,
            )
        elif self.ledger is None and delta is not None:
            accounting.account((*self._paid, *listed), delta, self.relation)
        self._paid += listed

    def part(self, events: Event | Iterable[Event], source: Source) -> "OpenSession":
        """One of several releases that were paid for together, with a source of its own.

        Its certificate is about `events` alone, which must be among those that were paid for and
        that no other part has.
        """
        listed = as_events(events)
        left = list(self._paid) if self._whole else []
        for event in (*self._parts, *listed):
            if event not in left:
                raise AssertionError("Something else is released than was paid for.")
            left.remove(event)
        self._parts += listed
        own = OpenSession(SECRET_SESSION, self.unit, self.relation, source, self.reward_radius)
        own._paid, own._whole = listed, False
        return own

    def check_paid(self, event: Event) -> None:
        """Refuse to draw for anything that was not paid for."""
        if event not in self._paid:
            raise AssertionError("Something else is released than was paid for.")

    @property
    def may_have_paid(self) -> bool:
        """Whether the ledger has a payment of this run, or cannot be asked.

        A disk that fails late in a payment says that it failed, and the entry is there.
        """
        if self.has_paid:
            return True
        if self.ledger is None or self.kept is None:
            return False
        try:
            with Ledger.open(self.ledger.path) as asked:
                own = _TOKEN_PREFIX + self.kept.token
                return any(entry.note.endswith(own) for entry in asked.entries())
        except PrivRLError:
            return True

    def adopt_payment(self, events: Event | Iterable[Event]) -> None:
        """Take over what an interrupted run has paid, of which this one is the rest."""
        listed = as_events(events)
        if self.ledger is not None and not self._has_ledger_payment(listed):
            raise InputError(f"This ledger did not pay for {self.run!r}: say the one that did.")
        self._paid += listed

    def _has_ledger_payment(self, events: tuple[Event, ...]) -> bool:
        """Whether the ledger has this run's payment for these events."""
        assert self.ledger is not None
        token = "" if self.kept is None else _TOKEN_PREFIX + self.kept.token
        return self.run is not None and self.ledger.has_paid(self.run, events, token)

    def certify(
        self,
        delta: float,
        *,
        release: Release = Release.FINAL_MODEL,
        assumptions: Iterable[Assumption] = (),
        compiled: bool = False,
        floating: bool = True,
    ) -> Certificate:
        """A certificate of all that was paid; `compiled` if the noise came from one of JAX's keys.

        `floating` says that sums or noise were floating-point numbers.
        """
        listed = (
            *assumptions,
            *self.folder_assumptions,
            *([IDEALISED_ARITHMETIC] if floating else []),
        )
        if self.ledger is not None and self.run is not None:
            return self.ledger.certify(
                self.run,
                delta,
                source=self.source,
                release=release,
                assumptions=listed,
                compiled=compiled,
                reward_radius=self.reward_radius,
            )
        return Certificate.issue(
            self._paid,
            delta,
            unit=self.unit,
            relation=self.relation,
            release=release,
            assumptions=listed,
            noise=self.source.key_origin if compiled else self.source.origin,
            reward_radius=self.reward_radius,
        )


@contextmanager
def forget_unless_paid(opened: OpenSession) -> Iterator[None]:
    """A run that begins and is refused before anything was paid leaves no key."""
    try:
        yield
    except PrivRLError:
        kept = opened.kept
        if kept is not None and kept.begun_here and not opened.may_have_paid:
            kept.remove()
        raise
