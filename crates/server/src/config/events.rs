//! The value of `notify-keyspace-events`: letters, each a class of events or a kind of channel.

use dunlin_engine::{EventClass, EventClasses};

/// The meaning of `A`: everything but new keys and misses.
const ALIAS: &[u8] = b"g$lshzxetad";

/// All letters, for the error: those of Redis 7.0, and then those of Redis 8.8 that have a meaning here.
pub(super) const LETTERS: &str = "Ag$lshzxeKEtmdnaSTIV";

/// Which events of elements of keys (subkeys) are published, and to which channels. They are independent of `K` and `E`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SubkeyEvents {
    /// `S`: to a channel named after the key.
    pub by_key: bool,
    /// `T`: to a channel named after the event.
    pub by_event: bool,
    /// `I`: to a channel named after the key and the element.
    pub by_item: bool,
    /// `V`: to a channel named after the event and the key.
    pub by_event_and_key: bool,
}

impl SubkeyEvents {
    /// The kind of channel of a letter.
    fn of(&mut self, letter: u8) -> Option<&mut bool> {
        Some(match letter {
            b'S' => &mut self.by_key,
            b'T' => &mut self.by_event,
            b'I' => &mut self.by_item,
            b'V' => &mut self.by_event_and_key,
            _ => return None,
        })
    }

    /// Whether there is any channel.
    fn is_on(self) -> bool {
        self.by_key || self.by_event || self.by_item || self.by_event_and_key
    }
}

/// Which events of keys are published, and to which channels.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeyspaceEvents {
    /// `K`: to a channel named after the key.
    pub by_key: bool,
    /// `E`: to a channel named after the event.
    pub by_event: bool,
    /// `S`, `T`, `I`, `V`.
    pub subkeys: SubkeyEvents,
    classes: EventClasses,
}

impl KeyspaceEvents {
    /// Reads the letters, in any order; `None` if one has no meaning.
    pub(crate) fn parse(letters: &[u8]) -> Option<Self> {
        let mut events = Self::default();
        for letter in letters {
            match letter {
                b'A' => {
                    let all = EventClass::LETTERS.iter().filter(|(known, _)| ALIAS.contains(known));
                    events.classes = all.fold(events.classes, |classes, (_, class)| classes.and(*class));
                }
                b'K' => events.by_key = true,
                b'E' => events.by_event = true,
                b'S' | b'T' | b'I' | b'V' => *events.subkeys.of(*letter)? = true,
                _ => {
                    let class = EventClass::LETTERS.iter().find(|(known, _)| known == letter)?;
                    events.classes = events.classes.and(class.1);
                }
            }
        }
        Some(events)
    }

    /// The letters as Redis 7.0 shows them: `n` is not shown beside `A`.
    pub(super) fn print(self) -> Vec<u8> {
        let has = |letter: u8| {
            let of_letter = |(known, class): &(u8, EventClass)| *known == letter && self.classes.has(*class);
            EventClass::LETTERS.iter().any(of_letter)
        };
        let mut letters = Vec::new();
        if ALIAS.iter().all(|letter| has(*letter)) {
            letters.push(b'A');
        } else {
            letters.extend(ALIAS.iter().filter(|letter| has(**letter)));
            letters.extend(has(b'n').then_some(b'n'));
        }
        letters.extend(self.by_key.then_some(b'K'));
        letters.extend(self.by_event.then_some(b'E'));
        letters.extend(has(b'm').then_some(b'm'));
        let mut subkeys = self.subkeys;
        letters.extend(b"STIV".iter().filter(|letter| subkeys.of(**letter).is_some_and(|is_on| *is_on)));
        letters
    }

    /// The classes of which events are published at all.
    pub fn published(self) -> EventClasses {
        match (self.by_key || self.by_event, self.subkeys.is_on()) {
            (_, true) => self.classes.with_subkeys(),
            (true, false) => self.classes,
            (false, false) => EventClasses::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pairs recorded from redis-server 7.0.15; `a`, events of arrays, and `STIV`, those of subkeys, are of Redis 8.8.
    #[test]
    fn letters_are_shown_in_their_normal_form() {
        for (written, shown) in [
            ("", ""),
            ("A", "A"),
            ("KE", "KE"),
            ("KEA", "AKE"),
            ("KEAm", "AKEm"),
            ("KEAn", "AKE"),
            ("g$lshzxetad", "A"),
            ("g$lshzxetd", "g$lshzxetd"),
            ("g$lshzxeta", "g$lshzxeta"),
            ("KEg", "gKE"),
            ("mn", "nm"),
            ("Kdn", "dnK"),
            ("Kx", "xK"),
            ("AA", "A"),
            ("VITSh", "hSTIV"),
            ("KEASTIVm", "AKEmSTIV"),
        ] {
            let events = KeyspaceEvents::parse(written.as_bytes()).unwrap();
            assert_eq!(String::from_utf8(events.print()).unwrap(), shown, "{written}");
        }
        assert_eq!(KeyspaceEvents::parse(b"AKEq"), None);
    }

    #[test]
    fn events_without_a_kind_of_channel_publish_nothing() {
        let published = |letters: &[u8]| KeyspaceEvents::parse(letters).unwrap().published();
        assert!(published(b"A").is_empty());
        assert!(published(b"Kx").has(EventClass::Expired) && !published(b"Kx").has(EventClass::Generic));
        assert!(!published(b"EA").has(EventClass::New) && published(b"EAn").has(EventClass::New));
        for letter in b"STIV" {
            let hashes = published(&[*letter, b'h']);
            assert!(hashes.has_subkeys(EventClass::Hash) && !hashes.has_subkeys(EventClass::Set));
        }
        assert!(!published(b"KEA").has_subkeys(EventClass::Hash));
    }
}
