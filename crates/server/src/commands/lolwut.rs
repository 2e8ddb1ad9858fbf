//! LOLWUT: a flock of dunlins over the mudflats, and the version.
//!
//! A murmuration is drawn as dots of braille, 2 × 4 to a character. Birds stand in a band around a curve
//! of two sines, densest in its middle; each drawing is another flock.

use std::f64::consts::TAU;

use dunlin_engine::{
    Worker,
    command::{Args, Argument, Arity, Command, CommandResult, Flags, Group, Run},
};
use dunlin_resp::ReplyBuffer;

use crate::executor::{Handler, ServerContext};

pub(super) const COMMANDS: &[Command] = &[LOLWUT];

const LOLWUT: Command = Command {
    name: "lolwut",
    summary: "Draws a flock and tells the version.",
    since: "5.0.0",
    group: Group::Server,
    complexity: "O(columns × rows)",
    arity: Arity::AtLeast(1),
    run: Run::Host(&Handler(lolwut)),
    flags: Flags::READ_ONLY.and(Flags::FAST),
    args: &[Argument::integer("version").after("VERSION").optional()],
    ..Command::DEFAULT
};

/// The drawing of `LOLWUT VERSION 1 [columns] [rows]`, and of LOLWUT without arguments.
const FLOCK: i64 = 1;
const COLUMNS: i64 = 66;
const COLUMNS_MAX: i64 = 1000;
const ROWS: i64 = 10;
const ROWS_MAX: i64 = 100;

fn lolwut(
    context: &mut ServerContext<'_, '_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let version = if args.token_with("VERSION", 1) { args.integer() } else { FLOCK };
    let mut size = |default| if args.is_empty() { default } else { args.integer() };
    let (columns, rows) = match version {
        FLOCK => (size(COLUMNS), size(ROWS)),
        _ => (0, 0),
    };
    args.check()?;
    let mut text = String::new();
    if version == FLOCK {
        let (columns, rows) = (columns.clamp(1, COLUMNS_MAX), rows.clamp(1, ROWS_MAX));
        text = flock(&mut context.executor.worker, columns as usize, rows as usize);
        text += "\nDunlins over the flats. ";
    }
    text += &format!("Dunlin ver. {}\n", env!("CARGO_PKG_VERSION"));
    reply.verbatim(b"txt", text.as_bytes());
    Ok(())
}

/// A number from 0 up to 1.
fn unit(worker: &mut Worker) -> f64 {
    (worker.random() >> 11) as f64 / (1u64 << 53) as f64
}

fn flock(worker: &mut Worker, columns: usize, rows: usize) -> String {
    let (width, height) = (columns * 2, rows * 4);
    let mut dots = vec![false; width * height];
    let (phase, sweep, waves) = (unit(worker) * TAU, unit(worker) * TAU, 0.6 + unit(worker));
    for _ in 0..columns * rows * 2 {
        let along = unit(worker);
        let centre =
            0.5 + 0.22 * (along * waves * TAU + phase).sin() + 0.1 * (along * 3.0 * TAU + sweep).sin();
        // The sum of three gathers in the middle; the band is widest half-way along.
        let spread = (unit(worker) + unit(worker) + unit(worker)) / 1.5 - 1.0;
        let across = centre + spread * 0.35 * (along * TAU / 2.0).sin();
        let (x, y) = ((along * width as f64) as usize, across * height as f64);
        if (0.0..height as f64).contains(&y) && x < width {
            dots[y as usize * width + x] = true;
        }
    }
    let mut text = String::with_capacity((columns * 3 + 1) * rows);
    for row in 0..rows {
        let line: String = (0..columns).map(|column| braille(&dots, width, column * 2, row * 4)).collect();
        text += line.trim_end_matches(BLANK);
        text.push('\n');
    }
    text
}

/// The pattern without a dot.
const BLANK: char = '\u{2800}';

/// The character of eight dots; Unicode numbers them down the columns, the bottom row last.
fn braille(dots: &[bool], width: usize, x: usize, y: usize) -> char {
    const BITS: [[u32; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];
    let mut code = BLANK as u32;
    for (row, bits) in BITS.iter().enumerate() {
        for (column, bit) in bits.iter().enumerate() {
            if dots[(y + row) * width + x + column] {
                code |= bit;
            }
        }
    }
    char::from_u32(code).unwrap_or(BLANK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lolwut_draws_another_flock_of_the_requested_size_each_time() {
        let mut worker = Worker::new(0, 7);
        let one = flock(&mut worker, 40, 8);
        assert_eq!(one.lines().count(), 8);
        assert!(one.lines().all(|line| line.chars().count() <= 40));
        assert!(one.chars().filter(|dots| !dots.is_whitespace() && *dots != BLANK).count() > 40);
        assert_ne!(one, flock(&mut worker, 40, 8));
    }
}
