//! The screen of `dunlin top`: its state, its keys, and how it is drawn.
//!
//! ```text
//! dunlin 0.1.0  127.0.0.1:6379  primary  up 3 d 4 h                       every 1 s
//! commands  123,456 a second  ▁▂▃▅▇█▇▅▃▂▁▂▃▅▇█▇▅▃▂▁▂▃▅▇█▇▅▃▂▁▂▃▅▇█▇▅▃▂▁▂▃▅▇█▇▅▃▂▁▂
//! latency   median 12 µs  99% 120 µs  99.9% 1.20 ms  longest 3.00 ms
//! memory    1.2 GiB of 4.0 GiB  rss 1.3 GiB  keys 1,234,567  evicted 0/s …
//! clients   120, 3 blocked  in 1.2 MiB/s  out 3.0 MiB/s  hits 98%  cores 1.52 of 2
//!  1 Commands   2 Hot keys   3 Clients   4 Replication   5 Events
//! COMMAND   CALLS/S▼  TIME …
//! …
//! q quit  ? help  …                            or a message, or what was refused
//! ```
//!
//! Nothing here asks the server or knows the terminal: any size is drawn, the parts that find no room are cut.

use std::time::{Duration, Instant};

use dunlin_server::quantities::{bytes, count};
use ratatui::{
    Frame,
    crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
    layout::{Alignment, Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::{Block, Clear, Paragraph, Row, Sparkline, Table as Rows, Wrap},
};

use super::{
    look::Look,
    table::{Column, Page, SortOrder},
    view::{View, frequency, percentage, short_latency, span},
};

/// The longest interval between two looks.
pub(super) const INTERVAL_S_MAX: u64 = 60;
/// How many intervals an answer may take before the screen says so.
const LATE_INTERVALS: u32 = 3;

const QUIET: Style = Style::new().fg(Color::DarkGray);
const STRONG: Style = Style::new().add_modifier(Modifier::BOLD);
const CHOSEN: Style = Style::new().add_modifier(Modifier::REVERSED);
const BAD: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);

const HELP: &[(&str, &str)] = &[
    ("1 to 5, Tab", "another page"),
    ("← →", "sort by another column"),
    ("r", "reverse the order"),
    ("↑ ↓ PgUp PgDn", "scroll; Home and End"),
    ("Space", "pause and go on"),
    ("+ −", "look less or more often"),
    ("s", "hot keys: start HOTKEYS for a minute"),
    ("q, Ctrl-C", "quit"),
];

/// Effect of a key that others see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Quit,
    ShowPage(Page),
    LookEvery(Duration),
    StartHotKeys,
}

/// All that the screen shows.
#[derive(Debug)]
pub(super) struct Screen {
    address: String,
    page: Page,
    interval: Duration,
    view: View,
    orders: [SortOrder; Page::ALL.len()],
    scroll: usize,
    /// How many rows and columns the last drawing had room for.
    room: (usize, usize),
    is_paused: bool,
    shows_help: bool,
    message: Option<String>,
    /// The time since which the server is lost, and why.
    lost: Option<(Instant, String)>,
    heard: Instant,
}

impl Screen {
    pub(super) fn new(address: String, page: Page, interval: Duration) -> Self {
        Self {
            address,
            page,
            interval,
            view: View::default(),
            orders: Page::ALL.map(Page::order),
            scroll: 0,
            room: (0, 1),
            is_paused: false,
            shows_help: false,
            message: None,
            lost: None,
            heard: Instant::now(),
        }
    }

    /// The server has answered. While the screen is paused, it stays as it is.
    pub(super) fn take(&mut self, look: Look) {
        self.heard = Instant::now();
        if self.lost.take().is_some() {
            self.view.reset();
            self.message = Some("The server is there again.".to_owned());
        }
        if !self.is_paused {
            self.view.add(look);
        }
    }

    /// The server cannot be reached.
    pub(super) fn lose(&mut self, reason: String) {
        let since = self.lost.as_ref().map_or_else(Instant::now, |(since, _)| *since);
        self.lost = Some((since, reason));
    }

