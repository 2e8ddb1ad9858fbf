//! Profiles, the pages they are fans of, and the record that is kept of each page.
//!
//! ```text
//! profile   a set of 5 to 200 pages; many have few: P(more than n) ∝ 1/n
//! page      drawn by Zipf's law: the k-th most popular with probability ∝ 1/k
//! record    406;17:22,98:3        406 fans, 22 of them also of page 17, 3 also of page 98
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use dunlin_bench::distribution::Zipf;
use dunlin_bench::random::Random;

const PAGES_OF_A_PROFILE_MIN: f64 = 5.0;
const PAGES_OF_A_PROFILE_MAX: f64 = 200.0;

/// Profiles of a seed.
pub struct Profiles {
    random: Random,
    zipf: Zipf,
    left: u64,
}

impl Profiles {
    /// A workload of `profiles` over `pages`, at least as many as the largest profile wants.
    pub fn new(profiles: u64, pages: u64, seed: u64) -> Self {
        assert!(pages as f64 > 2.0 * PAGES_OF_A_PROFILE_MAX);
        Self { random: Random::new(seed), zipf: Zipf::new(pages, 1.0), left: profiles }
    }
}

impl Iterator for Profiles {
    type Item = Vec<u32>;

    fn next(&mut self) -> Option<Vec<u32>> {
        self.left = self.left.checked_sub(1)?;
        // The inverse of the distribution function of 1/n², cut off at both ends.
        let (least, most) = (1.0 / PAGES_OF_A_PROFILE_MIN, 1.0 / PAGES_OF_A_PROFILE_MAX);
        let length = (1.0 / (least - self.random.unit() * (least - most))) as usize;
        let mut pages = BTreeSet::new();
        while pages.len() < length {
            pages.insert(self.zipf.sample(&mut self.random) as u32 - 1);
        }
        Some(pages.into_iter().collect())
    }
}

/// The facts known of a page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    /// Fans of the page.
    pub fans: u64,
    /// How many of them are fans of another page too.
    pub shared: BTreeMap<u32, u64>,
}

impl Record {
    /// Counts a profile that mentions `page` among `pages`.
    pub fn count(&mut self, page: u32, pages: &[u32]) {
        self.fans += 1;
        for other in pages.iter().filter(|other| **other != page) {
            *self.shared.entry(*other).or_default() += 1;
        }
    }

    /// The record as text.
    pub fn encode(&self) -> Vec<u8> {
        let mut text = format!("{};", self.fans);
        for (index, (page, fans)) in self.shared.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let _ = write!(text, "{comma}{page}:{fans}");
        }
        text.into_bytes()
    }

    /// Reads a record; nothing when it is none.
    pub fn decode(text: &[u8]) -> Option<Self> {
        let (fans, rest) = std::str::from_utf8(text).ok()?.split_once(';')?;
        let mut record = Self { fans: fans.parse().ok()?, shared: BTreeMap::new() };
        for pair in rest.split(',').filter(|pair| !pair.is_empty()) {
            let (page, fans) = pair.split_once(':')?;
            record.shared.insert(page.parse().ok()?, fans.parse().ok()?);
        }
        Some(record)
    }

    /// The pages that share most fans with it, with their numbers.
    pub fn nearest(&self, count: usize) -> Vec<(u32, u64)> {
        let mut shared: Vec<(u32, u64)> = self.shared.iter().map(|(page, fans)| (*page, *fans)).collect();
        shared.sort_by_key(|(page, fans)| (std::cmp::Reverse(*fans), *page));
        shared.truncate(count);
        shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_from_their_text() {
        let mut record = Record::default();
        record.count(3, &[1, 3, 9]);
        record.count(3, &[3, 9]);
        assert_eq!(record.encode(), b"2;1:1,9:2");
        assert_eq!(Record::decode(&record.encode()), Some(record.clone()));
        assert_eq!(record.nearest(1), [(9, 2)]);
        for bad in ["", "1", "x;", "1;2", "1;a:1", "1;1:"] {
            assert_eq!(Record::decode(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn profiles_are_repeatable_and_within_their_bounds() {
        let profiles: Vec<_> = Profiles::new(2000, 5000, 7).collect();
        assert_eq!(profiles, Profiles::new(2000, 5000, 7).collect::<Vec<_>>());
        assert!(profiles.iter().all(|pages| (5..=200).contains(&pages.len())));
        let mean = profiles.iter().map(Vec::len).sum::<usize>() as f64 / 2000.0;
        // ln(200/5) / (1/5 - 1/200) = 18.9, less half a page for the cut to whole numbers.
        assert!((17.0..20.0).contains(&mean), "{mean}");
        let mentions = |page: u32| profiles.iter().filter(|pages| pages.contains(&page)).count();
        assert!(mentions(0) > mentions(9) && mentions(9) > mentions(99));
    }
}
