//! Runs the tests that the command line asks for and prints their results.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::cli::{BenchArguments, Test};
use crate::load::{Load, LoadError, Outcome, Plan, Progress};
use crate::report::{Layout, Report};
use crate::target::{Client, Target};

/// How often the progress bar is drawn.
const REDRAW: Duration = Duration::from_millis(100);
/// Descriptors needed beside those of the connections.
const SPARE_DESCRIPTORS: u64 = 64;

/// Runs `dunlin bench` with its arguments (without the program's name and subcommand).
pub fn bench(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments = match BenchArguments::read(arguments) {
        Ok(arguments) => arguments,
        Err(error) => return crate::refused(&error),
    };
    match run(&arguments, &mut io::stdout().lock()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("dunlin bench: the server answered with errors (--allow-errors makes that a success)");
            ExitCode::FAILURE
        }
        Err(line) => {
            eprintln!("dunlin bench: {line}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the tests. Returns whether they count as a success, or the line that says why they ended early.
fn run(arguments: &BenchArguments, out: &mut dyn Write) -> Result<bool, String> {
    if arguments.cluster {
        return Err("--cluster: not yet: cluster support comes with the cluster".into());
    }
    let target = arguments.target()?;
    raise_descriptor_limit(u64::from(arguments.clients))?;
    if arguments.idle {
        return idle(&target, arguments.clients as usize, out);
    }
    let mut tests = arguments.tests(&mut io::stdin().lock())?;
    let seed = match arguments.seed {
        Some(seed) => seed,
        None => getrandom::u64().map_err(|error| format!("no random seed: {error}"))?,
    };
    tests.iter_mut().for_each(|test| test.plan.seed = seed);

    let json_on_stdout = arguments.json.as_deref().is_some_and(|path| path.as_os_str() == "-");
    let layout = match (arguments.csv, arguments.quiet) {
        (true, _) => Layout::Csv,
        (_, true) => Layout::Quiet,
        _ => Layout::Full,
    };
    let unwritable = |error: io::Error| format!("cannot write the results: {error}");
    if layout == Layout::Csv && !json_on_stdout {
        out.write_all(Report::csv_header().as_bytes()).map_err(unwritable)?;
    }
    let mut client = target.client().map_err(|error| error.to_string())?;
    let mut reports = Vec::new();
    loop {
        for test in &tests {
            let report = measure(arguments, &target, &mut client, test).map_err(|error| error.to_string())?;
            if !json_on_stdout {
                let text = report.text(layout, usize::from(arguments.precision));
                out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(unwritable)?;
            }
            reports.push(report);
        }
        if !arguments.endless {
            break;
        }
        // An endless run has no end at which JSON could be complete: each pass is written whole.
        write_json(arguments, &reports, json_on_stdout, out)?;
        reports.clear();
    }
    write_json(arguments, &reports, json_on_stdout, out)?;
    Ok(arguments.allow_errors || reports.iter().all(|report| report.errors == 0))
}

fn write_json(
    arguments: &BenchArguments,
    reports: &[Report],
    on_stdout: bool,
    out: &mut dyn Write,
) -> Result<(), String> {
    let Some(path) = &arguments.json else { return Ok(()) };
    let mut text =
        serde_json::to_string_pretty(reports).map_err(|error| format!("cannot write JSON: {error}"))?;
    text.push('\n');
    let written = if on_stdout { out.write_all(text.as_bytes()) } else { std::fs::write(path, text) };
    written.map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// A test: the warm-up, then the run between two looks at the server's CPU time.
fn measure(
    arguments: &BenchArguments,
    target: &Target,
    client: &mut Client,
    test: &Test,
) -> Result<Report, LoadError> {
    if let Some(warmup) = arguments.warmup {
        let plan = Plan { requests: None, duration: Some(warmup), ..test.plan.clone() };
        Load::connect(target, &plan)?.run(&Progress::default(), None)?;
    }
    let load = Load::connect(target, &test.plan)?;
    let cpu_before = client.cpu_seconds()?;
    let outcome = watched(arguments, load, test)?;
    let cpu_after = client.cpu_seconds()?;
    let cpu_seconds = cpu_before.zip(cpu_after).map(|(before, after)| after - before);
    Ok(Report::new(test, &outcome, cpu_seconds))
}

/// Runs the load while a progress bar and error texts are shown.
fn watched(arguments: &BenchArguments, load: Load<'_>, test: &Test) -> Result<Outcome, LoadError> {
    let progress = Progress::default();
    let bar = progress_bar(arguments, test);
    let (texts_in, texts_out) = mpsc::channel();
    let texts_in = arguments.show_errors.then_some(texts_in);
    let start = Instant::now();
    thread::scope(|scope| {
        let running = scope.spawn(|| load.run(&progress, texts_in));
        while !running.is_finished() {
            // Returns at once when no sender is left: then only the clock paces the redrawing.
            match texts_out.recv_timeout(REDRAW) {
                Ok(text) => bar.suspend(|| eprintln!("error reply: {text}")),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    thread::park_timeout(if running.is_finished() { Duration::ZERO } else { REDRAW / 10 });
                }
            }
            let replies = progress.replies();
            bar.set_position(if test.plan.requests.is_some() {
                replies
            } else {
                start.elapsed().as_millis() as u64
            });
            bar.set_message(format!("{:.0} requests/s", replies as f64 / start.elapsed().as_secs_f64()));
        }
        bar.finish_and_clear();
        running.join().expect("the load thread panicked")
    })
}

fn progress_bar(arguments: &BenchArguments, test: &Test) -> ProgressBar {
    let hidden = arguments.csv || !io::stderr().is_terminal();
    let target = if hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let length = match (test.plan.requests, test.plan.duration) {
        (Some(requests), _) => requests,
        (None, duration) => duration.unwrap_or_default().as_millis() as u64,
    };
    let style = ProgressStyle::with_template("{prefix} {wide_bar} {percent}% {msg}")
        .expect("the template is a constant that parses");
    ProgressBar::with_draw_target(Some(length), target).with_style(style).with_prefix(test.title.clone())
}

/// Opens connections and waits until the server closes one.
fn idle(target: &Target, clients: usize, out: &mut dyn Write) -> Result<bool, String> {
    let connections: Result<Vec<_>, _> = (0..clients).map(|_| target.client()).collect();
    let mut connections = connections.map_err(|error| error.to_string())?;
    writeln!(out, "{clients} idle connections open; end with Ctrl-C").map_err(|error| error.to_string())?;
    loop {
        thread::sleep(Duration::from_secs(1));
        for connection in &mut connections {
            if connection.is_closed() {
                return Err("the server closed an idle connection".into());
            }
        }
    }
}

fn raise_descriptor_limit(clients: u64) -> Result<(), String> {
    let wanted = clients + SPARE_DESCRIPTORS;
    let given = rlimit::increase_nofile_limit(wanted)
        .map_err(|error| format!("cannot raise the limit of open files: {error}"))?;
    if given < wanted {
        return Err(format!(
            "{clients} connections need {wanted} open files, the limit is {given}: raise it with ulimit -n"
        ));
    }
    Ok(())
}
