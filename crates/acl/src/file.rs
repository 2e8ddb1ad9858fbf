//! ACL files: a line for each user, as `ACL LIST` shows them.
//!
//! ```text
//! user default on nopass ~* &* +@all
//! user app on #5e88… ~app:* resetchannels -@all +@read
//! ```
//!
//! All lines are checked, and none is taken if one is bad.

use std::collections::HashSet;

use crate::{Commands, RuleError, SetUserError, User, UserDefaults, Users, is_user_name};

/// A mistake in a line. The words of rules that may hold a password are not shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineError {
    /// The line's number, from 1.
    pub line: usize,
    /// The mistake.
    pub fault: Fault,
}

/// The kinds of mistakes in a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The line does not begin with `user` and a name.
    NotAUser,
    /// The name has blanks or NULs.
    BadName(Vec<u8>),
    /// There is a user of that name in an earlier line.
    Duplicate(Vec<u8>),
    /// A parenthesis is never closed; the position of the word that opens it, from 1.
    Unmatched(usize),
    /// A rule is wrong.
    Rule {
        /// Its text, unless it may hold a password.
        word: Option<Vec<u8>>,
        /// Its position among the words of the line, from 1.
        position: usize,
        /// The mistake in it.
        error: RuleError,
    },
}

/// Reads an ACL file. All its users, or all of its faults, in the order of the lines.
pub fn parse(text: &[u8], defaults: UserDefaults, commands: &Commands) -> Result<Vec<User>, Vec<LineError>> {
    let (mut users, mut errors) = (Vec::new(), Vec::new());
    let mut names: HashSet<&[u8]> = HashSet::new();
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        match parse_line(line, &mut names, defaults, commands) {
            Ok(user) => users.push(user),
            Err(fault) => errors.push(LineError { line: index + 1, fault }),
        }
    }
    if errors.is_empty() { Ok(users) } else { Err(errors) }
}

fn parse_line<'a>(
    line: &'a [u8],
    names: &mut HashSet<&'a [u8]>,
    defaults: UserDefaults,
    commands: &Commands,
) -> Result<User, Fault> {
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).collect();
    let [b"user", name, rules @ ..] = &words[..] else { return Err(Fault::NotAUser) };
    if !is_user_name(name) {
        return Err(Fault::BadName(name.to_vec()));
    }
    if !names.insert(name) {
        return Err(Fault::Duplicate(name.to_vec()));
    }
    User::new(name, defaults, commands).with_rules(rules, defaults, commands).map_err(|error| match error {
        SetUserError::Unmatched { position, .. } => Fault::Unmatched(position + 3),
        SetUserError::Rule { word, position, error } => {
            Fault::Rule { word: is_harmless(&word).then_some(word), position: position + 3, error }
        }
    })
}

/// Whether a rule cannot hold a password, whatever its fault: a password whose `>` was forgotten looks like
/// anything else.
fn is_harmless(word: &[u8]) -> bool {
    matches!(word.first(), Some(b'+' | b'-' | b'~' | b'%' | b'&' | b'(')) || word.starts_with(b"db=")
}

/// All faults in one line, as `ACL LOAD` answers them and the log shows them.
pub fn describe_errors(path: &str, errors: &[LineError]) -> Vec<u8> {
    let mut text = Vec::new();
    for LineError { line, fault } in errors {
        let said: Vec<u8> = match fault {
            Fault::NotAUser => {
                format!("{path}:{line} should start with user keyword followed by the username. ").into()
            }
            Fault::BadName(name) => {
                let front = format!("'{path}:{line}: username '");
                [front.as_bytes(), name, b"' contains invalid characters. "].concat()
            }
            Fault::Duplicate(name) => {
                let end = format!("' found on line {line}. ");
                [b"WARNING: Duplicate user '", &name[..], end.as_bytes()].concat()
            }
            Fault::Unmatched(position) => {
                format!("{path}:{line}: Unmatched parenthesis in selector definition (word {position}). ")
                    .into()
            }
            Fault::Rule { word: Some(word), error, .. } => {
                let front = format!("{path}:{line}: Error in applying operation '");
                [front.as_bytes(), word, format!("': {error}. ").as_bytes()].concat()
            }
            Fault::Rule { word: None, position, error } => {
                format!("{path}:{line}: {error} (word {position}). ").into()
            }
        };
        text.extend_from_slice(&said);
    }
    text.extend_from_slice(
        b"WARNING: ACL errors detected, no change to the previously active ACL rules was performed",
    );
    text
}

/// The file for these users.
pub fn render(users: &Users) -> Vec<u8> {
    users.iter().flat_map(|user| [user.line(), b"\n".to_vec()]).flatten().collect()
}
