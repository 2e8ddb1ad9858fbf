//! Access control lists as Redis 7 and Valkey 9.1 have them: users, rules, decisions.
//!
//! ```text
//! "on >secret ~app:* %R~shared:* +@read -keys (~log:* +append)"
//!     │ rule      parsed against the table of commands: no word is applied unless all of them are good
//!     ▼
//! User ─┬─ on, passwords (SHA-256), payload flag
//!       ├─ root Selector ─┬─ commands   a bit for each command and subcommand
//!       │                 ├─ keys       compiled patterns, each with R, W or both
//!       │                 ├─ channels   compiled patterns
//!       │                 └─ databases  sorted numbers
//!       └─ further Selectors, in parentheses: one that allows all of a request is enough
//! ```
//!
//! A [`User`] is immutable: a change makes a new one, so a decision never sees half of a change. [`Users`] is the list by
//! name, [`file`] the format of ACL files, [`AclLog`] the entries that `ACL LOG` shows.
//!
//! The crate knows no sockets, files, clocks, engines or clients. Commands come as numbers ([`Commands`]), the parts of
//! a request through [`Request`].

mod command_set;
mod commands;
mod decision;
pub mod file;
mod key_access;
mod log;
mod password;
mod rule;
mod selector;
#[cfg(test)]
mod tests;
mod user;
mod users;

pub use commands::{CommandRow, Commands};
pub use decision::{Denial, Reason, Request, Touched};
pub use key_access::KeyAccess;
pub use log::{AclLog, Context, Denied, LogEntry};
pub use password::{GENPASS_BITS_MAX, PasswordHash, random_password};
pub use rule::{RuleError, SetUserError, is_user_name};
pub use selector::{Databases, Selector};
pub use user::{DEFAULT_USER, User, UserDefaults};
pub use users::Users;
