//! The table of all commands, indexed by name.
//!
//! Names are found with one multiplication and, nearly always, one comparison: a name of up to
//! eight bytes is loaded as one word, folded to lower case and hashed into a sparse array.

use super::{Access, BeginSearch, Command, ElementWords, FindKeys};

/// Slots of the index per command, at least.
const SPARSENESS: usize = 4;

/// How a request's keys are found, reduced to what the executor distinguishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyShape {
    /// No keys.
    None,
    /// Exactly one key, at this word.
    One(u16),
    /// Anything else: ask the key specifications.
    Many,
}

/// A command as it stands in the table.
#[derive(Debug)]
pub struct Entry {
    /// The row.
    pub command: &'static Command,
    /// The container's row, of a subcommand.
    pub container: Option<&'static Command>,
    /// Position in [`CommandTable::entries`]: what per-command statistics are indexed with.
    pub index: usize,
    /// How keys are found.
    pub keys: KeyShape,
    /// Which words name elements of the collection under its only key.
    pub elements: Option<ElementWords>,
    /// The subcommands' entries, of a container: positions in [`CommandTable::entries`].
    pub subcommands: std::ops::Range<usize>,
}

impl Entry {
    /// The name as clients see it: `get`, `config|set`.
    pub fn full_name(&self) -> String {
        match self.container {
            Some(container) => format!("{}|{}", container.name, self.command.name),
            None => self.command.name.to_owned(),
        }
    }

    /// Words that make up the name.
    #[inline]
    pub fn name_words(&self) -> usize {
        1 + usize::from(self.container.is_some())
    }

    /// The positions of the keys among `words`, in the order of the specifications.
    pub fn key_positions<'a>(&self, words: &'a [&'a [u8]]) -> impl Iterator<Item = usize> + use<'a> {
        let specs = self.command.keys.iter().filter(|spec| spec.is_of_keys());
        specs.flat_map(move |spec| spec.positions(words))
    }

    /// Whether a request may look at keys that are not among [`Self::key_positions`].
    #[inline]
    pub fn strays(&self, words: &[&[u8]]) -> bool {
        self.command.strays.is_some_and(|strays| strays(words))
    }

    /// The keys with how they are used.
    pub fn keys_with_access<'a>(
        &self,
        words: &'a [&'a [u8]],
    ) -> impl Iterator<Item = (&'a [u8], Access)> + use<'a> {
        let specs = self.command.keys.iter().filter(|spec| spec.is_of_keys());
        specs.flat_map(move |spec| spec.positions(words).map(move |at| (words[at], spec.access)))
    }
}

/// All commands.
#[derive(Debug)]
pub struct CommandTable {
    entries: Vec<Entry>,
    /// Positions in `entries` plus one, 0 for empty; probed linearly.
    index: Vec<u16>,
    shift: u32,
}

impl CommandTable {
    /// Builds the table from the rows of all families.
    ///
    /// # Panics
    /// When two rows share a name: a mistake in the program, not of a user.
    pub fn new(families: &[&'static [Command]]) -> Self {
        let mut entries: Vec<Entry> = Vec::new();
        let mut commands: Vec<&'static Command> = families.iter().copied().flatten().collect();
        commands.sort_by_key(|command| command.name);
        for command in commands {
            let position = entries.len();
            let subcommands = position + 1..position + 1 + command.subcommands.len();
            entries.push(Entry::new(command, None, position, subcommands));
            for subcommand in command.subcommands {
                let index = entries.len();
                entries.push(Entry::new(subcommand, Some(command), index, 0..0));
            }
        }
        let slots = (entries.len() * SPARSENESS).next_power_of_two();
        let mut table = Self { index: vec![0; slots], shift: 64 - slots.trailing_zeros(), entries };
        for position in 0..table.entries.len() {
            let entry = &table.entries[position];
            if entry.container.is_some() {
                continue;
            }
            let name = entry.command.name;
            assert!(table.find(name.as_bytes()).is_none(), "two commands are named {name}");
            let mut slot = table.slot(name.as_bytes());
            while table.index[slot] != 0 {
                slot = (slot + 1) & (slots - 1);
            }
            table.index[slot] = position as u16 + 1;
        }
        table
    }

    /// All commands and subcommands; a container is followed by its subcommands.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The commands without the subcommands.
    pub fn commands(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.container.is_none())
    }

    /// The command of that name, in any letter case. O(1).
    #[inline]
    pub fn find(&self, name: &[u8]) -> Option<&Entry> {
        let mut slot = self.slot(name);
        loop {
            let position = self.index[slot];
            if position == 0 {
                return None;
            }
            let entry = &self.entries[position as usize - 1];
            if entry.command.name.as_bytes().eq_ignore_ascii_case(name) {
                return Some(entry);
            }
            slot = (slot + 1) & (self.index.len() - 1);
        }
    }

