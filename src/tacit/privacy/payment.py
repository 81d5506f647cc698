"""Who pays for a fit, before any noise is drawn, and where that noise comes from."""

from collections.abc import Iterable

from tacit.privacy.certificate import IDEALISED_ARITHMETIC, Assumption, Certificate
from tacit.privacy.errors import InputError
from tacit.privacy.events import Event, as_events
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise import Source, reproducible, secure
from tacit.privacy.promise import Relation, Release, Unit


class Purse:
    """One run's spending: `pay` for everything first, then draw from `source`, then `certify`.

    With a `ledger` the events are on disk before the noise exists, and a ledger with a limit may
    refuse them. `seed` makes the run reproducible, which its certificate says: for experiments.
    `reward_radius` is how far apart neighbouring reward functions are.
    """

    def __init__(
        self,
        *,
        unit: Unit,
        relation: Relation,
        ledger: Ledger | None = None,
        run: str | None = None,
        seed: int | None = None,
        reward_radius: float | None = None,
    ) -> None:
        if ledger is not None:
            if run is None:
                raise InputError("A ledger needs the run's name: say run='...'.")
            if (ledger.about.unit, ledger.about.relation) != (unit, relation):
                raise InputError(
                    f"This ledger protects a {ledger.about.unit} under {ledger.about.relation}, "
                    f"and the fit a {unit} under {relation}: they do not add up."
                )
        self.unit, self.relation = unit, relation
        self.ledger, self.run = ledger, run
        self.reward_radius = reward_radius
        self.source: Source = secure() if seed is None else reproducible(seed)
        self._paid: tuple[Event, ...] = ()

    def pay(self, events: Event | Iterable[Event]) -> None:
        """Record what is about to happen."""
        listed = as_events(events)
        if self.ledger is not None and self.run is not None:
            self.ledger.spend(listed, run=self.run, reward_radius=self.reward_radius)
        self._paid += listed

    def paid_before(self, events: Event | Iterable[Event]) -> None:
        """Take over what an interrupted run has paid, of which this one is the rest."""
        listed = as_events(events)
        if self.ledger is not None and not any(
            entry.run == self.run and entry.events == listed for entry in self.ledger.entries()
        ):
            raise InputError(f"This ledger did not pay for {self.run!r}: say the one that did.")
        self._paid += listed

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
        listed = (*assumptions, *([IDEALISED_ARITHMETIC] if floating else []))
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
