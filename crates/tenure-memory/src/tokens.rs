//! The counter of fencing tokens: one for the whole store, so that no key leaves a counter behind.

use std::num::NonZeroU32;
use std::time::Duration;

use tenure_backend::{FencingToken, Instant, TokenRange};

/// A counter that draws tokens, which rise across all keys.
///
/// Each token is at least the wall clock in microseconds. So tokens also rise across a restart of the process, unless
/// the wall clock was set back, or the counter ran ahead of it: more than one token per microsecond was drawn, or a
/// renewal raised the counter.
#[derive(Debug)]
pub(crate) struct Tokens {
    last: u64,
    /// The wall clock in microseconds when the store's clock was at its origin. The wall clock is read only once: the
    /// time on the store's clock is added to this value.
    origin: u64,
}

impl Tokens {
    /// The greatest token to which a renewal may raise the counter: half of the greatest possible token. No process
    /// can use up all tokens above it.
    pub(crate) const HIGHEST_RAISE: FencingToken =
        FencingToken::new(FencingToken::MAX / 2).expect("half of the greatest token is one");

    /// Creates a counter. `now` is the time on the store's clock, `wall` the wall clock since the Unix epoch.
    pub(crate) fn new(now: Instant, wall: Duration) -> Self {
        let wall = u64::try_from(wall.as_micros()).unwrap_or(0);
        Tokens {
            last: 0,
            origin: wall.saturating_sub(micros(now)),
        }
    }

    /// Reserves `count` consecutive tokens. They are greater than all tokens drawn before, and greater than each to
    /// which a renewal raised the counter.
    pub(crate) fn draw(&mut self, now: Instant, count: NonZeroU32) -> TokenRange {
        let wall = self.origin.saturating_add(micros(now));
        let first = FencingToken::new((self.last + 1).max(wall));
        let range = first
            .and_then(|first| TokenRange::new(first, count))
            .expect("the counter starts in microseconds and is raised to at most half of all tokens");
        self.last = range.last().get();
        range
    }

    pub(crate) fn raise(&mut self, range: TokenRange) {
        self.last = self.last.max(range.last().get());
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
            "no token is skipped or shared"
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