    /// The subcommand of that name, in any letter case.
    pub fn find_subcommand(&self, container: &Entry, name: &[u8]) -> Option<&Entry> {
        self.entries[container.subcommands.clone()]
            .iter()
            .find(|entry| entry.command.name.as_bytes().eq_ignore_ascii_case(name))
    }

    /// The subcommand that a request of a container names; the container itself where there is none.
    pub fn resolve<'t>(&'t self, entry: &'t Entry, words: &[&[u8]]) -> &'t Entry {
        let subcommand = words.get(1).and_then(|name| self.find_subcommand(entry, name));
        subcommand.unwrap_or(entry)
    }

    /// The command or subcommand of that full name (`config|get`), in any letter case.
    pub fn find_full(&self, name: &[u8]) -> Option<&Entry> {
        match name.iter().position(|byte| *byte == b'|') {
            None => self.find(name),
            Some(at) => self.find_subcommand(self.find(&name[..at])?, &name[at + 1..]),
        }
    }

    #[inline]
    fn slot(&self, name: &[u8]) -> usize {
        // Bit 5 tells lower from upper case of a letter; setting it everywhere folds the case and
        // keeps names of letters, digits and '.' apart well enough for a hash.
        const FOLD: u64 = 0x2020_2020_2020_2020;
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut word = [0; 8];
        let head = name.len().min(8);
        word[..head].copy_from_slice(&name[..head]);
        let tail = name.last().map_or(0, |byte| u64::from(byte | 0x20));
        let folded = (u64::from_le_bytes(word) | FOLD) ^ (name.len() as u64) << 56 ^ tail << 48;
        (folded.wrapping_mul(SPREAD) >> self.shift) as usize
    }
}

impl Entry {
    fn new(
        command: &'static Command,
        container: Option<&'static Command>,
        index: usize,
        subcommands: std::ops::Range<usize>,
    ) -> Self {
        let keys = match command.keys {
            [] => KeyShape::None,
            [spec] if !spec.is_of_keys() => KeyShape::None,
            [spec] => match (spec.begin, spec.find) {
                (BeginSearch::Index(at), FindKeys::Range { last: 0, .. }) => KeyShape::One(at),
                _ => KeyShape::Many,
            },
            _ => KeyShape::Many,
        };
        let elements = command.elements.filter(|_| matches!(keys, KeyShape::One(_)));
        Self { command, container, index, keys, elements, subcommands }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands;

    #[test]
    fn every_command_is_found_by_its_name_in_any_case() {
        let table = CommandTable::new(commands::FAMILIES);
        for entry in table.commands() {
            let name = entry.command.name;
            for spelled in [name.to_owned(), name.to_uppercase()] {
                let found = table.find(spelled.as_bytes()).expect("found by its name");
                assert_eq!(found.command.name, name);
            }
            assert!(table.find(format!("{name}~").as_bytes()).is_none());
        }
        assert!(table.find(b"").is_none());
        assert!(table.find(b"no-such-command-anywhere").is_none());
    }

    #[test]
    fn rows_say_which_words_name_elements() {
        let table = CommandTable::new(commands::FAMILIES);
        for (line, expected) in [
            ("HSET key a 1 b 2", "a b"),
            ("HSETNX key a 1", "a"),
            ("HMGET key a b", "a b"),
            ("HDEL key a b", "a b"),
            ("HINCRBY key a 1", "a"),
            ("SADD key a b", "a b"),
            ("SREM key a", "a"),
            ("SMISMEMBER key a b", "a b"),
            ("ZADD key 1 a 2 b", "a b"),
            ("ZINCRBY key 1 a", "a"),
            ("ZRANK key a", "a"),
            ("ZREM key a b", "a b"),
            ("HGET key", ""),
            ("ZREMRANGEBYSCORE key 1 2", ""),
            ("HLEN key", ""),
            ("SMOVE one other a", ""),
            ("GET key", ""),
        ] {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            let entry = table.find(words[0]).expect("a command");
            let named: Vec<&[u8]> = entry.elements.into_iter().flat_map(|at| at.of(&words)).collect();
            assert_eq!(named.join(&b' '), expected.as_bytes(), "{line}");
        }
    }

    #[test]
    fn rows_are_complete_and_consistent() {
        let table = CommandTable::new(commands::FAMILIES);
        for entry in table.entries() {
            let (command, name) = (entry.command, entry.full_name());
            assert!(!command.summary.is_empty() && command.summary.ends_with('.'), "{name}: summary");
            assert_eq!(command.name, command.name.to_ascii_lowercase(), "{name}: spelling");
            let is_container = matches!(command.run, super::super::Run::Container);
            assert!(!is_container || !command.subcommands.is_empty(), "{name}: contains nothing");
            for spec in command.keys {
                let writes = spec.access != Access::Read;
                assert!(!writes || command.may_write(), "{name}: a read command declares a written key");
            }
        }
    }
}
