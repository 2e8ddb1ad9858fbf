//! Commands for files of a data set, which need no running server.

pub mod check;
pub mod convert;
