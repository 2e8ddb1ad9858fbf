//! The recorder's file: the rings as they are in memory, so that a sample is written in its place.
//!
//! ```text
//! 0      magic "DUNLIN-R", version, figures of a sample, hash of the figures' and commands' names
//! 64     ring of seconds │ ring of 10 s │ ring of 5 min │ events
//! sample time │ figures … │ check             4 bytes each, little endian
//! event  number 8 │ time 8 │ kind 1 │ length 1 │ text … 234 │ check 4
//! ```
//!
//! A slot whose check is wrong, as after a write that was torn, is no sample. A file of another version, or of other
//! figures, is begun anew; if only the commands have changed, their numbers are forgotten. Nothing is synced: the last
//! seconds before a power cut may be missing.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
};

use super::{
    fields::{FIELD_COUNT, FIELDS, Field, NO_COMMAND, Sample},
    rings::{EVENT_BYTES_MAX, EVENTS_MAX, Event, EventKind, RESOLUTIONS, Rings},
};

/// The file's name in the data directory.
pub(crate) const FILE_NAME: &str = "recorder.dunlin";

const MAGIC: &[u8; 8] = b"DUNLIN-R";
const VERSION: u32 = 1;
const HEAD_BYTES: u64 = 64;
const SAMPLE_BYTES: usize = 4 * (FIELD_COUNT + 2);
const EVENT_BYTES: usize = 256;

/// Bytes of the whole file.
pub(super) const FILE_BYTES: u64 =
    HEAD_BYTES + (SAMPLE_BYTES * SAMPLES) as u64 + (EVENT_BYTES * EVENTS_MAX) as u64;
const SAMPLES: usize = RESOLUTIONS[0].1 + RESOLUTIONS[1].1 + RESOLUTIONS[2].1;

/// A piece of the file, and its place.
pub(super) type Piece = (u64, Vec<u8>);

/// FNV-1a: a check against torn writes, not against malice.
fn hash(parts: impl IntoIterator<Item = impl AsRef<[u8]>>) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for part in parts {
        for byte in part.as_ref().iter().chain(b"\0") {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    hash
}

/// The commands that numbers in samples stand for, as a hash of their names.
pub(super) fn names_hash<'a>(commands: impl IntoIterator<Item = &'a str>) -> u64 {
    hash(commands)
}

fn head(commands: u64) -> Vec<u8> {
    let figures = hash(FIELDS.iter().map(|(_, name, ..)| name));
    let mut head = MAGIC.to_vec();
    head.extend(VERSION.to_le_bytes());
    head.extend((FIELD_COUNT as u32).to_le_bytes());
    head.extend(figures.to_le_bytes());
    head.extend(commands.to_le_bytes());
    head.resize(HEAD_BYTES as usize, 0);
    head
}

fn check(bytes: &[u8]) -> [u8; 4] {
    (hash([bytes]) as u32).to_le_bytes()
}

fn ring_at(ring: usize) -> u64 {
    let before: usize = RESOLUTIONS[..ring].iter().map(|(_, length)| length).sum();
    HEAD_BYTES + (before * SAMPLE_BYTES) as u64
}

/// A sample as a piece of the file.
pub(super) fn sample_piece(ring: usize, place: usize, sample: &Sample) -> Piece {
    let mut bytes = Vec::with_capacity(SAMPLE_BYTES);
    bytes.extend(sample.time_s.to_le_bytes());
    sample.values().iter().for_each(|value| bytes.extend(value.to_le_bytes()));
    bytes.extend(check(&bytes));
    (ring_at(ring) + (place * SAMPLE_BYTES) as u64, bytes)
}

/// An event as a piece of the file.
pub(super) fn event_piece(event: &Event) -> Piece {
    let mut bytes = Vec::with_capacity(EVENT_BYTES);
    bytes.extend(event.number.to_le_bytes());
    bytes.extend(event.time_ms.to_le_bytes());
    let text = &event.text.as_bytes()[..event.text.len().min(EVENT_BYTES_MAX)];
    bytes.extend([event.kind as u8, text.len() as u8]);
    bytes.extend(text);
    bytes.resize(EVENT_BYTES - 4, 0);
    bytes.extend(check(&bytes));
    let place = event.number % EVENTS_MAX as u64;
    (ring_at(RESOLUTIONS.len()) + place * EVENT_BYTES as u64, bytes)
}

fn read_sample(bytes: &[u8], knows_commands: bool) -> Option<Sample> {
    let (content, sum) = bytes.split_at_checked(SAMPLE_BYTES - 4)?;
    let mut words =
        content.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().expect("four bytes")));
    let time_s = words.next().filter(|time_s| *time_s > 0 && check(content) == sum)?;
    let mut values = [0; FIELD_COUNT];
    values.iter_mut().zip(words).for_each(|(value, word)| *value = word);
    if !knows_commands {
        values[Field::WorstCommand as usize] = NO_COMMAND;
        values[Field::TopCommand as usize] = NO_COMMAND;
    }
    Some(Sample::from_parts(time_s, values))
}

