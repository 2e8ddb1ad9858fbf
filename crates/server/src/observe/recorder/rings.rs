//! The samples of a month, in three resolutions, and the newest events, in memory that does not grow.
//!
//! ```text
//! every second ─▶ 3600 samples: an hour
//!     10 of them ─▶ 8640 samples: a day
//!         30 of those ─▶ 8640 samples: 30 days
//! ```
//!
//! The sample that began at `t` stands at the place `t / step % length` of its ring, if its time says so.

use std::collections::VecDeque;

use super::fields::{FIELD_COUNT, Merged, Sample};

/// Seconds of a sample, and how many of them are kept.
pub(super) const RESOLUTIONS: [(u32, usize); 3] = [(1, 3600), (10, 8640), (300, 8640)];
/// Events that are kept.
pub(super) const EVENTS_MAX: usize = 2048;
/// Bytes of the text of a hot key: an hour of them takes some 400 KB.
pub(crate) const HOT_KEY_BYTES_MAX: usize = 64;
/// Bytes of an event's text.
pub(super) const EVENT_BYTES_MAX: usize = 230;

macro_rules! kinds {
    ($($variant:ident $number:literal $name:literal)*) => {
        /// The kind of an event.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub(crate) enum EventKind {
            $($variant = $number,)*
        }

        impl EventKind {
            /// Its name for clients.
            pub(crate) fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// The one with this number in a file.
            pub(super) fn numbered(number: u8) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    Server 1 "server"
    Slow 2 "slow-command"
    Snapshot 3 "snapshot"
    Rewrite 4 "rewrite"
    Disk 5 "disk"
    Client 6 "client"
    Script 7 "script"
    Config 8 "config"
    Replication 9 "replication"
    Memory 10 "memory"
    Keys 11 "keys"
    Access 12 "access"
    HotKey 13 "hot-key"
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    /// Grows by one with each event.
    pub(crate) number: u64,
    /// Milliseconds since 1970.
    pub(crate) time_ms: u64,
    pub(crate) kind: EventKind,
    /// A line of text.
    pub(crate) text: String,
}

/// The key that most commands of a second named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HotSecond {
    pub(crate) time_s: u32,
    /// The key as text, cut to [`HOT_KEY_BYTES_MAX`].
    pub(crate) key: Box<str>,
    /// In thousandths of the commands on keys.
    pub(crate) share: u32,
}

/// Places for samples. A place without one is zeros, so that the system gives memory only to places that were ever filled.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Slots(Box<[u32]>);

/// Words of a place: the time, then the figures.
const SLOT_WORDS: usize = 1 + FIELD_COUNT;

impl Slots {
    fn new(length: usize) -> Self {
        Self(vec![0; length * SLOT_WORDS].into())
    }

    fn len(&self) -> usize {
        self.0.len() / SLOT_WORDS
    }

    /// The sample at a place.
    fn get(&self, place: usize) -> Option<Sample> {
        sample(&self.0[place * SLOT_WORDS..][..SLOT_WORDS])
    }

    fn put(&mut self, place: usize, sample: &Sample) {
        let words = &mut self.0[place * SLOT_WORDS..][..SLOT_WORDS];
        words[0] = sample.time_s;
        words[1..].copy_from_slice(sample.values());
    }

    /// All samples, with their places.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, Sample)> {
        self.0.chunks(SLOT_WORDS).map(sample).enumerate().filter_map(|(place, sample)| Some((place, sample?)))
    }
}

/// The sample in the words of a place, if there is one.
fn sample(words: &[u32]) -> Option<Sample> {
    let (&time_s, values) = words.split_first()?;
    (time_s > 0).then_some(Sample::from_parts(time_s, values.try_into().ok()?))
}

/// The samples of one resolution.
#[derive(Debug)]
pub(super) struct Ring {
    pub(super) step_s: u32,
    pub(super) slots: Slots,
    merged: Merged,
    /// When the samples that are merged began.
    merging: u32,
}

impl Ring {
    fn new((step_s, length): (u32, usize)) -> Self {
        let slots = Slots::new(length);
        Self { step_s, slots, merged: Merged::default(), merging: 0 }
    }

    pub(super) fn place(&self, time_s: u32) -> usize {
        (time_s / self.step_s) as usize % self.slots.len()
    }

