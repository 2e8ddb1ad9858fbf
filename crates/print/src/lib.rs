//! Standard output of commands, in place of `println!`, which panics when it cannot write.
//!
//! A reader that has seen enough, as `head -1`, ends the printing and not the work: half a migration is worse than an
//! unread line. Any other failure, as of a full disk, is reported once, and [`code`] makes it the command's failure.
//!
//! Colours are left out if standard output is not a terminal.

use std::{
    fmt, io,
    io::Write,
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

/// Whether a write has failed for another reason than a reader that went away.
static HAS_FAILED: AtomicBool = AtomicBool::new(false);

/// Prints a line, as `println!` does.
#[macro_export]
macro_rules! say {
    () => { $crate::line(::std::format_args!("")) };
    ($($words:tt)*) => { $crate::line(::std::format_args!($($words)*)) };
}

/// Prints a line. [`say!`] calls it.
pub fn line(words: fmt::Arguments<'_>) {
    note(writeln!(anstream::stdout(), "{words}"));
}

/// Prints a text that has its own line ends.
pub fn text(text: &str) {
    note(anstream::stdout().write_all(text.as_bytes()).and_then(|()| anstream::stdout().flush()));
}

fn note(written: io::Result<()>) {
    let Err(error) = written else { return };
    if error.kind() != io::ErrorKind::BrokenPipe && !HAS_FAILED.swap(true, Relaxed) {
        eprintln!("dunlin: standard output cannot be written: {error}");
    }
}

/// The exit code of a command that ends with `code`: a failure if its output was lost.
pub fn code(code: ExitCode) -> ExitCode {
    let written = anstream::stdout().flush();
    note(written);
    if HAS_FAILED.load(Relaxed) { ExitCode::FAILURE } else { code }
}
