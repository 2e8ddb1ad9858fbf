//! [`Selector`]: a set of permissions that are looked at together.

use std::ops::ControlFlow;

use dunlin_structures::glob::{Glob, literal};

use crate::{
    Commands, Denial, KeyAccess, Reason, Request, RuleError, Touched,
    command_set::CommandSet,
    rule::{CommandRule, SelectorRule, checked_pattern, parse_keys},
};

/// Commands, keys, channels and databases that may be used together.
///
/// Invariant: `rules` behind `+@all` or `-@all`, as `starts_with_all` says, give exactly `allowed` and `first_arguments`.
#[derive(Debug, Clone)]
pub struct Selector {
    allowed: CommandSet,
    /// Whether everything was allowed, and then some of it denied: commands of later versions are allowed too.
    starts_with_all: bool,
    /// The rules about commands since then, as they were given; a later one about the same replaces an earlier one.
    rules: Vec<CommandText>,
    /// Commands that are allowed with these first arguments only.
    first_arguments: Vec<(usize, Box<[u8]>)>,
    keys: KeyPatterns,
    channels: ChannelPatterns,
    databases: Databases,
    /// Whether there is nothing that it forbids.
    is_unrestricted: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct CommandText {
    allows: bool,
    /// In lower case: `get`, `config|get`, `select|0`, `@read`.
    name: Box<[u8]>,
}

#[derive(Debug, Clone)]
enum KeyPatterns {
    All,
    These(Vec<KeyPattern>),
}

#[derive(Debug, Clone)]
struct KeyPattern {
    text: Box<[u8]>,
    matcher: Matcher,
    access: KeyAccess,
}

/// A pattern of keys, compiled.
#[derive(Debug, Clone)]
enum Matcher {
    /// A text with one star behind it, as most are: how long the text is.
    Prefix(usize),
    Glob(Glob),
}

#[derive(Debug, Clone)]
enum ChannelPatterns {
    All,
    These(Vec<ChannelPattern>),
}

#[derive(Debug, Clone)]
struct ChannelPattern {
    text: Box<[u8]>,
    glob: Glob,
}

/// Databases that may be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Databases {
    /// All.
    All,
    /// These, in ascending order.
    These(Vec<i32>),
}

impl Selector {
    /// A selector that allows nothing but all databases.
    pub(crate) fn new(commands: &Commands) -> Self {
        Self {
            allowed: CommandSet::none(commands.count()),
            starts_with_all: false,
            rules: Vec::new(),
            first_arguments: Vec::new(),
            keys: KeyPatterns::These(Vec::new()),
            channels: ChannelPatterns::These(Vec::new()),
            databases: Databases::All,
            is_unrestricted: false,
        }
    }