    /// Takes a sample of a finer resolution in; the sample that is complete by it.
    fn merge(&mut self, sample: &Sample) -> Option<Sample> {
        let begun = sample.time_s - sample.time_s % self.step_s;
        let complete = (begun != self.merging).then(|| self.merged.sample(self.merging)).flatten();
        if begun != self.merging {
            (self.merged, self.merging) = (Merged::default(), begun);
        }
        self.merged.add(sample);
        complete
    }

    /// Samples that began from `from_s` to `to_s`, oldest first.
    fn between(&self, from_s: u32, to_s: u32) -> impl Iterator<Item = Sample> {
        let span = (self.slots.len() as u32 - 1) * self.step_s;
        let first = from_s.max(to_s.saturating_sub(span)).checked_next_multiple_of(self.step_s);
        let times = first.into_iter().flat_map(move |first| (first..=to_s).step_by(self.step_s as usize));
        let found = |time_s: u32| self.slots.get(self.place(time_s)).filter(|found| found.time_s == time_s);
        times.filter(|time_s| *time_s > 0).filter_map(found)
    }
}

/// Samples and events.
#[derive(Debug)]
pub(crate) struct Rings {
    pub(super) rings: [Ring; 3],
    pub(super) events: VecDeque<Event>,
    pub(super) next_event: u64,
    /// The hottest key of each second of the last hour that had one; not in the file.
    hot_keys: VecDeque<HotSecond>,
    /// The newest second.
    last_s: u32,
    /// The oldest second that there was ever a sample of.
    first_s: u32,
}

impl Rings {
    pub(crate) fn new() -> Self {
        Self {
            rings: RESOLUTIONS.map(Ring::new),
            events: VecDeque::new(),
            next_event: 0,
            hot_keys: VecDeque::new(),
            last_s: 0,
            first_s: u32::MAX,
        }
    }

    /// Adds the sample of a second; calls back for each sample that is stored, with the number of its ring. A clock that was
    /// set back leaves out the seconds that were there already.
    pub(crate) fn add(&mut self, sample: Sample, mut stored: impl FnMut(usize, &Sample)) {
        if sample.time_s <= self.last_s && self.last_s - sample.time_s < RESOLUTIONS[2].0 {
            return;
        }
        self.last_s = sample.time_s;
        self.first_s = self.first_s.min(sample.time_s);
        let mut next = Some(sample);
        for (number, ring) in self.rings.iter_mut().enumerate() {
            if number > 0 {
                next = next.and_then(|finer| ring.merge(&finer));
            }
            let Some(sample) = next else { return };
            ring.slots.put(ring.place(sample.time_s), &sample);
            stored(number, &sample);
        }
    }

    /// Puts a sample of a file back.
    pub(super) fn restore(&mut self, ring: usize, sample: Sample) {
        self.first_s = self.first_s.min(sample.time_s);
        let ring = &mut self.rings[ring];
        ring.slots.put(ring.place(sample.time_s), &sample);
        self.last_s = self.last_s.max(if ring.step_s == 1 { sample.time_s } else { 0 });
    }

    /// Adds an event, and returns it.
    pub(crate) fn note(&mut self, time_ms: u64, kind: EventKind, mut text: String) -> &Event {
        if text.len() > EVENT_BYTES_MAX {
            text.truncate(text.floor_char_boundary(EVENT_BYTES_MAX - 3));
            text.push_str("...");
        }
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        let number = self.next_event;
        self.next_event += 1;
        self.events.push_back(Event { number, time_ms, kind, text });
        self.events.back().expect("it was added")
    }

    /// Samples that began from `from_s` to `to_s`, oldest first, in the finest resolution that reaches back to the first; and
    /// the seconds of each.
    pub(crate) fn range(&self, from_s: u32, to_s: u32) -> (u32, Vec<Sample>) {
        let to_s = to_s.min(self.last_s);
        let reaches = |ring: &&Ring| {
            let span = ring.slots.len() as u32 * ring.step_s;
            // Before the first sample there is nothing to be reached.
            from_s.max(self.first_s).saturating_add(span) >= self.last_s
        };
        let ring = self.rings.iter().find(reaches).unwrap_or(&self.rings[2]);
        (ring.step_s, ring.between(from_s, to_s).collect())
    }

