//! [`Commands`]: the commands and categories that rules can name.

use std::{collections::HashMap, ops::Range};

/// A command or subcommand as its table has it.
#[derive(Debug, Clone)]
pub struct CommandRow<'a> {
    /// Full name in lower case: `get`, `config|get`.
    pub name: &'a str,
    /// The categories, without the `@`.
    pub categories: &'a [&'static str],
    /// The numbers of the subcommands, of a container.
    pub subcommands: Range<usize>,
}

#[derive(Debug)]
struct Known {
    name: Box<str>,
    /// A bit for each category.
    categories: u64,
    subcommands: Range<usize>,
    is_subcommand: bool,
    /// Whether it can only be named.
    is_absent: bool,
}

/// The commands that rules can name, each by its number: its position among the rows.
#[derive(Debug)]
pub struct Commands {
    categories: &'static [&'static str],
    known: Vec<Known>,
    by_name: HashMap<Box<str>, usize>,
}

impl Commands {
    /// Takes the table of commands over.
    ///
    /// # Panics
    /// When a row has a category that is not among `categories`, or there are more than 64: a mistake in the program.
    pub fn new<'a>(
        categories: &'static [&'static str],
        rows: impl IntoIterator<Item = CommandRow<'a>>,
    ) -> Self {
        assert!(categories.len() <= u64::BITS as usize, "a category is a bit of a word");
        let bit = |name: &str| {
            let at = categories.iter().position(|category| *category == name);
            1_u64 << at.expect("rows have known categories")
        };
        let known: Vec<Known> = rows
            .into_iter()
            .map(|row| Known {
                name: row.name.into(),
                categories: row.categories.iter().fold(0, |bits, name| bits | bit(name)),
                subcommands: row.subcommands,
                is_subcommand: row.name.contains('|'),
                is_absent: false,
            })
            .collect();
        let by_name =
            known.iter().enumerate().map(|(number, command)| (command.name.clone(), number)).collect();
        Self { categories, known, by_name }
    }

    /// Adds names of commands that other servers of the protocol have: rules that name them are read, and allow nothing.
    /// Names that are there already stay what they are.
    #[must_use]
    pub fn with_absent(mut self, names: &[&str]) -> Self {
        for name in names {
            let number = self.known.len();
            if self.by_name.contains_key(*name) {
                continue;
            }
            self.by_name.insert((*name).into(), number);
            self.known.push(Known {
                name: (*name).into(),
                categories: 0,
                subcommands: 0..0,
                is_subcommand: name.contains('|'),
                is_absent: true,
            });
        }
        self
    }

    /// How many there are, subcommands included.
    pub fn count(&self) -> usize {
        self.known.len()
    }

    /// The names of the categories, without the `@`.
    pub fn categories(&self) -> &'static [&'static str] {
        self.categories
    }

    /// The category of that name, in any letter case.
    pub fn category(&self, name: &[u8]) -> Option<usize> {
        self.categories.iter().position(|category| category.as_bytes().eq_ignore_ascii_case(name))
    }

    /// The full names of the commands and subcommands of a category.
    pub fn in_category(&self, category: usize) -> impl Iterator<Item = &str> {
        let is_in = move |command: &&Known| !command.is_absent && command.categories >> category & 1 != 0;
        self.known.iter().filter(is_in).map(|command| &*command.name)
    }

    /// The full name of a command.
    pub fn name(&self, command: usize) -> &str {
        &self.known[command].name
    }

    /// The command of that full name, in any letter case.
    pub(crate) fn find(&self, name: &[u8]) -> Option<usize> {
        let name = std::str::from_utf8(name).ok()?.to_ascii_lowercase();
        self.by_name.get(name.as_str()).copied()
    }

    pub(crate) fn is_container(&self, command: usize) -> bool {
        !self.known[command].subcommands.is_empty()
    }

    pub(crate) fn is_subcommand(&self, command: usize) -> bool {
        self.known[command].is_subcommand
    }

    /// A command and its subcommands.
    pub(crate) fn with_subcommands(&self, command: usize) -> impl Iterator<Item = usize> + use<> {
        std::iter::once(command).chain(self.known[command].subcommands.clone())
    }

    /// The numbers of the commands and subcommands of a category. A container stands for its subcommands too.
    pub(crate) fn numbers_in(&self, category: usize) -> impl Iterator<Item = usize> + use<'_> {
        let is_in = move |number: &usize| self.known[*number].categories >> category & 1 != 0;
        (0..self.known.len()).filter(is_in).flat_map(|number| self.with_subcommands(number))
    }
}

/// A small table of commands for tests.
#[cfg(test)]
pub(crate) fn example() -> Commands {
    const CATEGORIES: &[&str] = &[
        "keyspace",
        "read",
        "write",
        "string",
        "pubsub",
        "admin",
        "fast",
        "slow",
        "dangerous",
        "connection",
    ];
    let rows: &[(&str, &[&'static str], Range<usize>)] = &[
        ("acl", &["slow"], 1..3),
        ("acl|list", &["admin", "slow", "dangerous"], 0..0),
        ("acl|whoami", &["slow"], 0..0),
        ("auth", &["fast", "connection"], 0..0),
        ("config", &["slow"], 5..7),
        ("config|get", &["admin", "slow", "dangerous"], 0..0),
        ("config|set", &["admin", "slow", "dangerous"], 0..0),
        ("del", &["keyspace", "write", "slow"], 0..0),
        ("get", &["read", "string", "fast"], 0..0),
        ("keys", &["keyspace", "read", "slow", "dangerous"], 0..0),
        ("mget", &["read", "string", "fast"], 0..0),
        ("ping", &["fast", "connection"], 0..0),
        ("publish", &["pubsub", "fast"], 0..0),
        ("select", &["fast", "connection"], 0..0),
        ("set", &["write", "string", "slow"], 0..0),
        ("strlen", &["read", "string", "fast"], 0..0),
    ];
    let row = |(name, categories, subcommands): &(&'static str, &'static [&'static str], Range<usize>)| {
        CommandRow { name, categories, subcommands: subcommands.clone() }
    };
    Commands::new(CATEGORIES, rows.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_by_full_name_in_any_case() {
        let commands = example();
        assert_eq!(commands.find(b"GET"), Some(8));
        assert_eq!(commands.find(b"Config|Set"), Some(6));
        assert_eq!(commands.find(b"config|"), None);
        assert_eq!(commands.find(b"\xff"), None);
        let category = commands.category(b"STRING").unwrap();
        assert_eq!(commands.in_category(category).collect::<Vec<_>>(), ["get", "mget", "set", "strlen"]);
    }

    #[test]
    fn absent_commands_can_be_named_and_are_in_no_category() {
        let commands = example().with_absent(&["failover", "config|reload", "get"]);
        let number = commands.find(b"Failover").unwrap();
        assert_eq!(commands.name(number), "failover");
        assert!(commands.is_subcommand(commands.find(b"config|reload").unwrap()));
        assert_eq!(commands.find(b"get"), Some(8), "what is there stays");
        let all = (0..commands.categories().len()).flat_map(|category| commands.in_category(category));
        assert!(!all.collect::<Vec<_>>().contains(&"failover"));
    }

    #[test]
    fn commands_of_a_category_include_the_subcommands_of_a_container() {
        let commands = example();
        let slow: Vec<usize> = commands.numbers_in(commands.category(b"slow").unwrap()).collect();
        assert!([0, 1, 2, 4, 5, 6].iter().all(|number| slow.contains(number)));
    }
}
