//! The table of all commands, indexed by name.
//!
//! Names are found with one multiplication and, nearly always, one comparison: a name of up to
//! eight bytes is loaded as one word, folded to lower case and hashed into a sparse array.

use super::{Access, BeginSearch, Command, ElementWords, FindKeys, Group, KeyFlags, KeySpec, REDACTED};

/// Slots of the index per command, at least.
const SPARSENESS: usize = 4;
/// Bytes of a name at most.
const NAME_BYTES_MAX: usize = 255;

/// How a request's keys are found, as far as the executor distinguishes it.
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
    /// Position in [`CommandTable::entries`], the index of per-command statistics.
    pub index: usize,
    /// How keys are found.
    pub keys: KeyShape,
    /// Which words name elements of the collection under its only key.
    pub elements: Option<ElementWords>,
    /// Bits that the host's admission looks at, for each command; 0 until [`CommandTable::set_concerns`].
    pub concerns: u32,
    /// The subcommands' entries, of a container: positions in [`CommandTable::entries`].
    pub subcommands: std::ops::Range<usize>,
    /// The name that clients call it by, or its container, if that is another one; empty if they cannot.
    pub renamed: Option<Box<str>>,
}

impl Entry {
    /// The name as clients see it: `get`, `config|set`.
    pub fn full_name(&self) -> String {
        match self.container {
            Some(container) => format!("{}|{}", container.name, self.command.name),
            None => self.command.name.to_owned(),
        }
    }

    /// The name that clients call a command by; empty if they cannot.
    #[inline]
    pub fn called(&self) -> &str {
        self.renamed.as_deref().unwrap_or(self.command.name)
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

    /// The words of a request as logs and `MONITOR` show them: [`REDACTED`] stands for each secret.
    pub fn redacted<'w, 'a>(&self, words: &'w [&'a [u8]]) -> impl Iterator<Item = &'a [u8]> + use<'w, 'a> {
        let secrets = self.command.secrets.map_or_else(Vec::new, |find| find(words));
        let mut secrets = secrets.into_iter().peekable();
        let shown = move |(at, word): (usize, &&'a [u8])| match secrets.next_if_eq(&at) {
            Some(_) => REDACTED,
            None => *word,
        };
        words.iter().enumerate().map(shown)
    }

    /// Whether a request may look at keys that are not among [`Self::key_positions`].
    #[inline]
    pub fn has_undeclared_keys(&self, words: &[&[u8]]) -> bool {
        self.command.undeclared_keys.is_some_and(|test| test(words))
    }

    /// Whether a word of it becomes a string as it is, as far as its keys say so: they are overwritten, or returned and
    /// updated (SET … GET).
    pub fn stores_words(&self) -> bool {
        let replaces = |spec: &KeySpec| {
            spec.access == Access::Overwrite
                || spec.flags.has(KeyFlags::ACCESS) && spec.flags.has(KeyFlags::UPDATE)
        };
        self.command.group == Group::String && self.command.keys.iter().any(replaces)
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
    /// A hash table, probed linearly.
    index: Index,
    /// By the names of the rows, if commands have been renamed.
    by_row: Option<Index>,
}

/// Commands by name.
#[derive(Debug, Default)]
struct Index {
    slots: Vec<IndexSlot>,
    shift: u32,
}

/// Why a command cannot be renamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameError {
    /// There is no command of that name.
    Unknown,
    /// The new name is another command's.
    Taken,
    /// The new name is too long, or has blanks or bytes that are not letters, digits or signs.
    Unusable,
}

