//! The pages of `dunlin top`: tables that are sorted by any column, for the screen and for text.

use clap::ValueEnum;

/// A page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Page {
    Commands,
    Keys,
    Clients,
    Replicas,
    Events,
}

impl Page {
    pub(super) const ALL: [Self; 5] =
        [Self::Commands, Self::Keys, Self::Clients, Self::Replicas, Self::Events];

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Commands => "Commands",
            Self::Keys => "Hot keys",
            Self::Clients => "Clients",
            Self::Replicas => "Replication",
            Self::Events => "Events",
        }
    }

    /// Its columns.
    pub(super) fn columns(self) -> &'static [Column] {
        match self {
            Self::Commands => COMMANDS,
            Self::Keys => KEYS,
            Self::Clients => CLIENTS,
            Self::Replicas => REPLICAS,
            Self::Events => EVENTS,
        }
    }

    /// The order that it begins with.
    pub(super) fn order(self) -> SortOrder {
        let column = match self {
            Self::Commands | Self::Keys => 1,
            Self::Clients | Self::Replicas => 3,
            Self::Events => 0,
        };
        SortOrder { column, is_descending: true }
    }
}

/// A column: its title on the screen, its name and unit in text, and its width at most, in characters.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) title: &'static str,
    pub(super) name: &'static str,
    pub(super) is_number: bool,
    width_max: u16,
}

const fn words(title: &'static str, name: &'static str, width_max: u16) -> Column {
    Column { title, name, is_number: false, width_max }
}

const fn number(title: &'static str, name: &'static str) -> Column {
    Column { title, name, is_number: true, width_max: 20 }
}

// Columns that find no room are left out from the right.
const COMMANDS: &[Column] = &[
    words("COMMAND", "command", 24),
    number("CALLS/S", "calls_per_second"),
    number("TIME", "time_share"),
    number("MEAN", "mean_us"),
    number("50%", "p50_us"),
    number("99%", "p99_us"),
    number("FAILED/S", "failed_per_second"),
    number("REFUSED/S", "refused_per_second"),
    number("CALLS", "calls"),
];
const KEYS: &[Column] = &[
    words("KEY", "key", 48),
    number("TIME", "time_share"),
    number("BYTES", "bytes_share"),
    number("RAN FOR", "time_us"),
    number("SENT", "bytes"),
];
const CLIENTS: &[Column] = &[
    words("ADDRESS", "address", 24),
    words("NAME", "name", 12),
    words("USER", "user", 10),
    number("CALLS/S", "calls_per_second"),
    number("MEMORY", "memory_bytes"),
    number("IDLE", "idle_seconds"),
    words("LAST", "last_command", 14),
    number("OUT/S", "out_bytes_per_second"),
    number("IN/S", "in_bytes_per_second"),
    number("UNSENT", "unsent_bytes"),
    number("AGE", "age_seconds"),
    number("DB", "database"),
    words("FLAGS", "flags", 8),
    words("LIBRARY", "library", 20),
];
const REPLICAS: &[Column] = &[
    words("SERVER", "server", 46),
    words("ROLE", "role", 8),
    words("STATE", "state", 16),
    number("BEHIND", "behind_bytes"),
    number("HEARD", "heard_seconds_ago"),
    number("OFFSET", "offset"),
];
const EVENTS: &[Column] =
    &[words("TIME", "time_utc", 10), words("KIND", "kind", 14), words("EVENT", "event", u16::MAX)];

/// A cell: its text, and the number that it stands for.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) number: Option<f64>,
}

impl Cell {
    /// Text on one line.
    pub(super) fn words(text: &str) -> Self {
        Self { text: text.replace(char::is_control, " "), number: None }
    }

    /// A number, written as `text` on the screen.
    pub(super) fn number(number: f64, text: String) -> Self {
        Self { text, number: Some(number) }
    }

    /// A figure that is not known.
    pub(super) fn missing() -> Self {
        Self { text: "–".to_owned(), number: None }
    }
}

/// The order of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SortOrder {
    pub(super) column: usize,
    pub(super) is_descending: bool,
}

