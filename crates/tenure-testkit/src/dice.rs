//! A small seeded random number generator, so that a failed test can be repeated.

/// Seeded random number generator (splitmix64). The same seed gives the same numbers on every machine.
///
/// # Examples
/// ```
/// use tenure_testkit::Dice;
///
/// assert_eq!(Dice::new(7).below(1_000), Dice::new(7).below(1_000));
/// ```
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Creates a generator from a seed.
    pub fn new(seed: u64) -> Self {
        Dice(seed)
    }

    /// Returns a random number from the whole range.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a random number below `bound`, or 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.roll().checked_rem(bound).unwrap_or(0)
    }

    /// Returns true with a probability of `percent`.
    pub fn chance(&mut self, percent: u8) -> bool {
        self.below(100) < u64::from(percent)
    }
}