    /// Events from `from_ms` to `to_ms`, oldest first.
    pub(crate) fn events_between(&self, from_ms: u64, to_ms: u64) -> impl DoubleEndedIterator<Item = &Event> {
        self.events.iter().filter(move |event| (from_ms..=to_ms).contains(&event.time_ms))
    }

    /// Notes the hottest key of a second.
    pub(crate) fn note_hot_key(&mut self, hot: HotSecond) {
        if self.hot_keys.len() == RESOLUTIONS[0].1 {
            self.hot_keys.pop_front();
        }
        self.hot_keys.push_back(hot);
    }

    /// The hottest keys of the seconds from `from_s` to `to_s`, oldest first.
    pub(crate) fn hot_keys_between(&self, from_s: u32, to_s: u32) -> impl Iterator<Item = &HotSecond> {
        self.hot_keys.iter().filter(move |hot| (from_s..=to_s).contains(&hot.time_s))
    }

    /// The newest second that there is a sample of; 0 for none.
    pub(crate) fn last_s(&self) -> u32 {
        self.last_s
    }
}

#[cfg(test)]
mod tests {
    use super::super::fields::Field;
    use super::*;

    const START: u32 = 1_800_000_000;

    fn filled(seconds: u32) -> Rings {
        let mut rings = Rings::new();
        for second in 0..seconds {
            let mut sample = Sample::new(START + second);
            sample.set(Field::Commands, 1);
            sample.set(Field::Worst, second.into());
            rings.add(sample, |_, _| ());
        }
        rings
    }

    #[test]
    fn recorder_keeps_seconds_for_an_hour_and_coarser_ones_longer() {
        let rings = filled(10_000);
        let last = START + 9_999;
        let (step, samples) = rings.range(last - 99, last);
        assert_eq!((step, samples.len()), (1, 100));
        let (step, samples) = rings.range(START, START + 99);
        assert_eq!((step, samples.len()), (10, 10));
        assert!(samples.iter().all(|sample| sample.get(Field::Commands) == 10));
        assert_eq!(samples[3].get(Field::Worst), 39);
        assert_eq!(samples[3].time_s, START + 30);
    }

    #[test]
    fn recorder_keeps_a_month_every_five_minutes() {
        let rings = filled(2 * 86_400);
        let (step, samples) = rings.range(START, START + 3_599);
        assert_eq!((step, samples.len()), (300, 12));
        assert!(samples.iter().all(|sample| sample.get(Field::Commands) == 300));
    }

    #[test]
    fn seconds_without_a_sample_are_left_out() {
        let mut rings = filled(10);
        let mut late = Sample::new(START + 100);
        late.set(Field::Commands, 5);
        rings.add(late, |_, _| ());
        let (_, samples) = rings.range(START + 5, START + 200);
        assert_eq!(
            samples.iter().map(|sample| sample.time_s - START).collect::<Vec<_>>(),
            [5, 6, 7, 8, 9, 100]
        );
        rings.add(Sample::new(START + 50), |_, _| panic!("the clock was set back"));
        for (from_s, to_s) in [(u32::MAX, u32::MAX), (5, 3), (0, 0)] {
            assert!(rings.range(from_s, to_s).1.is_empty());
        }
    }

    #[test]
    fn hot_keys_are_kept_for_an_hour_at_most() {
        let mut rings = Rings::new();
        for second in 0..5_000 {
            rings.note_hot_key(HotSecond { time_s: START + second, key: "k".into(), share: second });
        }
        assert_eq!(rings.hot_keys_between(0, u32::MAX).count(), 3600);
        let shares: Vec<u32> = rings.hot_keys_between(START + 4_998, u32::MAX).map(|hot| hot.share).collect();
        assert_eq!(shares, [4_998, 4_999]);
    }

    #[test]
    fn events_are_bounded_in_number_and_length() {
        let mut rings = Rings::new();
        for number in 0..EVENTS_MAX as u64 + 10 {
            rings.note(number, EventKind::Slow, "ä".repeat(500));
        }
        assert_eq!(rings.events.len(), EVENTS_MAX);
        assert_eq!(rings.events[0].number, 10);
        assert!(rings.events[0].text.len() <= EVENT_BYTES_MAX && rings.events[0].text.ends_with("ä..."));
        assert_eq!(rings.events_between(20, 29).count(), 10);
    }
}