fn read_event(bytes: &[u8]) -> Option<Event> {
    let (content, sum) = bytes.split_at_checked(EVENT_BYTES - 4)?;
    let number = u64::from_le_bytes(content[..8].try_into().ok()?);
    let time_ms = u64::from_le_bytes(content[8..16].try_into().ok()?);
    let kind = EventKind::numbered(content[16]).filter(|_| check(content) == sum)?;
    let text = std::str::from_utf8(content.get(18..18 + usize::from(content[17]))?).ok()?;
    Some(Event { number, time_ms, kind, text: text.to_owned() })
}

/// Reads what a file has; nothing of one that is not there, or that is something else.
pub(super) fn load(path: &Path, commands: u64, now_s: u32) -> io::Result<Option<Rings>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(FILE_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(read(&bytes, commands, now_s))
}

/// Samples and events that claim to be from the future are left out.
fn read(bytes: &[u8], commands: u64, now_s: u32) -> Option<Rings> {
    let known = head(commands);
    // All but the hash of the commands.
    if bytes.len() as u64 != FILE_BYTES || bytes[..24] != known[..24] {
        return None;
    }
    let knows_commands = bytes[24..32] == known[24..32];
    let mut rings = Rings::new();
    for (ring, (step_s, length)) in RESOLUTIONS.into_iter().enumerate() {
        let start = ring_at(ring) as usize;
        for slot in bytes[start..start + length * SAMPLE_BYTES].chunks_exact(SAMPLE_BYTES) {
            let sample = read_sample(slot, knows_commands);
            let is_past = |sample: &Sample| sample.time_s <= now_s && sample.time_s.is_multiple_of(step_s);
            if let Some(sample) = sample.filter(is_past) {
                rings.restore(ring, sample);
            }
        }
    }
    let start = ring_at(RESOLUTIONS.len()) as usize;
    let mut events: Vec<Event> = bytes[start..].chunks_exact(EVENT_BYTES).filter_map(read_event).collect();
    events.retain(|event| event.time_ms / 1000 <= u64::from(now_s) && event.number < u64::MAX);
    events.sort_by_key(|event| event.number);
    events.dedup_by_key(|event| event.number);
    rings.next_event = events.last().map_or(0, |event| event.number + 1);
    rings.events = events.into();
    Some(rings)
}

/// Creates a file with all that is known, in place of what was there.
pub(super) fn create(path: &Path, commands: u64, rings: &Rings) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o640).open(path)?;
    file.write_all(&head(commands))?;
    file.set_len(FILE_BYTES)?;
    for (number, ring) in rings.rings.iter().enumerate() {
        for (place, sample) in ring.slots.iter() {
            write(&file, &[sample_piece(number, place, &sample)])?;
        }
    }
    for event in &rings.events {
        write(&file, &[event_piece(event)])?;
    }
    Ok(file)
}

/// Writes pieces in their places.
pub(super) fn write(file: &File, pieces: &[Piece]) -> io::Result<()> {
    pieces.iter().try_for_each(|(at, bytes)| file.write_all_at(bytes, *at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::ScratchDir;

    const NOW: u32 = 1_800_000_000;

    fn filled() -> Rings {
        let mut rings = Rings::new();
        for second in 0..1000 {
            let mut sample = Sample::new(NOW - 1000 + second);
            sample.set(Field::Commands, u64::from(second));
            sample.set(Field::TopCommand, 7);
            rings.add(sample, |_, _| ());
        }
        for number in 0..3000_u64 {
            rings.note((u64::from(NOW) - 3000 + number) * 1000, EventKind::Config, format!("event {number}"));
        }
        rings
    }

    fn saved(rings: &Rings) -> Vec<u8> {
        let dir = ScratchDir::new("recorder");
        create(&dir.path(FILE_NAME), 1, rings).unwrap();
        std::fs::read(dir.path(FILE_NAME)).unwrap()
    }

    #[test]
    fn recorder_file_gives_back_what_it_was_given() {
        let rings = filled();
        let bytes = saved(&rings);
        let again = read(&bytes, 1, NOW).unwrap();
        for ring in 0..RESOLUTIONS.len() {
            assert_eq!(again.rings[ring].slots, rings.rings[ring].slots);
        }
        assert_eq!((&again.events, again.next_event), (&rings.events, rings.next_event));
        let other = read(&bytes, 2, NOW).unwrap();
        let (_, samples) = other.range(NOW - 10, NOW);
        assert_eq!(samples[0].get(Field::TopCommand), NO_COMMAND, "the numbers mean other commands now");
        assert_eq!(read(&bytes, 1, NOW - 500).unwrap().last_s(), NOW - 500, "the rest is of the future");
    }

    #[test]
    fn recorder_file_of_any_bytes_is_read_without_harm() {
        let bytes = saved(&filled());
        for damaged in [&bytes[..0], &bytes[..100], &bytes[..bytes.len() - 1]] {
            assert!(read(damaged, 1, NOW).is_none());
        }
        let mut random: u64 = 1;
        for _ in 0..20 {
            let mut damaged = bytes.clone();
            for _ in 0..1000 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = 24 + (random >> 20) as usize % (damaged.len() - 24);
                damaged[at] ^= (random >> 8) as u8;
            }
            let rings = read(&damaged, 1, NOW).unwrap();
            // The events that are left are as they were.
            for event in &rings.events {
                assert_eq!(event.text, format!("event {}", event.number));
            }
        }
        let mut other = bytes.clone();
        other[8] = 9;
        assert!(read(&other, 1, NOW).is_none(), "of another version");
    }
}
