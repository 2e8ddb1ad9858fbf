//! Going on in the background (`daemonize`).
//!
//! ```text
//! command ─ fork ─▶ parent: waits for a byte ──────────────▶ ends with 0; without the byte, with the child's code
//!             └───▶ child: a session of its own ─ starts ─ byte ─ gives standard error up ─ serves
//! ```
//! Standard error stays the terminal's until the server has started, so that the operator who has typed the command
//! reads why it failed; standard input and output are `/dev/null` from the beginning.

use std::{
    fs::{File, OpenOptions},
    io::{self, PipeReader, PipeWriter, Read, Write},
    os::fd::{AsRawFd, RawFd},
    process,
};

use rustix::process::{Pid, WaitOptions, setsid, waitpid};

/// The child of a command that has not been told yet that the server has started.
#[derive(Debug)]
pub(crate) struct Daemon {
    parent: PipeWriter,
    null: File,
}

impl Daemon {
    /// Forks; the parent does not come back from this. The process must have one thread.
    pub(crate) fn detach() -> io::Result<Self> {
        expect_one_thread()?;
        let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
        let (reader, writer) = io::pipe()?;
        io::stdout().flush()?;
        // SAFETY: there is no other thread, so the child inherits no held lock and nothing half done.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                drop(reader);
                setsid()?;
                replace(libc::STDIN_FILENO, &null)?;
                replace(libc::STDOUT_FILENO, &null)?;
                Ok(Self { parent: writer, null })
            }
            child => {
                drop(writer);
                process::exit(await_start(reader, child))
            }
        }
    }

    /// The server has started: the command ends.
    pub(crate) fn started(mut self) -> io::Result<()> {
        // If the parent was killed meanwhile, there is no process to tell.
        let _ = self.parent.write_all(b"1");
        replace(libc::STDERR_FILENO, &self.null)
    }
}

/// The exit code of the parent.
fn await_start(mut news: PipeReader, child: libc::pid_t) -> i32 {
    if news.read(&mut [0]).is_ok_and(|read| read == 1) {
        return 0;
    }
    // The child has said why.
    let ended = waitpid(Pid::from_raw(child), WaitOptions::empty());
    let code = ended.ok().flatten().and_then(|(_, status)| status.exit_status());
    code.filter(|code| *code != 0).unwrap_or(1)
}

/// Refuses to fork a process in which other threads would be lost.
fn expect_one_thread() -> io::Result<()> {
    // If the system does not say, the caller is believed.
    match std::fs::read_dir("/proc/self/task").map(Iterator::count) {
        Ok(threads) if threads > 1 => Err(io::Error::other(format!("{threads} threads run already"))),
        _ => Ok(()),
    }
}

/// Makes a descriptor stand for another file.
fn replace(descriptor: RawFd, file: &File) -> io::Result<()> {
    // SAFETY: both are open, and no owner would close the standard descriptors.
    match unsafe { libc::dup2(file.as_raw_fd(), descriptor) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The harness of the tests has threads.
    #[cfg(target_os = "linux")]
    #[test]
    fn process_with_threads_is_not_forked() {
        let other = std::thread::spawn(|| expect_one_thread().unwrap_err().to_string());
        assert!(other.join().unwrap().contains("threads run already"));
        assert!(Daemon::detach().is_err() || expect_one_thread().is_ok());
    }
}
