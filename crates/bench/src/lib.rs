//! Load generator for servers of the Redis protocol.
//!
//! ```text
//! cli ─→ drive ─→ load ─→ worker ─→ connection ─→ skim      one run
//!          │        └ template, schedule, latency
//!          └→ report
//! compare ─→ load                                           servers side by side
//! ```
//!
//! The generator must cost less than the server it measures: requests are rendered ahead and only
//! their digits change, replies are counted and not built.

mod affinity;
mod cli;
#[cfg(target_os = "linux")]
mod compare;
mod connection;
mod drive;
#[cfg(target_os = "linux")]
mod figures;
pub mod latency;
pub mod load;
#[cfg(target_os = "linux")]
mod process;
mod random;
mod report;
mod schedule;
pub mod skim;
pub mod target;
pub mod template;
mod uri;
mod worker;
mod workload;

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs `dunlin bench`; `arguments` are those behind the subcommand. `compare` as the first of them
/// compares servers, everything else loads one.
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    let mut arguments = arguments.into_iter().peekable();
    if arguments.next_if(|first| first == "compare").is_some() {
        #[cfg(target_os = "linux")]
        return compare::compare(arguments);
        #[cfg(not(target_os = "linux"))]
        {
            eprintln!("dunlin bench compare: reads /proc and pins processes, which only Linux offers");
            return ExitCode::FAILURE;
        }
    }
    drive::bench(arguments)
}

/// Shows help or what is wrong with a command line; the code to end with.
fn refused(error: &clap::Error) -> ExitCode {
    // Where even that cannot be printed, the code still tells.
    let _ = error.print();
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}