/// The place of a command in the table, and enough of its name to know it without looking there.
#[derive(Debug, Clone, Copy, Default)]
struct IndexSlot {
    /// The first bytes of its name.
    head: u64,
    /// Length of its name, in bytes; 0 for an empty slot.
    length: u8,
    /// Whether no other name has this head and length.
    is_whole: bool,
    /// In `entries`.
    position: u16,
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
        let index = Index::of(&entries, |entry| entry.command.name);
        Self { entries, index, by_row: None }
    }

    /// Lets clients call a command by another name, or not at all if that is empty (`rename-command`). Logs, rules and
    /// replicas know it by the name of its row ([`Self::find_row`]).
    ///
    /// # Errors
    /// If that is impossible; then nothing changes.
    pub fn rename(&mut self, name: &[u8], other: &[u8]) -> Result<(), RenameError> {
        let position = self.find(name).ok_or(RenameError::Unknown)?.index;
        let other = std::str::from_utf8(other).map_err(|_| RenameError::Unusable)?.to_ascii_lowercase();
        if other.len() > NAME_BYTES_MAX || !other.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(RenameError::Unusable);
        }
        if !other.is_empty() && self.find(other.as_bytes()).is_some() {
            return Err(RenameError::Taken);
        }
        if self.by_row.is_none() {
            self.by_row = Some(std::mem::take(&mut self.index));
        }
        let subcommands = self.entries[position].subcommands.clone();
        for at in std::iter::once(position).chain(subcommands) {
            self.entries[at].renamed = Some(other.as_str().into());
        }
        self.index = Index::of(&self.entries, Entry::called);
        Ok(())
    }

    /// Sets the bits that the host's admission looks at.
    pub fn set_concerns(&mut self, concerns: impl Fn(&Entry) -> u32) {
        self.entries.iter_mut().for_each(|entry| entry.concerns = concerns(entry));
    }

    /// All commands and subcommands; a container is followed by its subcommands.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The commands that clients can call, without the subcommands.
    pub fn commands(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.container.is_none() && !entry.called().is_empty())
    }

    /// The command that clients call by that name, in any letter case. O(1).
    pub fn find(&self, name: &[u8]) -> Option<&Entry> {
        self.find_at_front(name, name.len())
    }

    /// The command whose row has that name, in any letter case, whatever clients call it. O(1).
    pub fn find_row(&self, name: &[u8]) -> Option<&Entry> {
        match &self.by_row {
            None => self.find(name),
            Some(index) => index.find(&self.entries, |entry| entry.command.name, name, name.len()),
        }
    }

    /// Finds the command whose name is the first `length` bytes of a text, in any letter case: quicker than
    /// by the name alone if the text goes on behind it. O(1).
    ///
    /// # Panics
    /// When the text is shorter.
    #[inline]
    pub fn find_at_front(&self, text: &[u8], length: usize) -> Option<&Entry> {
        self.index.find(&self.entries, Entry::called, text, length)
    }

    /// The subcommand of that name, in any letter case.
    pub fn find_subcommand(&self, container: &Entry, name: &[u8]) -> Option<&Entry> {
        self.entries[container.subcommands.clone()]
            .iter()
            .find(|entry| entry.command.name.as_bytes().eq_ignore_ascii_case(name))
    }

    /// The subcommand that a request of a container names; the container itself if there is none.
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
}

impl Index {
    /// An index of the names of all commands that have one.
    ///
    /// # Panics
    /// When two have the same.
    fn of(entries: &[Entry], name: impl Fn(&Entry) -> &str + Copy) -> Self {
        let slots = (entries.len() * SPARSENESS).next_power_of_two();
        let mut index = Self { slots: vec![IndexSlot::default(); slots], shift: 64 - slots.trailing_zeros() };
        for (position, entry) in entries.iter().enumerate() {
            let called = name(entry).as_bytes();
            if entry.container.is_some() || called.is_empty() {
                continue;
            }
            let is_new = index.find(entries, name, called, called.len()).is_none();
            assert!(is_new, "two commands are named {}", name(entry));
            let head = folded_head(called, called.len());
            let mut slot = index.slot(head, called.len());
            while index.slots[slot].length != 0 {
                slot = (slot + 1) & (slots - 1);
            }
            index.slots[slot] = IndexSlot {
                head,
                length: u8::try_from(called.len()).expect("names are short"),
                // Folding brings together letters of both cases only.
                is_whole: called.len() <= 8 && called.iter().all(u8::is_ascii_lowercase),
                position: position as u16,
            };
        }
        index
    }

