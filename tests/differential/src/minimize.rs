//! Delta debugging (Zeller and Hildebrandt 2002): the shortest part of a failing stream that can be
//! found in bounded time and still fails in the same way.

use std::time::{Duration, Instant};

/// Removes ever smaller chunks as long as `fails` still holds for the rest.
pub fn minimize<T: Clone>(items: &[T], time: Duration, mut fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let deadline = Instant::now() + time;
    let mut kept = items.to_vec();
    let mut chunk = (kept.len() / 2).max(1);
    loop {
        let mut removed = false;
        let mut start = 0;
        while start < kept.len() {
            if Instant::now() > deadline {
                return kept;
            }
            let end = (start + chunk).min(kept.len());
            let without: Vec<T> = kept[..start].iter().chain(&kept[end..]).cloned().collect();
            if fails(&without) {
                kept = without;
                removed = true;
            } else {
                start = end;
            }
        }
        if chunk == 1 && !removed {
            return kept;
        }
        chunk = (chunk / 2).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minimize_keeps_only_what_matters() {
        let items: Vec<u32> = (0..1000).collect();
        let fails = |part: &[u32]| part.contains(&17) && part.contains(&512) && part.contains(&513);
        assert_eq!(minimize(&items, Duration::from_secs(60), fails), [17, 512, 513]);
    }

    #[test]
    fn minimize_without_time_keeps_everything() {
        let mut calls = 0;
        let kept = minimize(&[1, 2, 3], Duration::ZERO, |_| {
            calls += 1;
            true
        });
        assert!(kept.len() + calls >= 3);
    }
}