    /// Shows a sentence at the foot until the next key.
    pub(super) fn say(&mut self, message: String) {
        self.message = Some(message);
    }

    fn order(&mut self) -> &mut SortOrder {
        &mut self.orders[self.page as usize]
    }

    fn show(&mut self, page: Page) -> Option<Action> {
        (self.page, self.scroll) = (page, 0);
        Some(Action::ShowPage(page))
    }

    /// Page `steps` behind this one, around.
    fn page_behind(&self, steps: usize) -> Page {
        Page::ALL[(self.page as usize + steps) % Page::ALL.len()]
    }

    pub(super) fn press(&mut self, key: KeyEvent) -> Option<Action> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        self.message = None;
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if std::mem::take(&mut self.shows_help) && !(is_control || key.code == KeyCode::Char('q')) {
            return None;
        }
        let (rows, columns) = self.room;
        match key.code {
            KeyCode::Char('c' | 'd') if is_control => return Some(Action::Quit),
            KeyCode::Char('q') | KeyCode::Esc => return Some(Action::Quit),
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.shows_help = true,
            KeyCode::Char(digit @ '1'..='5') => return self.show(Page::ALL[digit as usize - '1' as usize]),
            KeyCode::Tab => return self.show(self.page_behind(1)),
            KeyCode::BackTab => return self.show(self.page_behind(Page::ALL.len() - 1)),
            KeyCode::Left | KeyCode::Char('<') => self.sort_by(columns - 1),
            KeyCode::Right | KeyCode::Char('>') => self.sort_by(1),
            KeyCode::Char('r') => {
                let order = self.order();
                order.is_descending = !order.is_descending;
            }
            KeyCode::Up | KeyCode::Char('k') => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.scroll = self.scroll.saturating_add(1),
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(rows),
            KeyCode::PageDown => self.scroll = self.scroll.saturating_add(rows),
            KeyCode::Home => self.scroll = 0,
            KeyCode::End => self.scroll = usize::MAX,
            KeyCode::Char(' ' | 'p') => self.is_paused = !self.is_paused,
            KeyCode::Char('+' | '=') => return Some(self.look_every(self.interval.as_secs() + 1)),
            KeyCode::Char('-') => return Some(self.look_every(self.interval.as_secs().saturating_sub(1))),
            KeyCode::Char('s') if self.page == Page::Keys => return Some(Action::StartHotKeys),
            _ => {}
        }
        None
    }

    /// Sorts by the column `steps` to the right of the one that it is, of those that are shown, around.
    fn sort_by(&mut self, steps: usize) {
        let (shown, page) = (self.room.1.max(1), self.page);
        let order = self.order();
        let column = (order.column + steps) % shown;
        // Large figures first, words by the alphabet.
        *order = SortOrder { column, is_descending: page.columns()[column].is_number };
    }

    fn look_every(&mut self, seconds: u64) -> Action {
        self.interval = Duration::from_secs(seconds.clamp(1, INTERVAL_S_MAX));
        Action::LookEvery(self.interval)
    }

    /// Draws everything.
    pub(super) fn draw(&mut self, frame: &mut Frame<'_>) {
        let [head, tabs, note, body, foot] = Layout::vertical([
            Constraint::Length(5),
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Fill(1),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        self.draw_head(frame, head);
        self.draw_tabs(frame, tabs);
        self.draw_page(frame, note, body);
        self.draw_foot(frame, foot);
        if self.shows_help {
            draw_help(frame);
        }
    }

    fn draw_head(&self, frame: &mut Frame<'_>, area: Rect) {
        let summary = self.view.summary();
        let [title, load, times, memory, clients] = Layout::vertical([Constraint::Length(1); 5]).areas(area);

        let mut names =
            vec![Span::styled(summary.version.clone().unwrap_or_else(|| "dunlin top".into()), STRONG)];
        names.push(Span::raw(format!("  {}", self.address)));
        names.extend(summary.role.map(|role| Span::raw(format!("  {role}"))));
        names.extend(summary.uptime_s.map(|seconds| Span::raw(format!("  up {}", span(seconds)))));
        let state = self.state();
        let width = u16::try_from(state.width()).unwrap_or(u16::MAX);
        let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Length(width)]).areas(title);
        frame.render_widget(Line::from(names), left);
        frame.render_widget(state, right);

        let text = format!("{} a second  ", known(summary.rate, frequency));
        let label = u16::try_from(LABEL_WIDTH + text.chars().count()).unwrap_or(u16::MAX);
        let [left, plot] = Layout::horizontal([Constraint::Length(label), Constraint::Fill(1)]).areas(load);
        frame.render_widget(row("commands", [("", text)]), left);
        let mut history: Vec<u64> =
            self.view.history().iter().take(plot.width.into()).map(|rate| *rate as u64).collect();
        history.reverse();
        // The newest stands at the right edge.
        let missing = usize::from(plot.width).saturating_sub(history.len());
        history.splice(0..0, std::iter::repeat_n(0, missing));
        frame.render_widget(Sparkline::default().data(&history).style(Style::new().fg(Color::Cyan)), plot);

        let last = |of: fn(&super::look::Sample) -> u32| {
            summary.last.as_ref().map_or_else(|| "–".to_owned(), |sample| short_latency(of(sample)))
        };
        let longest = if summary.has_longest { last(|sample| sample.worst) } else { "–".to_owned() };
        let figures = [
            ("median ", last(|sample| sample.p50)),
            ("99% ", last(|sample| sample.p99)),
            ("99.9% ", last(|sample| sample.p999)),
            ("longest ", longest),
        ];
        frame.render_widget(row("latency", figures), times);

        let size = |figure: Option<f64>| known(figure, |value| bytes(value as u64));
        let limit = summary.limit.map_or_else(String::new, |limit| format!(" of {}", bytes(limit as u64)));
        let figures = [
            ("", size(summary.used) + &limit),
            ("rss ", size(summary.resident)),
            ("keys ", known(summary.keys, |keys| count(keys as u64))),
            ("evicted ", known(summary.evicted_rate, frequency) + "/s"),
            ("expired ", known(summary.expired_rate, frequency) + "/s"),
        ];
        frame.render_widget(row("memory", figures), memory);

        let blocked = summary.blocked.filter(|blocked| *blocked > 0.0);
        let blocked = blocked.map_or_else(String::new, |blocked| format!(", {blocked:.0} blocked"));
        let of_workers = summary.workers.map_or_else(String::new, |workers| format!(" of {workers:.0}"));
        let figures = [
            ("", known(summary.clients, |clients| count(clients as u64)) + &blocked),
            ("in ", size(summary.in_rate) + "/s"),
            ("out ", size(summary.out_rate) + "/s"),
            ("hits ", known(summary.hit_share, percentage)),
            ("cores ", known(summary.cores, |cores| format!("{cores:.2}")) + &of_workers),
        ];
        frame.render_widget(row("clients", figures), clients);
    }

    /// The upper right corner.
    fn state(&self) -> Line<'static> {
        let silence = self.heard.elapsed();
        if let Some((since, _)) = &self.lost {
            Line::styled(format!(" LOST for {} ", span(since.elapsed().as_secs_f64())), BAD)
        } else if self.is_paused {
            Line::styled(" PAUSED ", CHOSEN)
        } else if silence > self.interval * LATE_INTERVALS {
            Line::styled(format!(" no answer for {} ", span(silence.as_secs_f64())), BAD)
        } else {
            Line::styled(format!("every {} s", self.interval.as_secs()), QUIET)
        }
    }

    fn draw_tabs(&self, frame: &mut Frame<'_>, area: Rect) {
        let tab = |(number, page): (usize, Page)| {
            let style = if page == self.page { CHOSEN } else { Style::new() };
            [Span::styled(format!(" {} {} ", number + 1, page.title()), style), Span::raw(" ")]
        };
        let tabs: Vec<Span<'_>> = Page::ALL.into_iter().enumerate().flat_map(tab).collect();
        frame.render_widget(Line::from(tabs), area);
    }

    fn draw_page(&mut self, frame: &mut Frame<'_>, note: Rect, body: Rect) {
        let (page, columns) = (self.page, self.page.columns());
        let mut table = self.view.table(page);
        let body = match table.note.take() {
            Some(text) if table.rows.is_empty() => {
                let area = Rect { height: note.height + body.height, ..note };
                frame.render_widget(Paragraph::new(text).style(QUIET).wrap(Wrap { trim: true }), area);
                Rect { height: 0, ..body }
            }
            Some(text) => {
                frame.render_widget(Line::styled(text, QUIET), note);
                body
            }
            None => Rect { y: note.y, height: note.height + body.height, ..body },
        };
        let widths = table.widths(columns, body.width);
        let rows = usize::from(body.height.saturating_sub(1));
        self.room = (rows.max(1), widths.len().max(1));
        self.scroll = self.scroll.min(table.rows.len().saturating_sub(rows));
        let shown = self.room.1;
        let order = self.order();
        order.column = order.column.min(shown - 1);
        let order = *order;
        table.sort(order);
        if body.height == 0 {
            return;
        }
        let titles = columns.iter().zip(&widths).enumerate().map(|(place, (column, _))| {
            let mark = match order.is_descending {
                _ if place != order.column => "",
                true => "▼",
                false => "▲",
            };
            let style = if place == order.column { STRONG.fg(Color::Cyan) } else { STRONG };
            aligned(column, format!("{}{mark}", column.title)).style(style)
        });
        let line = |row: &Vec<super::table::Cell>| {
            Row::new(row.iter().zip(columns).zip(&widths).map(|((cell, column), width)| {
                let text = if cell.text.chars().count() > usize::from(*width) {
                    let kept: String =
                        cell.text.chars().take(usize::from(*width).saturating_sub(1)).collect();
                    kept + "…"
                } else {
                    cell.text.clone()
                };
                aligned(column, text)
            }))
        };
        let header = Row::new(titles.collect::<Vec<_>>());
        let lines: Vec<Row<'_>> = table.rows.iter().skip(self.scroll).take(rows).map(line).collect();
        let lengths = widths.iter().map(|width| Constraint::Length(*width));
        frame.render_widget(Rows::new(lines, lengths).header(header).column_spacing(1), body);
    }

    fn draw_foot(&self, frame: &mut Frame<'_>, area: Rect) {
        let refused = self.view.now().map(|now| now.refused.as_slice()).unwrap_or_default();
        let line = if let Some((_, reason)) = &self.lost {
            Line::styled(format!("{reason}; it is tried again"), BAD)
        } else if let Some(message) = &self.message {
            Line::styled(message.clone(), STRONG)
        } else if let Some((_, reason)) = refused.first() {
            let names: Vec<&str> = refused.iter().map(|(name, _)| *name).collect();
            Line::styled(format!("refused: {}: {reason}", names.join(", ")), Style::new().fg(Color::Yellow))
        } else {
            let keys = "q quit  ? help  1-5 page  ←→ sort  r reverse  Space pause";
            let more = if self.page == Page::Keys { "  s start HOTKEYS" } else { "" };
            Line::styled(format!("{keys}{more}"), QUIET)
        };
        frame.render_widget(line, area);
    }
}

