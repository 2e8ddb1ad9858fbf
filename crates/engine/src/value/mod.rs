//! Values as commands see them; how they are stored stays behind these types.

mod extended;
mod string;

pub use extended::ExtendedFloat;
pub(crate) use string::{EMBEDDED_BYTES_MAX, INLINE_BYTES_MAX};
pub use string::{NewString, Payload, StringRef, parse_float};

/// The types of values, with the names that `TYPE` answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueType {
    /// A string.
    String,
}

impl ValueType {
    /// The name that `TYPE` answers and `SCAN … TYPE` takes.
    pub fn name(self) -> &'static str {
        match self {
            Self::String => "string",
        }
    }
}
