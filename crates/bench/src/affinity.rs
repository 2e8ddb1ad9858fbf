//! Which processors a thread runs on.

use std::io;

/// Pins the calling thread, and threads that it starts from now on, to one processor.
#[cfg(target_os = "linux")]
pub fn pin(processor: Option<usize>) -> io::Result<()> {
    processor.map_or(Ok(()), |processor| restrict(&[processor]))
}

/// Restricts the calling thread, and threads that it starts from now on, to some processors.
#[cfg(target_os = "linux")]
pub fn restrict(processors: &[usize]) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    processors.iter().for_each(|&processor| set.set(processor));
    rustix::thread::sched_setaffinity(None, &set).map_err(io::Error::from)
}

/// Elsewhere threads cannot be pinned.
#[cfg(not(target_os = "linux"))]
pub fn pin(processor: Option<usize>) -> io::Result<()> {
    match processor {
        None => Ok(()),
        Some(_) => Err(io::Error::new(io::ErrorKind::Unsupported, "threads can be pinned on Linux only")),
    }
}

/// The processors that this process may use.
#[cfg(all(target_os = "linux", feature = "compare"))]
pub fn allowed() -> io::Result<Vec<usize>> {
    let set = rustix::thread::sched_getaffinity(None)?;
    Ok((0..rustix::thread::CpuSet::MAX_CPU).filter(|&processor| set.is_set(processor)).collect())
}
