//! The first line of a script: `#!lua name=… flags=…`.

use std::fmt;

/// The flags of a script; a small set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScriptFlags(u8);

impl ScriptFlags {
    /// The script calls no command that may change the data set.
    pub const NO_WRITES: Self = Self(1 << 0);
    /// The script may run while memory is short.
    pub const ALLOW_OOM: Self = Self(1 << 1);
    /// The script may run on a replica whose data may be stale.
    pub const ALLOW_STALE: Self = Self(1 << 2);
    /// The script does not run in a cluster.
    pub const NO_CLUSTER: Self = Self(1 << 3);
    /// Its keys may be of several slots.
    pub const ALLOW_CROSS_SLOT_KEYS: Self = Self(1 << 4);
    /// The script has no shebang: the flags say nothing.
    pub const COMPATIBLE: Self = Self(1 << 5);

    const NAMES: [(Self, &'static str); 5] = [
        (Self::NO_WRITES, "no-writes"),
        (Self::ALLOW_OOM, "allow-oom"),
        (Self::ALLOW_STALE, "allow-stale"),
        (Self::NO_CLUSTER, "no-cluster"),
        (Self::ALLOW_CROSS_SLOT_KEYS, "allow-cross-slot-keys"),
    ];

    /// The flag of that name.
    pub fn named(name: &[u8]) -> Option<Self> {
        Self::NAMES.iter().find(|(_, known)| known.as_bytes() == name).map(|(flag, _)| *flag)
    }

    /// The names of the flags in the set.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().filter(move |(flag, _)| self.has(*flag)).map(|(_, name)| name)
    }

    /// Both sets together.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` is in the set.
    #[inline]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A script's text, its first line understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shebang<'a> {
    /// Its flags.
    pub flags: ScriptFlags,
    /// The text to be compiled.
    pub text: &'a [u8],
}

/// The fault of a first line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShebangError {
    /// The line does not end.
    Unfinished,
    /// Another language than Lua.
    Engine(Vec<u8>),
    /// A flag that there is not.
    Flag(Vec<u8>),
    /// A word that is not an option.
    Option(Vec<u8>),
}

impl fmt::Display for ShebangError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted = String::from_utf8_lossy;
        match self {
            Self::Unfinished => out.write_str("Invalid script shebang"),
            Self::Engine(engine) => {
                write!(out, "Unexpected engine in script shebang: {}", quoted(engine))
            }
            Self::Flag(flag) => write!(out, "Unexpected flag in script shebang: {}", quoted(flag)),
            Self::Option(option) => {
                write!(out, "Unknown lua shebang option: {}", quoted(option))
            }
        }
    }
}

impl std::error::Error for ShebangError {}

impl<'a> Shebang<'a> {
    /// Takes the first line off a script, if it is a shebang.
    pub fn parse(script: &'a [u8]) -> Result<Self, ShebangError> {
        if !script.starts_with(b"#!") {
            return Ok(Self { flags: ScriptFlags::COMPATIBLE, text: script });
        }
        let end = script.iter().position(|byte| *byte == b'\n').ok_or(ShebangError::Unfinished)?;
        let (line, text) = script.split_at(end);
        let mut words = words(line);
        let engine = words.next().unwrap_or_default();
        if engine != b"#!lua" {
            return Err(ShebangError::Engine(engine.to_vec()));
        }
        let mut flags = ScriptFlags::default();
        for word in words {
            let Some(names) = word.strip_prefix(b"flags=") else {
                return Err(ShebangError::Option(word.to_vec()));
            };
            for name in names.split(|byte| *byte == b',') {
                // Redis takes an empty list for none, and so an empty name.
                if name.is_empty() && names.is_empty() {
                    continue;
                }
                flags = flags.and(ScriptFlags::named(name).ok_or_else(|| ShebangError::Flag(name.to_vec()))?);
            }
        }
        Ok(Self { flags, text })
    }
}

/// The words of a line.
fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}
