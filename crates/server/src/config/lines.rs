//! Lines of a configuration, with the place where each stands.

use std::{fmt, path::PathBuf};

/// The origin of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A line of a file, counted from 1.
    File(PathBuf, usize),
    /// A line of standard input, counted from 1.
    StandardInput(usize),
    /// The command line.
    Flag,
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, line) => write!(out, "{}:{line}", path.display()),
            Self::StandardInput(line) => write!(out, "standard input:{line}"),
            Self::Flag => out.write_str("command line"),
        }
    }
}

/// A line that has no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IgnoredLine {
    /// The line's origin.
    pub origin: Origin,
    /// Its directive.
    pub name: String,
    /// Why it has no effect.
    pub reason: &'static str,
}

impl fmt::Display for IgnoredLine {
    /// For the log.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {} is ignored: {}", self.origin, self.name, self.reason)
    }
}

/// A line that renames a command, checked when the server starts.
#[derive(Debug, Clone, PartialEq)]
pub struct RenameLine {
    /// The line's origin.
    pub origin: Origin,
    /// The command.
    pub name: Vec<u8>,
    /// Its new name; empty for none.
    pub other: Vec<u8>,
}

/// A line that defines a user: its words are rules, checked when the server starts.
#[derive(Clone, PartialEq)]
pub struct UserLine {
    /// The line's origin.
    pub origin: Origin,
    /// The user's name.
    pub name: Vec<u8>,
    /// The rules.
    pub rules: Vec<Vec<u8>>,
}

impl fmt::Debug for UserLine {
    /// Shows no rules: there may be passwords among them.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: user {}", self.origin, self.name.escape_ascii())
    }
}
