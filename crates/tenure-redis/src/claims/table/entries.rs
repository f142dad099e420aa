//! The entries of one client's claims, by the claims' numbers.
//!
//! A client numbers its claims in the order in which it makes them, and claims that were granted together are renewed
//! together. So entries with consecutive numbers lie in blocks, side by side in memory, and one look into a small hash
//! table finds a block. A hash table of all entries would take up to twice their memory, because it doubles when it grows.

use rustc_hash::FxHashMap;

/// Number of entries in a block: enough that the blocks' own memory hardly counts, and few enough that one claim that is
/// left of a block keeps little memory.
const BLOCK: u64 = 8;

pub(super) struct Entries<T> {
    /// By the claims' numbers divided by [`BLOCK`]. No block is empty.
    blocks: FxHashMap<u64, Box<[Option<T>; BLOCK as usize]>>,
    len: usize,
}

impl<T> Default for Entries<T> {
    fn default() -> Self {
        Entries {
            blocks: FxHashMap::default(),
            len: 0,
        }
    }
}

/// The block of a claim, and its place in the block.
fn place(number: u64) -> (u64, usize) {
    (number / BLOCK, (number % BLOCK) as usize)
}

impl<T> Entries<T> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, number: u64) -> Option<&T> {
        let (block, at) = place(number);
        self.blocks.get(&block)?[at].as_ref()
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let (block, at) = place(number);
        self.blocks.get_mut(&block)?[at].as_mut()
    }

    pub(super) fn get_or_insert_with(&mut self, number: u64, make: impl FnOnce() -> T) -> &mut T {
        let (block, at) = place(number);
        let entry = &mut self.blocks.entry(block).or_default()[at];
        self.len += usize::from(entry.is_none());
        entry.get_or_insert_with(make)
    }

    pub(super) fn remove(&mut self, number: u64) {
        let (at_block, at) = place(number);
        let Some(block) = self.blocks.get_mut(&at_block) else {
            return;
        };
        self.len -= usize::from(block[at].take().is_some());
        if block.iter().all(Option::is_none) {
            self.blocks.remove(&at_block);
        }
    }

    /// Removes the entries for which `stays` returns false.
    pub(super) fn retain(&mut self, mut stays: impl FnMut(u64, &T) -> bool) {
        self.blocks.retain(|number, block| {
            for (entry, number) in block
                .iter_mut()
                .zip(number * BLOCK..=number * BLOCK + (BLOCK - 1))
            {
                let goes = entry.as_ref().is_some_and(|entry| !stays(number, entry));
                if goes {
                    *entry = None;
                    self.len -= 1;
                }
            }
            block.iter().any(Option::is_some)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: [u64; 6] = [0, 1, BLOCK, 3 * BLOCK - 1, 3 * BLOCK, u64::MAX];

    fn filled() -> Entries<u64> {
        let mut entries = Entries::default();
        for number in NUMBERS {
            assert_eq!(*entries.get_or_insert_with(number, || number), number);
            assert_eq!(*entries.get_or_insert_with(number, || 99), number, "it is there");
        }
        entries
    }

    #[test]
    fn each_number_has_one_entry() {
        let mut entries = filled();
        assert_eq!(entries.len(), NUMBERS.len());
        for number in NUMBERS {
            assert_eq!(entries.get(number), Some(&number));
            assert_eq!(entries.get_mut(number), Some(&mut number.clone()));
        }
        assert!(
            [2, BLOCK + 1, 9 * BLOCK]
                .iter()
                .all(|number| entries.get(*number).is_none())
        );
    }

    #[test]
    fn a_block_goes_with_its_last_entry() {
        let mut entries = filled();
        for number in NUMBERS {
            entries.remove(number);
            entries.remove(number);
            assert_eq!(entries.get(number), None);
        }
        assert_eq!((entries.len(), entries.blocks.len()), (0, 0));
    }

    #[test]
    fn only_the_entries_that_stay_are_kept() {
        let mut entries = filled();
        entries.retain(|number, entry| number == *entry && number <= BLOCK);
        assert_eq!((entries.len(), entries.blocks.len()), (3, 2));
        assert_eq!(entries.get(u64::MAX), None);
    }
}
