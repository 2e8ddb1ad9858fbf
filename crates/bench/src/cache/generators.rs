//! Traces made up: each is a pattern on which policies differ.

use crate::distribution::Zipf;
use crate::random::Random;

use super::trace::{Operation, Request, Trace};

/// How many requests and keys, and how large values are on average.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    /// Requests.
    pub requests: usize,
    /// Keys of the pattern; keys that occur once come on top.
    pub keys: u64,
    /// Bytes of a value, about.
    pub value_bytes: u32,
    /// Seed of the random numbers.
    pub seed: u64,
}

/// A generator by its name.
#[derive(Debug, Clone, Copy)]
pub struct Generator {
    /// Its name on the command line.
    pub name: &'static str,
    /// A description for the help.
    pub summary: &'static str,
    next: fn(&mut State, usize) -> Draw,
}

/// A generated request.
struct Draw {
    key: u64,
    value_bytes: Option<u32>,
    ttl_s: u32,
}

fn plain(key: u64) -> Draw {
    Draw { key, value_bytes: None, ttl_s: 0 }
}

struct State {
    scale: Scale,
    zipf: [Zipf; 4],
    random: Random,
    /// The next key that occurs once.
    fresh: u64,
}

impl State {
    /// A key by Zipf's law; popular ones are not neighbours.
    fn popular(&mut self, law: usize) -> u64 {
        self.zipf[law].sample(&mut self.random) - 1
    }

    fn fresh(&mut self) -> u64 {
        self.fresh += 1;
        self.scale.keys + self.fresh
    }
}

/// Exponents of the laws of a state.
const EXPONENTS: [f64; 4] = [0.6, 0.8, 1.0, 1.2];

/// All of them.
pub static GENERATORS: &[Generator] = &[
    Generator {
        name: "zipf-0.6",
        summary: "Zipf's law, exponent 0.6",
        next: |state, _| plain(state.popular(0)),
    },
    Generator {
        name: "zipf-0.8",
        summary: "Zipf's law, exponent 0.8",
        next: |state, _| plain(state.popular(1)),
    },
    Generator {
        name: "zipf-1.0",
        summary: "Zipf's law, exponent 1.0",
        next: |state, _| plain(state.popular(2)),
    },
    Generator {
        name: "zipf-1.2",
        summary: "Zipf's law, exponent 1.2",
        next: |state, _| plain(state.popular(3)),
    },
    Generator {
        name: "scans",
        summary: "Zipf's law, exponent 1.0, with a scan of new keys a third of the time",
        next: |state, index| {
            // Scans of a twentieth of all requests, with twice as many others between them.
            let span = (state.scale.requests / 20).max(1);
            if index / span % 3 == 2 { plain(state.fresh()) } else { plain(state.popular(2)) }
        },
    },
    Generator {
        name: "shift",
        summary: "Zipf's law, exponent 1.0, over other keys after each eighth of the requests",
        next: |state, index| {
            let phase = (index * 8 / state.scale.requests.max(1)) as u64;
            let key = state.popular(2);
            plain((key + phase * state.scale.keys / 4) % (4 * state.scale.keys))
        },
    },
    Generator {
        name: "loop",
        summary: "half of the keys, one after the other, again and again",
        next: |state, index| plain(index as u64 % (state.scale.keys / 2).max(1)),
    },
    Generator {
        name: "one-hit",
        summary: "half of the requests are about keys that occur once, the others by Zipf's law, exponent 0.8",
        next: |state, _| {
            if state.random.below(2) == 0 { plain(state.fresh()) } else { plain(state.popular(1)) }
        },
    },
    Generator {
        name: "ttl",
        summary: "Zipf's law, exponent 1.0; a third of the keys expire after 1 to 10 seconds, a third after an hour",
        next: |state, _| {
            let key = state.popular(2);
            let ttl_s = match key % 3 {
                0 => 0,
                1 => 1 + (key % 10) as u32,
                _ => 3600,
            };
            Draw { ttl_s, ..plain(key) }
        },
    },
    Generator {
        name: "sizes",
        summary: "Zipf's law, exponent 1.0; values of 16 bytes to 1 MB, small ones most",
        next: |state, _| {
            let key = state.popular(2);
            // As many keys in each doubling of the size up to 2 KB, then half as many with each.
            let draw = Random::new(key).draw();
            let doublings = match draw % 128 {
                0..=111 => draw % 8,
                rest => 8 + u64::from((rest - 111).leading_zeros() - 59).min(8) * 2,
            };
            let value_bytes = (16 << doublings.min(16)) as u32;
            Draw { value_bytes: Some(value_bytes), ..plain(key) }
        },
    },
];

impl Generator {
    /// The one of a name.
    pub fn find(name: &str) -> Option<&'static Self> {
        GENERATORS.iter().find(|generator| generator.name == name)
    }

    /// Its trace.
    pub fn trace(&self, scale: Scale) -> Trace {
        let zipf = EXPONENTS.map(|exponent| Zipf::new(scale.keys, exponent));
        let mut state = State { scale, zipf, random: Random::new(scale.seed), fresh: 0 };
        let mut numbers: std::collections::HashMap<u64, u32> = std::collections::HashMap::new();
        let mut trace = Trace { name: self.name.to_owned(), ..Trace::default() };
        for index in 0..scale.requests {
            let Draw { key, value_bytes, ttl_s } = (self.next)(&mut state, index);
            let next = trace.keys.len() as u32;
            let number = *numbers.entry(key).or_insert_with(|| {
                trace.keys.push(format!("key:{key:012}").into());
                next
            });
            // Half to one and a half times the average, the same each time.
            let spread = Random::new(key ^ scale.seed).below(u64::from(scale.value_bytes.max(1))) as u32;
            let value_bytes = value_bytes.unwrap_or(scale.value_bytes / 2 + spread);
            trace.requests.push(Request { key: number, operation: Operation::Get, value_bytes, ttl_s });
        }
        trace
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCALE: Scale = Scale { requests: 20_000, keys: 1000, value_bytes: 100, seed: 7 };

    #[test]
    fn generators_are_repeatable_and_as_long_as_asked() {
        for generator in GENERATORS {
            let (one, other) = (generator.trace(SCALE), generator.trace(SCALE));
            assert_eq!(one.requests, other.requests, "{}", generator.name);
            assert_eq!(one.requests.len(), SCALE.requests, "{}", generator.name);
            assert!(one.requests.iter().all(|request| (request.key as usize) < one.keys.len()));
        }
    }

    #[test]
    fn sizes_go_from_sixteen_bytes_to_a_megabyte() {
        let trace =
            Generator::find("sizes").unwrap().trace(Scale { keys: 100_000, requests: 200_000, ..SCALE });
        let sizes = || trace.requests.iter().map(|request| request.value_bytes);
        assert_eq!(sizes().min(), Some(16));
        assert!(sizes().max().unwrap() >= 1 << 19);
        assert!(sizes().filter(|size| *size <= 2048).count() > 150_000);
    }
}
