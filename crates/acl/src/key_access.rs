//! [`KeyAccess`]: reading, writing, or both.

/// How a request uses a key, or how a pattern lets keys be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyAccess(u8);

impl KeyAccess {
    /// Neither data of the value is returned nor the value changed: `EXISTS`, `STRLEN`.
    pub const NONE: Self = Self(0);
    /// Data of the value is returned or copied.
    pub const READ: Self = Self(1);
    /// The value is changed, made or removed.
    pub const WRITE: Self = Self(2);
    /// Both.
    pub const BOTH: Self = Self(3);

    /// Returns both uses together.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` is part of it.
    #[inline]
    pub const fn covers(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The letters behind `%` in a rule; nothing for both, which `~` alone says.
    pub(crate) fn prefix(self) -> &'static str {
        match self.0 {
            1 => "%R",
            2 => "%W",
            _ => "",
        }
    }
}
