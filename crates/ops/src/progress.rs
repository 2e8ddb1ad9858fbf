//! How far a step is: a bar on a terminal, now and then a line elsewhere. Both go to standard error.

use std::{
    io::IsTerminal,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Between two lines if there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// A step that is watched.
pub(crate) struct Progress {
    title: String,
    bar: Option<ProgressBar>,
    at: u64,
    total: u64,
    line_due: Instant,
}

impl Progress {
    /// A bar over `total` keys.
    pub(crate) fn of_keys(title: &'static str, total: u64) -> Self {
        Self::new(
            title,
            "{prefix:9} {wide_bar} {human_pos}/{human_len} keys, {per_sec}, {eta} left{msg}",
            total,
        )
    }

    /// A bar over bytes.
    pub(crate) fn of_bytes(title: &'static str) -> Self {
        Self::new(title, "{prefix:9} {wide_bar} {bytes}/{total_bytes}, {binary_bytes_per_sec}{msg}", 0)
    }

    /// A bar over thousandths of a move of slots.
    pub(crate) fn of_move(title: &str) -> Self {
        Self::new(title, "{prefix:9} {wide_bar} {percent}%{msg}", 1000)
    }

    fn new(title: &str, template: &str, total: u64) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style =
                ProgressStyle::with_template(template).expect("the templates are constants that parse");
            let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
            bar.with_style(style).with_prefix(title.to_owned())
        });
        Self { title: title.to_owned(), bar, at: 0, total, line_due: Instant::now() + LINE_INTERVAL }
    }

    pub(crate) fn advance(&mut self, by: u64) {
        self.set(self.at + by, self.total);
    }

    pub(crate) fn set(&mut self, at: u64, total: u64) {
        (self.at, self.total) = (at, total.max(at));
        match &self.bar {
            Some(bar) => {
                bar.set_length(self.total);
                bar.set_position(at);
            }
            None if Instant::now() >= self.line_due => {
                eprintln!("{}: {at} of {}", self.title, self.total);
                self.line_due = Instant::now() + LINE_INTERVAL;
            }
            None => {}
        }
    }

    /// More that is to be seen at the bar.
    pub(crate) fn say(&self, more: &str) {
        self.bar.iter().for_each(|bar| bar.set_message(format!(", {more}")));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.iter().for_each(ProgressBar::finish_and_clear);
    }
}
