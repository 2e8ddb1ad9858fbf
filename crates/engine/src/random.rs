//! Random numbers for sampling: repeatable from a seed, no secrets.

/// SplitMix64 (Steele, Lea and Flood 2014).
#[derive(Debug, Clone)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// 64 random bits.
    #[inline]
    pub(crate) fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number of `0..end`; 0 if there is nothing to choose.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.bits()) * end as u128) >> 64) as usize
    }
}

/// Decides which of a row of items belong to a random choice of `wanted`, all choices equally
/// likely: asked once an item (selection sampling: Knuth, The Art of Computer Programming 2,
/// algorithm 3.4.2 S).
#[derive(Debug)]
pub(crate) struct Selection {
    wanted: usize,
    left: usize,
}

impl Selection {
    /// A choice of `wanted` among `items`.
    pub(crate) fn new(wanted: usize, items: usize) -> Self {
        Self { wanted: wanted.min(items), left: items }
    }

    /// Whether the next item is chosen.
    pub(crate) fn takes(&mut self, random: &mut Random) -> bool {
        let taken = random.below(self.left) < self.wanted;
        self.left -= 1;
        self.wanted -= usize::from(taken);
        taken
    }
}
