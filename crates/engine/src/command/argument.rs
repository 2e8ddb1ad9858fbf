//! The shape of a command's arguments, as `COMMAND DOCS` reports it to clients and tools.

/// An argument, or a group of them.
#[derive(Debug, Clone, Copy)]
pub struct Argument {
    /// Its name.
    pub name: &'static str,
    /// Its kind.
    pub kind: ArgumentKind,
    /// The literal word in front of it.
    pub token: Option<&'static str>,
    /// Whether it may be left out.
    pub optional: bool,
    /// Whether it may be repeated.
    pub multiple: bool,
    /// Whether its token is repeated with it.
    pub multiple_token: bool,
    /// For keys: which of the command's key specifications finds it.
    pub key_spec_index: u8,
    /// The version that introduced it, if it is younger than the command.
    pub since: Option<&'static str>,
    /// The alternatives, or the members of a block.
    pub children: &'static [Argument],
}

/// The kind of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of COMMAND DOCS")]
pub enum ArgumentKind {
    Key,
    String,
    Integer,
    Double,
    Pattern,
    UnixTime,
    PureToken,
    OneOf,
    Block,
}

impl ArgumentKind {
    /// The name in `COMMAND DOCS`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Double => "double",
            Self::Pattern => "pattern",
            Self::UnixTime => "unix-time",
            Self::PureToken => "pure-token",
            Self::OneOf => "oneof",
            Self::Block => "block",
        }
    }
}

impl Argument {
    const fn new(name: &'static str, kind: ArgumentKind) -> Self {
        Self {
            name,
            kind,
            token: None,
            optional: false,
            multiple: false,
            multiple_token: false,
            key_spec_index: 0,
            since: None,
            children: &[],
        }
    }

    /// A key, found by the command's first key specification.
    pub const fn key(name: &'static str) -> Self {
        Self::new(name, ArgumentKind::Key)
    }

    /// A string.
    pub const fn string(name: &'static str) -> Self {
        Self::new(name, ArgumentKind::String)
    }

    /// An integer.
    pub const fn integer(name: &'static str) -> Self {
        Self::new(name, ArgumentKind::Integer)
    }

    /// A floating-point number.
    pub const fn double(name: &'static str) -> Self {
        Self::new(name, ArgumentKind::Double)
    }

    /// A glob pattern.
    pub const fn pattern(name: &'static str) -> Self {
        Self::new(name, ArgumentKind::Pattern)
    }

    /// A point in time.
    pub const fn unix_time(name: &'static str) -> Self {
        Self::new(name, ArgumentKind::UnixTime)
    }

    /// A word that stands for itself.
    pub const fn word(name: &'static str, token: &'static str) -> Self {
        Self::new(name, ArgumentKind::PureToken).after(token)
    }

    /// A choice of several arguments.
    pub const fn one_of(name: &'static str, children: &'static [Argument]) -> Self {
        let mut argument = Self::new(name, ArgumentKind::OneOf);
        argument.children = children;
        argument
    }

    /// Several that go together.
    pub const fn block(name: &'static str, children: &'static [Argument]) -> Self {
        let mut argument = Self::new(name, ArgumentKind::Block);
        argument.children = children;
        argument
    }

    /// Puts it behind a literal word.
    pub const fn after(mut self, token: &'static str) -> Self {
        self.token = Some(token);
        self
    }

    /// Makes it optional.
    pub const fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    /// Makes it repeatable.
    pub const fn multiple(mut self) -> Self {
        self.multiple = true;
        self
    }

    /// Makes it repeatable with its token.
    pub const fn multiple_token(mut self) -> Self {
        self.multiple = true;
        self.multiple_token = true;
        self
    }

    /// Notes that another key specification finds it.
    pub const fn key_spec(mut self, index: u8) -> Self {
        self.key_spec_index = index;
        self
    }

    /// Notes the version that introduced it.
    pub const fn since(mut self, version: &'static str) -> Self {
        self.since = Some(version);
        self
    }
}