    #[inline]
    fn find<'e>(
        &self,
        entries: &'e [Entry],
        called: impl Fn(&Entry) -> &str,
        text: &[u8],
        length: usize,
    ) -> Option<&'e Entry> {
        let name = &text[..length];
        let head = folded_head(text, length);
        let mut at = self.slot(head, length);
        loop {
            let slot = &self.slots[at];
            if slot.length == 0 {
                return None;
            }
            if slot.head == head && usize::from(slot.length) == length {
                let entry = &entries[usize::from(slot.position)];
                if slot.is_whole || called(entry).as_bytes().eq_ignore_ascii_case(name) {
                    return Some(entry);
                }
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    #[inline]
    fn slot(&self, head: u64, length: usize) -> usize {
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        ((head ^ (length as u64) << 56).wrapping_mul(SPREAD) >> self.shift) as usize
    }
}

/// The first eight bytes of a name as a word, blanks if it is shorter, in lower case: bit 5 distinguishes
/// lower from upper case of a letter. The name is the first `length` bytes of the text.
#[inline]
fn folded_head(text: &[u8], length: usize) -> u64 {
    const FOLD: u64 = 0x2020_2020_2020_2020;
    let word = match text.first_chunk() {
        Some(eight) if length < 8 => u64::from_le_bytes(*eight) & !(u64::MAX << (8 * length)),
        Some(eight) => u64::from_le_bytes(*eight),
        None => {
            let mut word = [0; 8];
            word[..length].copy_from_slice(&text[..length]);
            u64::from_le_bytes(word)
        }
    };
    word | FOLD
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
        Self { command, container, index, keys, elements, concerns: 0, subcommands, renamed: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands;

    #[test]
    fn commands_are_found_by_name_in_any_case() {
        let table = CommandTable::new(commands::FAMILIES);
        for entry in table.commands() {
            let name = entry.command.name;
            for spelled in [name.to_owned(), name.to_uppercase()] {
                let found = table.find(spelled.as_bytes()).expect("found by its name");
                assert_eq!(found.command.name, name);
                let found = table.find_at_front(format!("{spelled}\r\n$1\r\n").as_bytes(), name.len());
                assert_eq!(found.expect("found at the front").command.name, name);
            }
            assert!(table.find(format!("{name}~").as_bytes()).is_none());
        }
        assert!(table.find(b"").is_none());
        assert!(table.find(b"no-such-command-anywhere").is_none());
    }

    #[test]
    fn renamed_command_is_found_by_its_new_name_only() {
        let mut table = CommandTable::new(commands::FAMILIES);
        let get = table.find(b"get").unwrap().index;
        assert_eq!(table.rename(b"GET", b"Fetch-It"), Ok(()));
        assert!(table.find(b"get").is_none());
        assert_eq!(table.find(b"FETCH-it").unwrap().index, get);
        assert_eq!(table.find_row(b"Get").unwrap().index, get);
        assert!(table.find_row(b"fetch-it").is_none());
        assert_eq!(table.rename(b"set", b"get"), Ok(()), "the name is free");
        assert_eq!(table.find(b"get").unwrap().command.name, "set");
        assert_eq!(table.rename(b"del", b""), Ok(()));
        assert!(table.find(b"del").is_none() && table.find(b"").is_none());
        assert_eq!(table.find_row(b"del").unwrap().command.name, "del");
        assert_eq!(table.rename(b"del", b"x"), Err(RenameError::Unknown));
        assert_eq!(table.rename(b"mget", b"mset"), Err(RenameError::Taken));
        assert_eq!(table.rename(b"mget", b"a b"), Err(RenameError::Unusable));
        assert_eq!(table.rename(b"mget", &[b'x'; 256]), Err(RenameError::Unusable));
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
