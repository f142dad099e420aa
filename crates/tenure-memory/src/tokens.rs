//! The counter behind the fencing tokens: one for the whole store, so that nothing is left behind per key.

use std::num::NonZeroU32;
use std::time::Duration;

use tenure_backend::{FencingToken, Instant, TokenRange};

/// Draws tokens that rise with every draw, for all keys together.
///
/// A draw is at least the wall clock in microseconds, so that the tokens of a process that is started again
/// rise too, unless that clock was set back meanwhile.
#[derive(Debug)]
pub(crate) struct Tokens {
    last: u64,
    /// What the wall clock showed at the origin of the store's clock, in microseconds. It is read once: from
    /// then on the store's clock moves it.
    origin: u64,
}

impl Tokens {
    /// How far a renewal may raise the counter: half of all tokens then remain to be drawn, which no process
    /// lives to use up.
    pub(crate) const HIGHEST_RAISE: FencingToken =
        FencingToken::new(FencingToken::MAX / 2).expect("half of the greatest token is one");

    /// A counter for a store on whose clock it is `now`, `wall` after the Unix epoch.
    pub(crate) fn new(now: Instant, wall: Duration) -> Self {
        let wall = u64::try_from(wall.as_micros()).unwrap_or(0);
        Tokens {
            last: 0,
            origin: wall.saturating_sub(micros(now)),
        }
    }

    /// Reserves `count` successive tokens, each greater than every one drawn or raised to before.
    pub(crate) fn draw(&mut self, now: Instant, count: NonZeroU32) -> TokenRange {
        let wall = self.origin.saturating_add(micros(now));
        let first = FencingToken::new((self.last + 1).max(wall));
        let run = first
            .and_then(|first| TokenRange::new(first, count))
            .expect("a counter that begins in microseconds and is raised to half of the tokens never ends");
        self.last = run.last().get();
        run
    }

    /// Lifts the counter to at least the last token of `run`.
    pub(crate) fn raise(&mut self, run: TokenRange) {
        self.last = self.last.max(run.last().get());
    }
}

fn micros(instant: Instant) -> u64 {
    instant.as_nanos() / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one() -> NonZeroU32 {
        NonZeroU32::MIN
    }

    #[test]
    fn tokens_rise_while_the_clock_stands_still() {
        let now = Instant::from_nanos(5);
        let mut tokens = Tokens::new(now, Duration::ZERO);
        let first = tokens.draw(now, NonZeroU32::new(64).unwrap());
        assert_eq!(
            tokens.draw(now, one()).first().get(),
            first.last().get() + 1,
            "nothing is skipped, nothing shared"
        );
    }

    #[test]
    fn tokens_follow_the_wall_clock_in_microseconds() {
        let start = Instant::from_nanos(1_000_000_000);
        let mut tokens = Tokens::new(start, Duration::from_secs(7));
        let first = tokens.draw(start, one()).first().get();
        assert_eq!(first, 7_000_000);
        let later = tokens
            .draw(Instant::from_nanos(3_000_000_000), one())
            .first()
            .get();
        assert_eq!(later - first, 2_000_000);
    }

    #[test]
    fn a_raise_lifts_the_counter_and_never_lowers_it() {
        let mut tokens = Tokens::new(Instant::ORIGIN, Duration::from_secs(7));
        let drawn = tokens.draw(Instant::ORIGIN, one()).first().get();
        let raised = FencingToken::new(drawn + 1_000_000_000).unwrap();
        tokens.raise(TokenRange::new(raised, one()).unwrap());
        tokens.raise(TokenRange::new(FencingToken::new(1).unwrap(), one()).unwrap());
        assert_eq!(
            tokens.draw(Instant::ORIGIN, one()).first().get(),
            raised.get() + 1
        );
    }
}