/// A page's rows, each with a cell for each column; and a sentence, as where there are none.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Table {
    pub(super) rows: Vec<Vec<Cell>>,
    pub(super) note: Option<String>,
}

impl Table {
    /// Orders the rows; equal ones stay as they are. Cells without a number come last in either direction. O(n log n).
    pub(super) fn sort(&mut self, order: SortOrder) {
        let SortOrder { column, is_descending } = order;
        self.rows.sort_by(|one, other| {
            let (Some(one), Some(other)) = (one.get(column), other.get(column)) else {
                return std::cmp::Ordering::Equal;
            };
            let direct =
                |ordering: std::cmp::Ordering| if is_descending { ordering.reverse() } else { ordering };
            match (one.number, other.number) {
                (Some(one), Some(other)) => direct(one.total_cmp(&other)),
                (None, None) => direct(one.text.cmp(&other.text)),
                (one, other) => other.is_some().cmp(&one.is_some()),
            }
        });
    }

    /// Widths of the columns that fit into `width` characters, with one between two of them: the first one always does.
    pub(super) fn widths(&self, columns: &[Column], width: u16) -> Vec<u16> {
        let (mut widths, mut left) = (Vec::new(), width);
        for (place, column) in columns.iter().enumerate() {
            let cells =
                self.rows.iter().filter_map(|row| row.get(place)).map(|cell| cell.text.chars().count());
            // The title has room for the mark of the order.
            let natural = cells.chain([column.title.chars().count() + 1]).max().unwrap_or(0);
            let wanted = u16::try_from(natural).unwrap_or(u16::MAX).min(column.width_max);
            let spacing = u16::from(place > 0);
            let is_last = place + 1 == columns.len();
            let granted = match left.saturating_sub(spacing) {
                room if room >= wanted => wanted,
                room if place == 0 || (is_last && room >= 10) => room,
                _ => break,
            };
            left -= granted + spacing.min(left);
            widths.push(granted);
        }
        widths
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[(&str, Option<f64>)]) -> Table {
        let row = |(name, number): &(&str, Option<f64>)| {
            let figure = number.map_or_else(Cell::missing, |number| Cell::number(number, number.to_string()));
            vec![Cell::words(name), figure]
        };
        Table { rows: rows.iter().map(row).collect(), note: None }
    }

    fn names(table: &Table) -> String {
        table.rows.iter().map(|row| row[0].text.as_str()).collect()
    }

    #[test]
    fn rows_are_sorted_by_any_column_and_unknown_figures_come_last() {
        let mut table = table(&[("b", Some(2.0)), ("a", None), ("c", Some(10.0)), ("d", Some(2.0))]);
        for (column, is_descending, expected) in
            [(1, true, "cbda"), (1, false, "bdca"), (0, false, "abcd"), (0, true, "dcba"), (9, true, "dcba")]
        {
            table.sort(SortOrder { column, is_descending });
            assert_eq!(names(&table), expected);
        }
    }

    #[test]
    fn columns_that_find_no_room_are_left_out_from_the_right() {
        let mut table = table(&[("name-of-a-command", Some(1.0))]);
        assert_eq!(table.widths(COMMANDS, 80)[..2], [17, 8]);
        assert_eq!(table.widths(COMMANDS, 26), [17, 8]);
        assert_eq!(table.widths(COMMANDS, 25), [17]);
        assert_eq!(table.widths(COMMANDS, 5), [5]);
        assert_eq!(table.widths(COMMANDS, 0), [0]);
        table.rows =
            vec![vec![Cell::words("14:03:12"), Cell::words("server"), Cell::words(&"x".repeat(200))]];
        assert_eq!(table.widths(EVENTS, 80), [8, 6, 64], "the last one is cut");
    }

    #[test]
    fn order_of_each_page_names_one_of_its_columns() {
        for page in Page::ALL {
            assert!(page.order().column < page.columns().len());
        }
        assert_eq!(Cell::words("a\nb\tc\x1b").text, "a b c ");
    }
}
