//! The progress, for a user who watches: on standard error, if that is a terminal.

use std::{io::IsTerminal, sync::mpsc::channel, thread, time::Duration};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

const REDRAW: Duration = Duration::from_millis(100);

/// Does some work while a bar shows its progress: `position` returns the parts done and all of them.
pub(super) fn watched<R>(
    title: &'static str,
    is_quiet: bool,
    position: impl Fn() -> (u64, u64) + Sync,
    work: impl FnOnce() -> R,
) -> R {
    if is_quiet || !std::io::stderr().is_terminal() {
        return work();
    }
    let style = ProgressStyle::with_template("{prefix} {wide_bar} {percent}% {eta} left")
        .expect("the template is a constant that parses");
    let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
    let bar = bar.with_style(style).with_prefix(title);
    thread::scope(|scope| {
        let (working, done) = channel::<()>();
        let position = &position;
        scope.spawn(move || {
            // The wait ends when the other end is dropped, however the work has ended.
            while done.recv_timeout(REDRAW) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                let (at, total) = position();
                bar.set_length(total);
                bar.set_position(at.min(total));
            }
            bar.finish_and_clear();
        });
        let result = work();
        drop(working);
        result
    })
}