    /// Reads the rules between parentheses.
    pub(crate) fn parse(rules: &[u8], commands: &Commands) -> Result<Self, RuleError> {
        let mut selector = Self::new(commands);
        for word in rules.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()) {
            selector.apply(SelectorRule::parse(word, commands)?, commands)?;
        }
        Ok(selector)
    }

    pub(crate) fn apply(&mut self, rule: SelectorRule<'_>, commands: &Commands) -> Result<(), RuleError> {
        match rule {
            SelectorRule::AllKeys => self.keys = KeyPatterns::All,
            SelectorRule::ResetKeys => self.keys = KeyPatterns::These(Vec::new()),
            SelectorRule::AddKeys(word) => self.add_keys(word)?,
            SelectorRule::AllChannels => self.channels = ChannelPatterns::All,
            SelectorRule::ResetChannels => self.channels = ChannelPatterns::These(Vec::new()),
            SelectorRule::AddChannels(pattern) => self.add_channels(pattern)?,
            SelectorRule::AllDatabases => self.databases = Databases::All,
            SelectorRule::ResetDatabases => self.databases = Databases::These(Vec::new()),
            SelectorRule::SetDatabases(numbers) => self.databases = Databases::These(numbers),
            SelectorRule::AllCommands => self.set_all_commands(true, commands),
            SelectorRule::NoCommands => self.set_all_commands(false, commands),
            SelectorRule::Allow(rule) => self.set_commands(&rule, true, commands),
            SelectorRule::Deny(rule) => self.set_commands(&rule, false, commands),
        }
        self.is_unrestricted = matches!(self.keys, KeyPatterns::All)
            && matches!(self.channels, ChannelPatterns::All)
            && self.databases == Databases::All
            && self.allowed.count() == commands.count();
        Ok(())
    }

    fn add_keys(&mut self, word: &[u8]) -> Result<(), RuleError> {
        let KeyPatterns::These(patterns) = &mut self.keys else { return Err(RuleError::KeysAfterAll) };
        let (text, access) = parse_keys(word)?;
        match patterns.iter_mut().find(|pattern| *pattern.text == *text) {
            Some(pattern) => pattern.access = pattern.access.and(access),
            None => patterns.push(KeyPattern { text: text.into(), matcher: Matcher::new(text)?, access }),
        }
        Ok(())
    }

    fn add_channels(&mut self, pattern: &[u8]) -> Result<(), RuleError> {
        let ChannelPatterns::These(patterns) = &mut self.channels else {
            return Err(RuleError::ChannelsAfterAll);
        };
        let text = checked_pattern(pattern)?;
        if !patterns.iter().any(|pattern| *pattern.text == *text) {
            patterns.push(ChannelPattern { text: text.into(), glob: compile(text)? });
        }
        Ok(())
    }

    fn set_all_commands(&mut self, allows: bool, commands: &Commands) {
        let set = if allows { CommandSet::all } else { CommandSet::none };
        self.allowed = set(commands.count());
        self.starts_with_all = allows;
        self.rules.clear();
        self.first_arguments.clear();
    }

    fn set_commands(&mut self, rule: &CommandRule<'_>, allows: bool, commands: &Commands) {
        let mut set = |command| {
            self.allowed.set(command, allows);
            self.first_arguments.retain(|(other, _)| *other != command);
        };
        let name = match *rule {
            CommandRule::Category(category) => {
                commands.numbers_in(category).for_each(set);
                format!("@{}", commands.categories()[category]).into_bytes()
            }
            CommandRule::Command(command) => {
                commands.with_subcommands(command).for_each(&mut set);
                commands.name(command).as_bytes().to_vec()
            }
            CommandRule::FirstArgument { command, argument } => {
                let is_same = |(other, known): &(usize, Box<[u8]>)| {
                    *other == command && known.eq_ignore_ascii_case(argument)
                };
                if !self.first_arguments.iter().any(is_same) {
                    self.first_arguments.push((command, argument.into()));
                }
                [commands.name(command).as_bytes(), b"|", &argument.to_ascii_lowercase()].concat()
            }
        };
        self.note_rule(allows, name);
    }

    /// Keeps the text of a rule. Removes earlier rules about the same commands, or parts of them: they no longer
    /// have an effect.
    fn note_rule(&mut self, allows: bool, name: Vec<u8>) {
        let is_within = |rule: &CommandText| {
            rule.name.strip_prefix(&name[..]).is_some_and(|rest| rest.is_empty() || rest[0] == b'|')
        };
        self.rules.retain(|rule| !is_within(rule));
        self.rules.push(CommandText { allows, name: name.into() });
    }

    /// Whether there is nothing that it forbids.
    pub(crate) fn is_unrestricted(&self) -> bool {
        self.is_unrestricted
    }

    /// Whether it allows all of a request.
    #[inline]
    pub(crate) fn decide<R: Request>(&self, request: &R) -> Result<(), Denial> {
        if let Databases::These(numbers) = &self.databases {
            check_databases(numbers, request)?;
        }
        if !self.allowed.contains(request.command()) && !request.is_for_everyone() {
            self.check_first_argument(request)?;
        }
        if let KeyPatterns::These(patterns) = &self.keys {
            let denied = request.keys(|word, key, access| {
                if patterns.iter().any(|pattern| pattern.allows(key, access)) {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(Denial { reason: Reason::Key, word })
                }
            });
            refuse(denied)?;
        }
        if let ChannelPatterns::These(patterns) = &self.channels {
            let denied = request.channels(|word, channel, is_pattern| {
                if patterns.iter().any(|pattern| pattern.allows(channel, is_pattern)) {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(Denial { reason: Reason::Channel, word })
                }
            });
            refuse(denied)?;
        }
        Ok(())
    }

    fn check_first_argument<R: Request>(&self, request: &R) -> Result<(), Denial> {
        let command = request.command();
        let allows = |argument: &[u8]| {
            let mut known = self.first_arguments.iter().filter(|(other, _)| *other == command);
            known.any(|(_, known)| known.eq_ignore_ascii_case(argument))
        };
        match request.first_argument() {
            Some(argument) if allows(argument) => Ok(()),
            _ => Err(Denial { reason: Reason::Command, word: 0 }),
        }
    }

    /// Whether all keys may be used in this way, with any name.
    pub(crate) fn covers_all_keys(&self, access: KeyAccess) -> bool {
        match &self.keys {
            KeyPatterns::All => true,
            KeyPatterns::These(patterns) => {
                patterns.iter().any(|pattern| *pattern.text == *b"*" && pattern.access.covers(access))
            }
        }
    }

    /// Whether a client may listen to a channel, or to those of a pattern.
    pub(crate) fn may_listen(&self, channel: &[u8], is_pattern: bool) -> bool {
        match &self.channels {
            ChannelPatterns::All => true,
            ChannelPatterns::These(patterns) => {
                patterns.iter().any(|pattern| pattern.allows(channel, is_pattern))
            }
        }
    }

    /// The channel patterns; `None` for all channels.
    pub(crate) fn channel_patterns(&self) -> Option<impl Iterator<Item = &[u8]>> {
        match &self.channels {
            ChannelPatterns::All => None,
            ChannelPatterns::These(patterns) => Some(patterns.iter().map(|pattern| &*pattern.text)),
        }
    }

    /// The rules about commands: `-@all +get`.
    pub fn commands_text(&self) -> Vec<u8> {
        let mut text = if self.starts_with_all { b"+@all".to_vec() } else { b"-@all".to_vec() };
        for rule in &self.rules {
            text.extend_from_slice(if rule.allows { b" +" } else { b" -" });
            text.extend_from_slice(&rule.name);
        }
        text
    }

    /// The rules about keys: `~a %R~b`.
    pub fn keys_text(&self) -> Vec<u8> {
        match &self.keys {
            KeyPatterns::All => b"~*".to_vec(),
            KeyPatterns::These(patterns) => {
                let text =
                    |pattern: &KeyPattern| [pattern.access.prefix().as_bytes(), b"~", &pattern.text].concat();
                patterns.iter().map(text).collect::<Vec<_>>().join(&b' ')
            }
        }
    }

    /// The rules about channels: `&a &b`.
    pub fn channels_text(&self) -> Vec<u8> {
        match &self.channels {
            ChannelPatterns::All => b"&*".to_vec(),
            ChannelPatterns::These(patterns) => {
                let text = |pattern: &ChannelPattern| [b"&", &*pattern.text].concat();
                patterns.iter().map(text).collect::<Vec<_>>().join(&b' ')
            }
        }
    }

    /// The databases that may be used.
    pub fn databases(&self) -> &Databases {
        &self.databases
    }

    /// All rules, in the form in which they make the same selector.
    pub(crate) fn describe(&self) -> Vec<u8> {
        let mut words = Vec::new();
        words.extend(Some(self.keys_text()).filter(|text| !text.is_empty()));
        if !matches!(self.channels, ChannelPatterns::All) {
            words.push(b"resetchannels".to_vec());
        }
        words.extend(Some(self.channels_text()).filter(|text| !text.is_empty()));
        words.extend(match &self.databases {
            Databases::All => None,
            Databases::These(numbers) if numbers.is_empty() => Some(b"resetdbs".to_vec()),
            these => Some(these.text().into_bytes()),
        });
        words.push(self.commands_text());
        words.join(&b' ')
    }
}