/// Characters of the name before each row of figures.
const LABEL_WIDTH: usize = 10;

/// `latency   median 12 µs  99% 120 µs`.
fn row<'a>(name: &'a str, figures: impl IntoIterator<Item = (&'a str, String)>) -> Line<'a> {
    let mut spans = vec![Span::styled(format!("{name:LABEL_WIDTH$}"), QUIET)];
    for (place, (label, figure)) in figures.into_iter().enumerate() {
        let gap = if place == 0 { "" } else { "  " };
        spans.push(Span::styled(format!("{gap}{label}"), QUIET));
        spans.push(Span::raw(figure));
    }
    Line::from(spans)
}

fn known(figure: Option<f64>, write: impl Fn(f64) -> String) -> String {
    figure.map_or_else(|| "–".to_owned(), write)
}

fn aligned(column: &Column, text: String) -> ratatui::widgets::Cell<'static> {
    let alignment = if column.is_number { Alignment::Right } else { Alignment::Left };
    ratatui::widgets::Cell::new(Line::from(text).alignment(alignment))
}

fn draw_help(frame: &mut Frame<'_>) {
    let all = frame.area();
    let (width, height) = (all.width.min(58), all.height.min(HELP.len() as u16 + 2));
    let area =
        Rect { x: all.x + (all.width - width) / 2, y: all.y + (all.height - height) / 2, width, height };
    let line = |(keys, meaning): &(&'static str, &'static str)| {
        Line::from(vec![Span::styled(format!(" {keys:15}"), STRONG), Span::raw(*meaning)])
    };
    let lines: Vec<Line<'_>> = HELP.iter().map(line).collect();
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" Keys ")), area);
}

