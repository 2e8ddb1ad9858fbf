//! The grammar of rules: one word of `ACL SETUSER`, of a `user` line or of an ACL file at a time.
//!
//! A word is read against the table of commands, then applied; the next word sees its effect. Errors carry the texts of
//! redis-server 7.0, and Valkey's if a rule is Valkey's.

use std::{borrow::Cow, fmt};

use crate::{Commands, KeyAccess, PasswordHash};

/// Why a rule is refused. Displays as the reason that clients are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleError {
    /// No rule has that form, or a pattern has a space.
    Syntax,
    /// A command, subcommand or category that does not exist.
    Unknown,
    /// A key pattern behind one for all keys.
    KeysAfterAll,
    /// A channel pattern behind one for all channels.
    ChannelsAfterAll,
    /// A password to be removed that the user does not have.
    NoSuchPassword,
    /// A hash that is not 64 hexadecimal digits in lower case.
    BadHash,
    /// `+container|subcommand|argument`.
    FirstArgumentOfSubcommand,
    /// A database number below 0 or above that of any configuration.
    DatabaseOutOfRange,
    /// A pattern that cannot be matched in acceptable time.
    TooComplex,
}

impl fmt::Display for RuleError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Syntax => "Syntax error",
            Self::Unknown => "Unknown command or category name in ACL",
            Self::KeysAfterAll => {
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any \
                 effect. Try 'resetkeys' to start with an empty list of patterns"
            }
            Self::ChannelsAfterAll => {
                "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any \
                 effect. Try 'resetchannels' to start with an empty list of channels"
            }
            Self::NoSuchPassword => "The password you are trying to remove from the user does not exist",
            Self::BadHash => {
                "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
            }
            Self::FirstArgumentOfSubcommand => "Allowing first-arg of a subcommand is not supported",
            Self::DatabaseOutOfRange => "The provided database ID is out of range",
            Self::TooComplex => "The pattern has more than 1024 characters in parts with '?' or '[...]'",
        })
    }
}

/// Why the rules for a user are refused: none of them is applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetUserError {
    /// A rule is wrong.
    Rule {
        /// The rule, with all words of a selector.
        word: Vec<u8>,
        /// Its position among the words.
        position: usize,
        /// The mistake in it.
        error: RuleError,
    },
    /// A parenthesis is never closed.
    Unmatched {
        /// The word that opens it.
        word: Vec<u8>,
        /// Its position among the words.
        position: usize,
    },
}

impl SetUserError {
    /// The text for clients, without a code.
    pub fn text(&self) -> Vec<u8> {
        match self {
            Self::Rule { word, error, .. } => {
                [b"Error in ACL SETUSER modifier '", &word[..], b"': ", error.to_string().as_bytes()].concat()
            }
            Self::Unmatched { word, .. } => {
                [b"Unmatched parenthesis in acl selector starting at '", &word[..], b"'."].concat()
            }
        }
    }
}

/// Whether a name has neither blanks nor NULs.
pub fn is_user_name(name: &[u8]) -> bool {
    !has_blanks(name)
}

/// Whether a text has blanks, as C's `isspace` has them, or a NUL.
fn has_blanks(text: &[u8]) -> bool {
    text.iter().any(|byte| matches!(byte, b'\t'..=b'\r' | b' ' | 0))
}