impl Databases {
    /// The databases as `ACL GETUSER` shows them: `alldbs`, `db=1,2`, or nothing.
    pub fn text(&self) -> String {
        match self {
            Self::All => "alldbs".to_owned(),
            Self::These(numbers) if numbers.is_empty() => String::new(),
            Self::These(numbers) => {
                let numbers: Vec<String> = numbers.iter().map(i32::to_string).collect();
                format!("db={}", numbers.join(","))
            }
        }
    }
}

impl KeyPattern {
    #[inline]
    fn allows(&self, key: &[u8], access: KeyAccess) -> bool {
        self.access.covers(access)
            && match &self.matcher {
                // A star does not match an empty text.
                Matcher::Prefix(length) => !key.is_empty() && key.starts_with(&self.text[..*length]),
                Matcher::Glob(glob) => glob.matches(key),
            }
    }
}

impl Matcher {
    fn new(pattern: &[u8]) -> Result<Self, RuleError> {
        match pattern.strip_suffix(b"*") {
            Some(prefix) if literal(prefix).is_some() => Ok(Self::Prefix(prefix.len())),
            _ => compile(pattern).map(Self::Glob),
        }
    }
}

impl ChannelPattern {
    /// A pattern of a client's is allowed if it is one of the patterns, to the letter.
    fn allows(&self, channel: &[u8], is_pattern: bool) -> bool {
        if is_pattern { *self.text == *channel } else { self.glob.matches(channel) }
    }
}

#[cold]
fn check_databases<R: Request>(numbers: &[i32], request: &R) -> Result<(), Denial> {
    refuse(request.databases(|touched| match touched {
        Touched::One { number, .. } if numbers.binary_search(&number).is_ok() => ControlFlow::Continue(()),
        Touched::One { word, .. } => ControlFlow::Break(Denial { reason: Reason::Database, word }),
        Touched::All => ControlFlow::Break(Denial { reason: Reason::Database, word: 0 }),
    }))
}

fn refuse(denied: ControlFlow<Denial>) -> Result<(), Denial> {
    match denied {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(denial) => Err(denial),
    }
}

fn compile(pattern: &[u8]) -> Result<Glob, RuleError> {
    Glob::new(pattern).map_err(|_| RuleError::TooComplex)
}
