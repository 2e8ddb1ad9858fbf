//! The errors for denied requests.

use dunlin_acl::{Context, Denial, Reason};
use dunlin_engine::command::{CommandError, Entry};

/// The error for a command that a user may not run.
pub(crate) fn denial_error(denial: Denial, entry: &Entry) -> CommandError {
    error_in(Context::TopLevel, denial, entry)
}

/// The error for a denied request; of redis-server 7.0, and of Valkey if it is Valkey's.
pub(crate) fn error_in(context: Context, denial: Denial, entry: &Entry) -> CommandError {
    let text = match (context, denial.reason) {
        (Context::Script, Reason::Command) => {
            "ERR The user executing the script can't run this command or subcommand"
        }
        (Context::Script, Reason::Key) => {
            "ERR The user executing the script can't access at least one of the keys mentioned in the command \
             arguments"
        }
        (Context::Script, Reason::Channel) => {
            "ERR The user executing the script can't publish to the channel mentioned in the command"
        }
        (Context::Script, Reason::Database) => "ERR ACL failure in script: No permissions to access database",
        (_, Reason::Key) => "NOPERM this user has no permissions to access one of the keys used as arguments",
        (_, Reason::Channel) => {
            "NOPERM this user has no permissions to access one of the channels used as arguments"
        }
        (_, Reason::Database) => "NOPERM No permissions to access database",
        (Context::Script, Reason::Authentication | Reason::Certificate) => {
            unreachable!("scripts do not authenticate")
        }
        (_, Reason::Command | Reason::Authentication | Reason::Certificate) => {
            let name = entry.full_name();
            return CommandError::owned(format!(
                "NOPERM this user has no permissions to run the '{name}' command"
            ));
        }
    };
    CommandError::text(text)
}