/// A rule about the user itself.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum UserRule<'a> {
    On,
    Off,
    SanitizePayload,
    SkipSanitizePayload,
    NoPassword,
    ResetPasswords,
    AddPassword(PasswordHash),
    RemovePassword(PasswordHash),
    ClearSelectors,
    Reset,
    /// The rules between the parentheses.
    AddSelector(&'a [u8]),
    /// A rule for the root selector.
    Root(SelectorRule<'a>),
}

impl<'a> UserRule<'a> {
    pub(crate) fn parse(word: &'a [u8], commands: &Commands) -> Result<Self, RuleError> {
        let hash = |text| PasswordHash::parse(text).ok_or(RuleError::BadHash);
        Ok(match (word, word.to_ascii_lowercase().as_slice()) {
            (_, b"on") => Self::On,
            (_, b"off") => Self::Off,
            (_, b"sanitize-payload") => Self::SanitizePayload,
            (_, b"skip-sanitize-payload") => Self::SkipSanitizePayload,
            (_, b"nopass") => Self::NoPassword,
            (_, b"resetpass") => Self::ResetPasswords,
            (_, b"clearselectors") => Self::ClearSelectors,
            (_, b"reset") => Self::Reset,
            ([b'>', password @ ..], _) => Self::AddPassword(PasswordHash::of(password)),
            ([b'#', text @ ..], _) => Self::AddPassword(hash(text)?),
            ([b'<', password @ ..], _) => Self::RemovePassword(PasswordHash::of(password)),
            ([b'!', text @ ..], _) => Self::RemovePassword(hash(text)?),
            ([b'(', rules @ .., b')'], _) => Self::AddSelector(rules),
            _ => Self::Root(SelectorRule::parse(word, commands)?),
        })
    }
}

/// A rule about permissions.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SelectorRule<'a> {
    AllKeys,
    ResetKeys,
    /// `~pattern` or `%R~pattern`, unread: if all keys are allowed already, that is the first thing to say.
    AddKeys(&'a [u8]),
    AllChannels,
    ResetChannels,
    /// `&pattern`.
    AddChannels(&'a [u8]),
    AllDatabases,
    ResetDatabases,
    /// In ascending order.
    SetDatabases(Vec<i32>),
    AllCommands,
    NoCommands,
    Allow(CommandRule<'a>),
    Deny(CommandRule<'a>),
}

/// The operand of `+` or `-`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CommandRule<'a> {
    Category(usize),
    Command(usize),
    /// A command with this first argument only.
    FirstArgument {
        command: usize,
        argument: &'a [u8],
    },
}

impl<'a> SelectorRule<'a> {
    pub(crate) fn parse(word: &'a [u8], commands: &Commands) -> Result<Self, RuleError> {
        Ok(match (word, word.to_ascii_lowercase().as_slice()) {
            (_, b"allkeys" | b"~*") => Self::AllKeys,
            (_, b"resetkeys") => Self::ResetKeys,
            (_, b"allchannels" | b"&*") => Self::AllChannels,
            (_, b"resetchannels") => Self::ResetChannels,
            (_, b"allcommands" | b"+@all") => Self::AllCommands,
            (_, b"nocommands" | b"-@all") => Self::NoCommands,
            (_, b"alldbs") => Self::AllDatabases,
            (_, b"resetdbs") => Self::ResetDatabases,
            (_, [b'd', b'b', b'=', numbers @ ..]) => Self::SetDatabases(parse_databases(numbers)?),
            ([b'~' | b'%', ..], _) => Self::AddKeys(word),
            ([b'&', pattern @ ..], _) => Self::AddChannels(pattern),
            ([b'+', name @ ..], _) => Self::Allow(CommandRule::parse(name, true, commands)?),
            ([b'-', name @ ..], _) => Self::Deny(CommandRule::parse(name, false, commands)?),
            _ => return Err(RuleError::Syntax),
        })
    }
}

impl<'a> CommandRule<'a> {
    fn parse(name: &'a [u8], allows: bool, commands: &Commands) -> Result<Self, RuleError> {
        if let Some(category) = name.strip_prefix(b"@") {
            return commands.category(category).map(Self::Category).ok_or(RuleError::Unknown);
        }
        let whole = commands.find(name).map(Self::Command).ok_or(RuleError::Unknown);
        let bar = name.iter().rposition(|byte| *byte == b'|');
        let Some(bar) = bar.filter(|_| allows) else { return whole };
        let (front, argument) = (&name[..bar], &name[bar + 1..]);
        let command = commands.find(front).ok_or(RuleError::Unknown)?;
        if commands.is_subcommand(command) {
            return Err(RuleError::FirstArgumentOfSubcommand);
        }
        if argument.is_empty() {
            return Err(RuleError::Syntax);
        }
        if commands.is_container(command) { whole } else { Ok(Self::FirstArgument { command, argument }) }
    }
}

/// Reads `~pattern`, `%R~pattern`, `%W~pattern` or `%RW~pattern`. As in Redis, the pattern may be missing with its `~`.
pub(crate) fn parse_keys(word: &[u8]) -> Result<(&[u8], KeyAccess), RuleError> {
    let mut access = KeyAccess::BOTH;
    let mut pattern = &word[1..];
    if word[0] == b'%' {
        access = KeyAccess::NONE;
        loop {
            let (use_, rest) = match pattern {
                [b'R' | b'r', rest @ ..] => (KeyAccess::READ, rest),
                [b'W' | b'w', rest @ ..] => (KeyAccess::WRITE, rest),
                [b'~', rest @ ..] => {
                    pattern = rest;
                    break;
                }
                [] => break,
                _ => return Err(RuleError::Syntax),
            };
            if access.covers(use_) {
                return Err(RuleError::Syntax);
            }
            (access, pattern) = (access.and(use_), rest);
        }
        if access == KeyAccess::NONE {
            return Err(RuleError::Syntax);
        }
    }
    Ok((checked_pattern(pattern)?, access))
}

/// A pattern without blanks.
pub(crate) fn checked_pattern(pattern: &[u8]) -> Result<&[u8], RuleError> {
    if has_blanks(pattern) { Err(RuleError::Syntax) } else { Ok(pattern) }
}

/// The numbers of `db=`, in ascending order, each once.
fn parse_databases(numbers: &[u8]) -> Result<Vec<i32>, RuleError> {
    let mut databases = Vec::new();
    for number in numbers.split(|byte| *byte == b',') {
        let number = std::str::from_utf8(number).map_err(|_| RuleError::Syntax)?.trim_ascii_start();
        let digits = number.strip_prefix(['+', '-']).unwrap_or(number);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(RuleError::Syntax);
        }
        // Signed digits that do not parse are too many.
        let number = number.parse().ok().filter(|number: &i32| *number >= 0);
        databases.push(number.ok_or(RuleError::DatabaseOutOfRange)?);
    }
    databases.sort_unstable();
    databases.dedup();
    Ok(databases)
}

/// A rule, with all words of a selector, and the position of its first word.
pub(crate) type PlacedRule<'a> = (usize, Cow<'a, [u8]>);

/// Joins the words of selectors that are spread over several.
pub(crate) fn join_selectors<'a>(words: &[&'a [u8]]) -> Result<Vec<PlacedRule<'a>>, SetUserError> {
    let mut joined: Vec<PlacedRule<'a>> = Vec::with_capacity(words.len());
    let mut is_open = false;
    for (position, word) in words.iter().copied().enumerate() {
        let closes = word.ends_with(b")");
        if is_open {
            let (_, selector) = joined.last_mut().expect("its first word");
            let selector = selector.to_mut();
            selector.push(b' ');
            selector.extend_from_slice(word);
            is_open = !closes;
        } else {
            is_open = word.starts_with(b"(") && !closes;
            joined.push((position, Cow::Borrowed(word)));
        }
    }
    match joined.last() {
        Some((position, _)) if is_open => {
            let (position, word) = (*position, words[*position].to_vec());
            Err(SetUserError::Unmatched { word, position })
        }
        _ => Ok(joined),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::example;

    #[test]
    fn rules_parse_as_redis_does() {
        let commands = example();
        let parse = |word: &'static str| UserRule::parse(word.as_bytes(), &commands);
        let root = |rule| Ok(UserRule::Root(rule));
        assert_eq!(parse("ON"), Ok(UserRule::On));
        assert_eq!(parse(">"), Ok(UserRule::AddPassword(PasswordHash::of(b""))));
        assert_eq!(parse("#abc"), Err(RuleError::BadHash));
        assert_eq!(parse("()"), Ok(UserRule::AddSelector(b"")));
        assert_eq!(parse("+@ALL"), root(SelectorRule::AllCommands));
        assert_eq!(parse("+GET"), root(SelectorRule::Allow(CommandRule::Command(8))));
        assert_eq!(parse("+config|SET"), root(SelectorRule::Allow(CommandRule::Command(6))));
        assert_eq!(parse("-config|set"), root(SelectorRule::Deny(CommandRule::Command(6))));
        let first = CommandRule::FirstArgument { command: 13, argument: b"0" };
        assert_eq!(parse("+select|0"), root(SelectorRule::Allow(first)));
        for (word, error) in [
            ("+foo", RuleError::Unknown),
            ("+", RuleError::Unknown),
            ("-", RuleError::Unknown),
            ("+foo|bar", RuleError::Unknown),
            ("+config|foo", RuleError::Unknown),
            ("+config|", RuleError::Syntax),
            ("+select|", RuleError::Syntax),
            ("-select|0", RuleError::Unknown),
            ("+config|get|x", RuleError::FirstArgumentOfSubcommand),
            ("+@foo", RuleError::Unknown),
            ("-@", RuleError::Unknown),
            ("foo", RuleError::Syntax),
            ("((+get))", RuleError::Syntax),
            ("db=", RuleError::Syntax),
            ("db=0,", RuleError::Syntax),
            ("db=a", RuleError::Syntax),
            ("db=-1", RuleError::DatabaseOutOfRange),
            ("db=2147483648", RuleError::DatabaseOutOfRange),
        ] {
            // Rules in parentheses are parsed when they are applied.
            let found = match parse(word) {
                Ok(UserRule::AddSelector(inner)) => SelectorRule::parse(inner, &commands).err(),
                other => other.err(),
            };
            assert_eq!(found, Some(error), "{word}");
        }
        assert_eq!(parse("DB=5,03, 1,+5"), root(SelectorRule::SetDatabases(vec![1, 3, 5])));
    }

    #[test]
    fn key_rules_parse_as_redis_does() {
        for (word, pattern, access) in [
            ("~a", "a", KeyAccess::BOTH),
            ("~", "", KeyAccess::BOTH),
            ("%R~a", "a", KeyAccess::READ),
            ("%w~a", "a", KeyAccess::WRITE),
            ("%WR~%a~", "%a~", KeyAccess::BOTH),
            ("%R", "", KeyAccess::READ),
        ] {
            assert_eq!(parse_keys(word.as_bytes()), Ok((pattern.as_bytes(), access)), "{word}");
        }
        for word in ["%", "%~a", "%RR~a", "%RX~a", "~a b", "%R~a\tb", "~a\0"] {
            assert_eq!(parse_keys(word.as_bytes()), Err(RuleError::Syntax), "{word}");
        }
    }

    #[test]
    fn selectors_are_joined_over_words() {
        let join = |line: &'static str| {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            join_selectors(&words)
        };
        let joined = join("on ( +get ~x ) (+set) ~y").unwrap();
        let joined: Vec<(usize, &[u8])> = joined.iter().map(|(at, word)| (*at, &word[..])).collect();
        assert_eq!(joined, [(0, &b"on"[..]), (1, b"( +get ~x )"), (5, b"(+set)"), (6, b"~y")]);
        let open = join("on (+get ~x").unwrap_err();
        assert_eq!(open, SetUserError::Unmatched { word: b"(+get".to_vec(), position: 1 });
        assert!(join("(").is_err() && join("( (").is_err() && join(")").is_ok());
    }

    #[test]
    fn user_names_have_no_blanks() {
        assert!(is_user_name(b"") && is_user_name(b"a-\xff(") && is_user_name(b"~x"));
        for bad in [&b"a b"[..], b"a\0", b"\x0b", b"a\n"] {
            assert!(!is_user_name(bad));
        }
    }
}
