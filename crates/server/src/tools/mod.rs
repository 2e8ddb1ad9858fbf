//! Commands that work on files without a running server.

pub mod check;
pub mod convert;
