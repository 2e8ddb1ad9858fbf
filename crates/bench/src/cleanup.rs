//! Resources that must not outlive this program: the servers that it starts, and folders of scratch
//! files.
//!
//! ```text
//! the run ends, or fails       Drop of Process and ScratchFolder
//! SIGINT, SIGTERM, SIGHUP      the thread of `watch`: kills, removes, then ends by the same signal
//! SIGKILL                      servers: the kernel (`Process::start`); folders stay in /tmp
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// Everything that a signal has to clear away.
struct Remains {
    children: Vec<Weak<Mutex<Child>>>,
    folders: Vec<PathBuf>,
}

static REMAINS: Mutex<Remains> = Mutex::new(Remains { children: Vec::new(), folders: Vec::new() });

/// A lock that a panic elsewhere does not take away: there is still something to clear.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a child, to be killed when a signal ends this program. Forgotten with its last owner.
///
/// The lock is held until the child is known: a signal finds every child that runs.
pub fn spawn(command: &mut Command) -> io::Result<Arc<Mutex<Child>>> {
    watch();
    let mut remains = locked(&REMAINS);
    let child = Arc::new(Mutex::new(command.spawn()?));
    remains.children.retain(|child| child.strong_count() > 0);
    remains.children.push(Arc::downgrade(&child));
    Ok(child)
}

/// Creates a folder, to be removed when a signal ends this program.
pub fn create_folder(folder: &Path) -> io::Result<()> {
    watch();
    let mut remains = locked(&REMAINS);
    fs::create_dir_all(folder)?;
    remains.folders.push(folder.to_path_buf());
    Ok(())
}

/// Removes a folder now.
pub fn remove(folder: &Path) {
    locked(&REMAINS).folders.retain(|other| other != folder);
    // The folder holds nothing of value, and nothing can be done about a failure here.
    let _ = fs::remove_dir_all(folder);
}

/// Starts the thread that waits for signals, once.
fn watch() {
    static WATCHING: Once = Once::new();
    WATCHING.call_once(|| {
        // Without it, signals end this program as they always do, and its servers with it.
        if let Ok(mut signals) = Signals::new([SIGINT, SIGTERM, SIGHUP]) {
            thread::spawn(move || {
                for signal in signals.forever() {
                    clear();
                    let _ = emulate_default_handler(signal);
                }
            });
        }
    });
}

/// Servers first, so that none writes into a folder while it is removed. The lock is kept: nothing is
/// started after this.
fn clear() {
    let remains = locked(&REMAINS);
    for child in remains.children.iter().filter_map(Weak::upgrade) {
        let mut child = locked(&child);
        let _ = child.kill();
        let _ = child.wait();
    }
    for folder in &remains.folders {
        let _ = fs::remove_dir_all(folder);
    }
    std::mem::forget(remains);
}
