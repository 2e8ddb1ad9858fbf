//! Directives of the group Process: process, files, threads.

use super::{INT_MAX, as_is};
use crate::config::{
    directive::{Change, Directive, Group, Kind, choice, field, number},
    values::Supervised,
};

pub(super) static ROWS: &[Directive] = &[
    Directive {
        name: "daemonize",
        aliases: &[],
        group: Group::Process,
        kind: Kind::Flag(field!(daemonize)),
        default: "no",
        change: Change::AtStart,
        doc: "Leave the terminal and go on in the background; the command returns once the server listens, or has failed. Without effect if a supervisor starts the server (`supervised`). Without `logfile` the log is lost.",
        settle: as_is,
    },
    Directive {
        name: "dir",
        aliases: &[],
        group: Group::Process,
        kind: Kind::Path(field!(dir)),
        default: ".",
        change: Change::Protected,
        doc: "Working directory: other relative paths start here, whichever line comes first.",
        settle: as_is,
    },
    Directive {
        name: "hz",
        aliases: &[],
        group: Group::Process,
        kind: Kind::Integer { field: number!(hz), min: 0, max: INT_MAX },
        default: "10",
        change: Change::Anytime,
        doc: "Background rounds a second; values outside 1 to 500 become the nearer of the two.",
        settle: |config| {
            config.hz = config.hz.clamp(1, 500);
            Ok(())
        },
    },
    Directive {
        name: "pidfile",
        aliases: &[],
        group: Group::Process,
        kind: Kind::Path(field!(pidfile)),
        default: "\"\"",
        change: Change::AtStart,
        doc: "File that holds the process id while the server runs; empty for none. If the file cannot be written, a line of the log says so.",
        settle: as_is,
    },
    Directive {
        name: "shutdown-on-sigint",
        aliases: &[],
        group: Group::Process,
        kind: Kind::Shutdown(field!(shutdown_on_sigint)),
        default: "default",
        change: Change::Anytime,
        doc: "Effect of SIGINT, as options of SHUTDOWN. While the server is being stopped, SIGINT ends the process at once; if a signal could not save the data set, SIGINT ends the server without.",
        settle: as_is,
    },
    Directive {
        name: "shutdown-on-sigterm",
        aliases: &[],
        group: Group::Process,
        kind: Kind::Shutdown(field!(shutdown_on_sigterm)),
        default: "default",
        change: Change::Anytime,
        doc: "Effect of SIGTERM, as options of SHUTDOWN. If the data set cannot be saved, the server goes on, and the next SIGTERM tries again.",
        settle: as_is,
    },
    Directive {
        name: "shutdown-timeout",
        aliases: &[],
        group: Group::Process,
        kind: Kind::Integer { field: number!(shutdown_timeout), min: 0, max: INT_MAX },
        default: "10",
        change: Change::Anytime,
        doc: "Seconds that a shutdown waits for clients to take the replies that are being sent to them, and for replicas to acknowledge all that was written; 0 does not wait.",
        settle: as_is,
    },
    Directive {
        name: "supervised",
        aliases: &[],
        group: Group::Process,
        kind: choice!(supervised: Supervised),
        default: "no",
        change: Change::AtStart,
        doc: "Tell systemd when commands are served and when the server ends (`Type=notify` in the unit), where NOTIFY_SOCKET is set: `systemd` and `auto`. The server stays in the foreground then. upstart is refused.",
        settle: |config| match config.supervised {
            Supervised::Upstart => Err(
                "upstart is not told of anything: use 'no', or 'systemd' with Type=notify in a systemd unit",
            ),
            _ => Ok(()),
        },
    },
    Directive {
        name: "threads",
        aliases: &[],
        group: Group::Process,
        kind: Kind::Integer { field: number!(threads), min: 0, max: 256 },
        default: "0",
        change: Change::AtStart,
        doc: "Worker threads, each of which reads, executes and replies; 0 is one per core.",
        settle: as_is,
    },
];
