//! Room for as many open files as `maxclients` needs.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Clients over HTTP at one time; more wait until one goes.
pub const HTTP_CLIENTS_MAX: u64 = 32;
/// Connections of consoles at a time: each is a socket of HTTP, and a pair to a client of a worker.
pub const CONSOLES_MAX: u64 = 16;
/// Files that the server itself needs: standard streams, listeners, pollers, the log and data files, and
/// clients over HTTP.
const RESERVED_FILES: u64 = 32 + HTTP_CLIENTS_MAX + 2 * CONSOLES_MAX;

/// The limit of open files leaves no room for even one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFilesError {
    limit: u64,
}

impl std::fmt::Display for OpenFilesError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            out,
            "the limit of open files is {}, which leaves no room for clients; raise it to more than {RESERVED_FILES} (ulimit -n)",
            self.limit
        )
    }
}

impl std::error::Error for OpenFilesError {}

/// Raises this process's limit of open files for `clients_max` clients, and returns how many
/// clients there is room for: `clients_max`, or fewer when the system does not allow it.
pub fn reserve_open_files(clients_max: usize) -> Result<usize, OpenFilesError> {
    let needed = (clients_max as u64).saturating_add(RESERVED_FILES);
    let before = getrlimit(Resource::Nofile);
    let current = before.current.unwrap_or(u64::MAX);
    if current >= needed {
        return Ok(clients_max);
    }
    // A privileged process may raise both; others only up to their own maximum.
    let raised = Rlimit { current: Some(needed), maximum: before.maximum.map(|maximum| maximum.max(needed)) };
    let attainable = before.maximum.map_or(needed, |maximum| maximum.min(needed));
    let granted = if setrlimit(Resource::Nofile, raised).is_ok() {
        needed
    } else if setrlimit(Resource::Nofile, Rlimit { current: Some(attainable), ..before }).is_ok() {
        attainable
    } else {
        current
    };
    room_for_clients(granted, clients_max).ok_or(OpenFilesError { limit: granted })
}

fn room_for_clients(files: u64, clients_max: usize) -> Option<usize> {
    let room = usize::try_from(files.saturating_sub(RESERVED_FILES)).unwrap_or(usize::MAX).min(clients_max);
    (room > 0).then_some(room)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_what_the_reserve_leaves() {
        for (files, clients_max, expected) in [
            (10_096, 10_000, Some(10_000)),
            (10_095, 10_000, Some(9_999)),
            (1 << 40, 10, Some(10)),
            (97, 10_000, Some(1)),
            (96, 10_000, None),
            (0, 1, None),
        ] {
            assert_eq!(room_for_clients(files, clients_max), expected, "{files} files");
        }
    }

    #[test]
    fn open_files_limit_that_suffices_is_left_alone() {
        let before = getrlimit(Resource::Nofile);
        assert_eq!(reserve_open_files(1), Ok(1));
        assert_eq!(getrlimit(Resource::Nofile), before);
    }
}