#[cfg(test)]
mod tests {
    use ratatui::{Terminal, backend::TestBackend};

    use super::*;
    use crate::top::view::tests::sample_view;

    fn screen(page: Page) -> Screen {
        let mut screen = Screen::new("127.0.0.1:6379".into(), page, Duration::from_secs(1));
        screen.view = sample_view();
        screen
    }

    /// The lines of a drawing, without the blanks at their ends.
    fn drawn(screen: &mut Screen, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..height).map(line).collect()
    }

    fn press(screen: &mut Screen, code: KeyCode) -> Option<Action> {
        screen.press(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn screen_fits_into_80_columns() {
        let lines = drawn(&mut screen(Page::Commands), 80, 24);
        for (line, expected) in [
            (0, "dunlin 0.1.0  127.0.0.1:6379  primary  up 1 d 2 h                      every 1 s"),
            (2, "latency   median 9.0 µs  99% 120 µs  99.9% 1.23 ms  longest 3.00 ms"),
            (3, "memory    1.5 GiB of 4.0 GiB  rss 2.0 GiB  keys 42  evicted 0/s  expired 3.5/s"),
            (4, "clients   120, 3 blocked  in 1.0 KiB/s  out 2.0 MiB/s  hits 90%  cores 1.50 of 2"),
            (5, " 1 Commands   2 Hot keys   3 Clients   4 Replication   5 Events"),
            (6, "COMMAND     CALLS/S▼  TIME    MEAN    50%    99%  FAILED/S  REFUSED/S  CALLS"),
            (7, "get           10,000   75%  1.5 µs 1.0 µs 1.0 µs         0        1.0 20,900"),
            (8, "set              5.0   25% 1.00 ms      –      –       0.5          0     10"),
            (9, "client list        0    0%       –      –      –         0          0      3"),
            (23, "q quit  ? help  1-5 page  ←→ sort  r reverse  Space pause"),
        ] {
            assert_eq!(lines[line], expected);
        }
        assert!(
            lines[1].starts_with("commands  10,000 a second  ") && lines[1].ends_with('█'),
            "{}",
            lines[1]
        );
    }

    #[test]
    fn screen_shows_more_columns_if_there_is_room() {
        let of = |width| drawn(&mut screen(Page::Clients), width, 24)[6].clone();
        assert!(of(80).contains("LAST") && !of(80).contains("LIBRARY"), "{}", of(80));
        assert!(of(160).ends_with("LIBRARY"), "{}", of(160));
    }

    #[test]
    fn screen_draws_at_any_size() {
        for page in Page::ALL {
            for (width, height) in
                [(0, 0), (1, 1), (3, 2), (10, 3), (20, 8), (80, 24), (300, 100), (65_000, 1)]
            {
                let mut screen = screen(page);
                drawn(&mut screen, width, height);
                for code in
                    [KeyCode::End, KeyCode::Right, KeyCode::Left, KeyCode::PageDown, KeyCode::Char('?')]
                {
                    press(&mut screen, code);
                    drawn(&mut screen, width, height);
                }
            }
        }
    }

    #[test]
    fn keys_sort_scroll_and_change_the_page() {
        let mut screen = screen(Page::Commands);
        let first = |screen: &mut Screen| drawn(screen, 80, 24)[7].split(' ').next().unwrap().to_owned();
        assert_eq!(first(&mut screen), "get");
        press(&mut screen, KeyCode::Char('r'));
        assert_eq!(first(&mut screen), "client");
        press(&mut screen, KeyCode::Left);
        press(&mut screen, KeyCode::Char('r'));
        assert_eq!(first(&mut screen), "set", "by name, backwards");
        press(&mut screen, KeyCode::Left);
        assert!(drawn(&mut screen, 80, 24)[6].ends_with("CALLS▼"), "around");
        press(&mut screen, KeyCode::End);
        let lines = drawn(&mut screen, 80, 10);
        assert_eq!(lines[8].split(' ').next().unwrap(), "client", "{lines:#?}");
        assert_eq!(press(&mut screen, KeyCode::Tab), Some(Action::ShowPage(Page::Keys)));
        assert_eq!(press(&mut screen, KeyCode::Char('s')), Some(Action::StartHotKeys));
        assert_eq!(press(&mut screen, KeyCode::Char('5')), Some(Action::ShowPage(Page::Events)));
        assert_eq!(press(&mut screen, KeyCode::Tab), Some(Action::ShowPage(Page::Commands)));
        assert_eq!(press(&mut screen, KeyCode::BackTab), Some(Action::ShowPage(Page::Events)));
        assert_eq!(press(&mut screen, KeyCode::Char('s')), None, "only among the keys");
        assert_eq!(press(&mut screen, KeyCode::Char('+')), Some(Action::LookEvery(Duration::from_secs(2))));
        assert_eq!(press(&mut screen, KeyCode::Char('q')), Some(Action::Quit));
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(screen.press(control_c), Some(Action::Quit));
    }

    #[test]
    fn help_is_shown_and_goes_with_the_next_key() {
        let mut screen = screen(Page::Commands);
        let shows = |screen: &mut Screen| drawn(screen, 80, 24).join("\n").contains("reverse the order");
        press(&mut screen, KeyCode::Char('?'));
        assert!(shows(&mut screen));
        assert_eq!(press(&mut screen, KeyCode::Char('5')), None);
        assert!(!shows(&mut screen) && screen.page == Page::Commands);
    }

    #[test]
    fn paused_screen_stays_as_it_is() {
        let mut screen = screen(Page::Commands);
        press(&mut screen, KeyCode::Char(' '));
        let before = drawn(&mut screen, 80, 24);
        assert!(before[0].ends_with("PAUSED"), "{}", before[0]);
        screen.take(Look::empty());
        assert_eq!(drawn(&mut screen, 80, 24), before);
        press(&mut screen, KeyCode::Char(' '));
        screen.take(Look::empty());
        assert_ne!(drawn(&mut screen, 80, 24), before);
    }

    #[test]
    fn lost_server_and_refused_questions_are_said() {
        let mut screen = screen(Page::Clients);
        screen.lose("127.0.0.1:6379: connection refused".into());
        let lines = drawn(&mut screen, 80, 24);
        assert!(lines[0].contains("LOST for 0 s"), "{}", lines[0]);
        assert_eq!(lines[23], "127.0.0.1:6379: connection refused; it is tried again");
        let reason = "NOPERM User app has no permissions".to_owned();
        let refused = vec![("RECORDER RANGE", reason.clone()), ("CLIENT LIST", reason)];
        screen.take(Look { refused, ..Look::empty() });
        assert_eq!(drawn(&mut screen, 80, 24)[23], "The server is there again.");
        press(&mut screen, KeyCode::F(5));
        let lines = drawn(&mut screen, 80, 24);
        assert_eq!(lines[23], "refused: RECORDER RANGE, CLIENT LIST: NOPERM User app has no permissions");
        assert_eq!(lines[6], "CLIENT LIST is refused: NOPERM User app has no permissions");
    }
}
