//! The bound that no cache can beat: with the future known, the keys that are asked for soonest stay (L. Belady, "A study of replacement
//! algorithms for a virtual-storage computer", 1966).
//!
//! With values of one size this is the optimum; with several it is a good cache, and no bound: the optimum is hard to
//! compute then. Only keys and values count, so that a server's own overhead shows as distance.

use std::collections::BTreeSet;

use super::trace::{Operation, Trace};

/// A request that is never made.
const NEVER: usize = usize::MAX;

/// The share of GETs that find something in `bytes` of keys and values; expiry is left out.
pub fn hit_ratio(trace: &Trace, bytes: u64) -> f64 {
    let mut next_use = vec![NEVER; trace.requests.len()];
    let mut last = vec![NEVER; trace.keys.len()];
    for (index, request) in trace.requests.iter().enumerate().rev() {
        next_use[index] = std::mem::replace(&mut last[request.key as usize], index);
    }
    // By when they are asked for next.
    let mut kept: BTreeSet<(usize, u32)> = BTreeSet::new();
    let mut place: Vec<Option<(usize, u64)>> = vec![None; trace.keys.len()];
    let (mut used, mut hits, mut gets) = (0, 0_u64, 0_u64);
    for (index, request) in trace.requests.iter().enumerate() {
        let number = request.key as usize;
        let found = place[number].take();
        if let Some((next, size)) = found {
            kept.remove(&(next, request.key));
            used -= size;
        }
        if request.operation == Operation::Get {
            gets += 1;
            hits += u64::from(found.is_some());
        }
        // A key that is not asked for again is not kept, nor one that is asked for after all others.
        if request.operation == Operation::Delete || next_use[index] == NEVER {
            continue;
        }
        let size = trace.keys[number].len() as u64 + u64::from(request.value_bytes);
        kept.insert((next_use[index], request.key));
        place[number] = Some((next_use[index], size));
        used += size;
        while used > bytes
            && let Some((_, farthest)) = kept.pop_last()
        {
            used -= place[farthest as usize].take().map_or(0, |(_, size)| size);
        }
    }
    hits as f64 / gets.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::super::trace::Request;
    use super::*;

    fn ratio(keys: &[u32], capacity: u64) -> f64 {
        let of = |key: &u32| Request { key: *key, operation: Operation::Get, value_bytes: 9, ttl_s: 0 };
        let trace = Trace {
            name: String::new(),
            requests: keys.iter().map(of).collect(),
            keys: (0..10).map(|key: u32| key.to_string().into()).collect(),
        };
        hit_ratio(&trace, capacity * 10)
    }

    #[test]
    fn optimum_keeps_part_of_a_loop() {
        // Two of the three stay, and are found in every round but the first; the third is never kept.
        assert_eq!(ratio(&[0, 1, 2, 0, 1, 2, 0, 1, 2], 2), 4.0 / 9.0);
        assert_eq!(ratio(&[0, 1, 2, 0, 1, 2], 3), 0.5);
        assert_eq!(ratio(&[0, 1, 2, 3], 2), 0.0);
    }
}
