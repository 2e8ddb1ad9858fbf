//! A table for a terminal: columns as wide as their widest cell, colours if the terminal has them.

use anstyle::{AnsiColor, Style};

/// How a text is to strike the reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Strong,
    Good,
    Attention,
    Bad,
}

/// A cell of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    pub(super) fn plain(text: &str) -> Self {
        Self::toned(text, Tone::Plain)
    }

    pub(super) fn toned(text: &str, tone: Tone) -> Self {
        Self { text: text.to_owned(), tone }
    }
}

/// A text in the colour of a tone; the stream drops it if there is no terminal.
pub(super) fn paint(tone: Tone, text: &str) -> String {
    let style = match tone {
        Tone::Plain => return text.to_owned(),
        Tone::Strong => Style::new().bold(),
        Tone::Good => AnsiColor::Green.on_default(),
        Tone::Attention => AnsiColor::Yellow.on_default(),
        Tone::Bad => AnsiColor::Red.on_default().bold(),
    };
    format!("{style}{text}{style:#}")
}

/// Prints a table.
pub(super) fn print(titles: &[&str], rows: &[Vec<Cell>]) {
    render(titles, rows).iter().for_each(|line| dunlin_print::say!("{line}"));
}

fn render(titles: &[&str], rows: &[Vec<Cell>]) -> Vec<String> {
    let header: Vec<Cell> = titles.iter().map(|title| Cell::toned(title, Tone::Strong)).collect();
    let lines = || std::iter::once(&header).chain(rows);
    let widths: Vec<usize> = (0..titles.len())
        .map(|column| lines().map(|row| row[column].text.chars().count()).max().unwrap_or(0))
        .collect();
    let line = |row: &Vec<Cell>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            let is_last = column + 1 == row.len();
            let blanks = if is_last { 0 } else { width - cell.text.chars().count() + 2 };
            format!("{}{}", paint(cell.tone, &cell.text), " ".repeat(blanks))
        });
        cells.collect::<String>()
    };
    lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_as_wide_as_its_cells() {
        let rows = [vec![Cell::plain("ä"), Cell::plain("x")], vec![Cell::plain("long"), Cell::plain("y")]];
        let lines = render(&["A", "B"], &rows);
        assert_eq!(lines[1..], ["ä     x", "long  y"]);
    }
}
