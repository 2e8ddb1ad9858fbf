//! `dunlin top`: a running server in the terminal, live.
//!
//! ```text
//! thread: questions ─▶ look ─▶ channel ─▶ view (two looks: rates, percentiles) ─▶ screen, or text
//! ```

mod look;
#[cfg(feature = "screen")]
mod screen;
mod table;
mod text;
mod view;
#[cfg(feature = "screen")]
mod watch;

use std::time::Duration;

use clap::Parser;
use dunlin_bench::{server_flags::ServerFlags, target::Client};

use self::{look::Look, table::Page, view::View};

const EXAMPLES: &str = "\
Examples:
  dunlin top                          the server on port 6379
  dunlin top -h db1 -a PASSWORD --user operator --tls
  dunlin top --once | grep '^get'     figures for a script";

/// Shows a running server: its load, commands, keys, clients, replicas and events.
///
/// The user needs the commands INFO, RECORDER, LATENCY HISTOGRAM, CLIENT LIST and HOTKEYS; without one of them the rest is shown.
#[derive(Debug, Parser)]
#[command(name = "top", bin_name = "dunlin top", version, disable_help_flag = true, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    server: ServerFlags,
    /// Seconds between two looks at the server, 1 to 60
    #[arg(short = 'i', long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=60))]
    interval: u64,
    /// The page that is shown first
    #[arg(long, value_enum, default_value_t = Page::Commands)]
    page: Page,
    /// Print all pages as text, once, after one interval
    #[arg(long)]
    once: bool,
    /// Show this help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let interval = Duration::from_secs(arguments.interval);
    if !arguments.once {
        return live(arguments, interval);
    }
    let mut client = crate::server::connect(&arguments.server)?;
    let mut view = View::default();
    view.add(look(&mut client)?);
    std::thread::sleep(interval);
    view.add(look(&mut client)?);
    dunlin_print::text(&text::write(&view));
    Ok(())
}

/// Asks for all pages. A server that asks for a password answers nothing at all.
fn look(client: &mut Client) -> Result<Look, String> {
    let look = Look::take(client, &Page::ALL).map_err(|error| error.to_string())?;
    check(look)
}

fn check(look: Look) -> Result<Look, String> {
    match look.refusal("INFO") {
        Some(reason) if look.is_locked_out() => Err(reason.to_owned()),
        _ => Ok(look),
    }
}

#[cfg(not(feature = "screen"))]
fn live(_: &Arguments, _: Duration) -> Result<(), String> {
    Err("this binary was built without the screen of `dunlin top`: `dunlin top --once` prints its figures; \
         in Dunlin's sources, `make install FULL=1` builds one with everything"
        .to_owned())
}

#[cfg(feature = "screen")]
fn live(arguments: &Arguments, interval: Duration) -> Result<(), String> {
    use std::io::IsTerminal;

    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err("this is no terminal: `dunlin top --once` prints text".to_owned());
    }
    // A fault that shows at once, as a wrong password, is an error before the terminal is touched.
    let target = arguments.server.target()?;
    let describe = |error| format!("{}: {}", target.address, watch::describe(&error));
    let mut client = watch::open(&target).map_err(describe)?;
    let first = Look::take(&mut client, &[arguments.page]).map_err(describe)?;
    let mut screen = screen::Screen::new(target.address.to_string(), arguments.page, interval);
    screen.take(check(first)?);

    obey_signals().map_err(|error| format!("cannot handle signals: {error}"))?;
    let (requests, heard) = watch::start(target.clone(), client, arguments.page, interval);
    let mut terminal = ratatui::try_init().map_err(|error| format!("the terminal: {error}"))?;
    let shown = show(&mut terminal, &mut screen, &requests, &heard);
    ratatui::restore();
    shown.map_err(|error| format!("the terminal: {error}"))
}

/// Ends the program at a signal, on a thread of its own: if the terminal has gone, the wait for a key may never end.
#[cfg(feature = "screen")]
fn obey_signals() -> std::io::Result<()> {
    use signal_hook::{
        consts::{SIGHUP, SIGINT, SIGTERM},
        iterator::Signals,
    };

    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let obey = move || {
        if signals.forever().next().is_some() {
            ratatui::restore();
            std::process::exit(0);
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(obey).map(drop)
}

/// How long the program waits for a key before it looks for answers of the server.
#[cfg(feature = "screen")]
const KEY_TIMEOUT: Duration = Duration::from_millis(100);

/// Draws what was heard and does what keys want, until one wants to quit.
#[cfg(feature = "screen")]
fn show(
    terminal: &mut ratatui::DefaultTerminal,
    screen: &mut screen::Screen,
    requests: &std::sync::mpsc::Sender<watch::Request>,
    heard: &std::sync::mpsc::Receiver<watch::Heard>,
) -> std::io::Result<()> {
    use ratatui::crossterm::event::{self, Event};

    use self::{
        screen::Action,
        watch::{Heard, Request},
    };

    loop {
        terminal.draw(|frame| screen.draw(frame))?;
        if event::poll(KEY_TIMEOUT)? {
            // Other events, as a new size, only have it drawn again.
            let action = match event::read()? {
                Event::Key(key) => screen.press(key),
                _ => None,
            };
            let request = match action {
                None => None,
                Some(Action::Quit) => return Ok(()),
                Some(Action::ShowPage(page)) => Some(Request::Page(page)),
                Some(Action::LookEvery(interval)) => Some(Request::Interval(interval)),
                Some(Action::StartHotKeys) => Some(Request::StartHotKeys),
            };
            // The thread ends only with this loop.
            let _ = request.map(|request| requests.send(request));
        }
        for heard in heard.try_iter() {
            match heard {
                Heard::Look(look) => screen.take(*look),
                Heard::Lost(reason) => screen.lose(reason),
                Heard::Said(message) => screen.say(message),
            }
        }
    }
}
