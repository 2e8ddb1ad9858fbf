//! The grid's results: Markdown, JSON that a later run goes on from, and a heat map.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::cells::{Cell, EXAMPLES, PANELS, Panel};
use crate::figures::short;
use crate::plot::{self, Heat, Palette, Plot};

/// The name of the files.
pub const NAME: &str = "collection-memory";
const TITLE: &str = "Memory of keys";
/// Ratio that Dunlin is to stay below in every cell.
pub const GOAL: f64 = 0.85;

/// Memory that one server takes for keys of one cell.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// Keys that were written.
    pub keys: u64,
    /// Growth of `used_memory`, for each key.
    pub used_bytes: f64,
    /// Growth of the resident memory, for each key.
    pub resident_bytes: f64,
}

/// A figure of one server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Figure {
    /// The keys.
    #[serde(flatten)]
    pub cell: Cell,
    /// The server's column.
    pub server: String,
    /// The figures.
    #[serde(flatten)]
    pub memory: Memory,
}

/// A server program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// The column's name.
    pub name: String,
    /// The program's own words about its version.
    pub version: String,
    /// A hash of the executable: figures of another one are not kept.
    pub executable: String,
}

/// The whole page.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Page {
    /// Name of the files.
    pub name: String,
    /// Machine and sizes: figures of other ones are not kept.
    pub settings: Vec<String>,
    /// The columns; the first is the one that is compared with the others.
    pub columns: Vec<Column>,
    /// The figures.
    pub figures: Vec<Figure>,
}

impl Page {
    /// A page that has those figures of the one in `folder` that another run would measure again.
    pub fn resumed(folder: &Path, settings: Vec<String>, columns: Vec<Column>) -> Self {
        let mut page = Self { name: NAME.into(), settings, columns, figures: Vec::new() };
        let known = fs::read(folder.join(format!("{NAME}.json")))
            .ok()
            .and_then(|text| serde_json::from_slice::<Self>(&text).ok());
        if let Some(known) = known.filter(|known| known.settings == page.settings) {
            let is_same = |figure: &Figure| {
                page.columns
                    .iter()
                    .any(|column| column.name == figure.server && known.columns.contains(column))
            };
            page.figures = known.figures.iter().filter(|figure| is_same(figure)).cloned().collect();
        }
        page
    }

    /// The figures of a cell on a server.
    pub fn memory(&self, cell: Cell, server: &str) -> Option<Memory> {
        let figure = self.figures.iter().find(|figure| figure.cell == cell && figure.server == server);
        figure.map(|figure| figure.memory)
    }

    /// The first column's `used_memory` and resident memory, over those of the better of the other columns.
    fn ratios(&self, cell: Cell) -> Option<(f64, f64)> {
        let (first, peers) = self.columns.split_first()?;
        let own = self.memory(cell, &first.name)?;
        let peers: Vec<_> = peers.iter().filter_map(|peer| self.memory(cell, &peer.name)).collect();
        let best = |figure: fn(&Memory) -> f64| peers.iter().map(figure).reduce(f64::min);
        Some((
            own.used_bytes / best(|memory| memory.used_bytes)?,
            own.resident_bytes / best(|memory| memory.resident_bytes)?,
        ))
    }

    /// The larger of both ratios.
    fn ratio(&self, cell: Cell) -> Option<f64> {
        self.ratios(cell).map(|(used, resident)| used.max(resident))
    }

    /// Panels of which something was measured.
    fn panels(&self, quick: bool) -> impl Iterator<Item = Panel> {
        let has_figures = move |panel: &Panel| {
            let is_of_panel = |figure: &Figure| panel.cells(quick).any(|cell| cell == figure.cell);
            self.figures.iter().any(is_of_panel)
        };
        PANELS.into_iter().filter(has_figures)
    }

    /// The page as Markdown.
    pub fn markdown(&self, quick: bool) -> String {
        let first = self.columns.first().map_or("", |column| column.name.as_str());
        let mut text = format!(
            "# {TITLE}\n\n\
             Memory that one key takes, by type, number of members, bytes of a value and what of it expires: growth of \
             `used_memory`, and of the resident memory, of a fresh server that gets many such keys, divided by their number. The \
             process itself and its first key are deducted. Fields are `f0`, `f1` …; members, elements and values are letters; \
             keys have 16 bytes. Collections arrive in requests of up to 128 members or 64 KB. Then members and keys are looked \
             up until tables that grow step by step are done, and `MEMORY PURGE` has each allocator return what it can.\n\n"
        );
        for setting in &self.settings {
            let _ = writeln!(text, "- {setting}");
        }
        for column in &self.columns {
            let _ = writeln!(text, "- {}: {}", column.name, column.version);
        }
        let skipped: Vec<_> = PANELS
            .iter()
            .flat_map(|panel| panel.cells(quick))
            .filter(|cell| cell.is_skipped())
            .map(|cell| cell.to_string())
            .collect();
        if !skipped.is_empty() {
            let _ = writeln!(text, "- skipped, since they take more than 512 MB: {}", skipped.join("; "));
        }
        let _ = writeln!(
            text,
            "\n## Ratios\n\nEach cell: {first} over the better peer, in the larger of both figures.\n"
        );
        let _ = writeln!(text, "![{TITLE}, ratios]({NAME}.svg)\n");
        let ratios: Vec<(Cell, f64)> = self
            .panels(quick)
            .flat_map(|panel| panel.cells(quick))
            .filter_map(|cell| Some((cell, self.ratio(cell)?)))
            .collect();
        if !ratios.is_empty() {
            let count =
                |low: f64, high: f64| ratios.iter().filter(|(_, ratio)| (low..high).contains(ratio)).count();
            let _ = writeln!(
                text,
                "Of {} cells, {} are at most {GOAL}, {} are at most 1, {} are above 1.\n",
                ratios.len(),
                count(0.0, GOAL + f64::EPSILON),
                count(GOAL + f64::EPSILON, 1.0 + f64::EPSILON),
                count(1.0 + f64::EPSILON, f64::INFINITY)
            );
            let mut worst = ratios.clone();
            worst.sort_by(|one, other| other.1.total_cmp(&one.1));
            worst.truncate(10);
            text.push_str("| the ten highest | ratio |\n|---|---:|\n");
            for (cell, ratio) in worst {
                let _ = writeln!(text, "| {cell} | {ratio:.2} |");
            }
            text.push('\n');
        }
        text.push_str("## Bytes\n\nBytes a key, `used_memory` / resident.\n\n");
        let heads = |text: &mut String, first: &str, line: &str| {
            text.push_str(first);
            for column in &self.columns {
                let _ = write!(text, " {} |", column.name);
            }
            let _ = writeln!(text, " ratio |\n{line}{}---:|", "---:|".repeat(self.columns.len()));
        };
        if EXAMPLES.iter().any(|(_, cell)| self.has(*cell)) {
            heads(&mut text, "| keys as applications have them |", "|---|");
            for (name, cell) in EXAMPLES {
                let _ = write!(text, "| {name} |");
                self.write_cell(&mut text, cell);
            }
        }
        for panel in self.panels(quick) {
            let _ = writeln!(text, "\n<details><summary>{}</summary>\n", panel.title());
            heads(&mut text, "| members | value |", "|---:|---:|");
            for cell in panel.cells(quick).filter(|cell| self.has(*cell)) {
                let _ = write!(text, "| {} | {} |", cell.members, cell.value_bytes);
                self.write_cell(&mut text, cell);
            }
            text.push_str("\n</details>\n");
        }
        text
    }

    fn has(&self, cell: Cell) -> bool {
        self.figures.iter().any(|figure| figure.cell == cell)
    }

    /// Appends the figures of a cell on all servers, and its ratios.
    fn write_cell(&self, text: &mut String, cell: Cell) {
        for column in &self.columns {
            let _ = match self.memory(cell, &column.name) {
                Some(Memory { used_bytes, resident_bytes, .. }) => {
                    write!(text, " {} / {} |", short(used_bytes), short(resident_bytes))
                }
                None => write!(text, " – |"),
            };
        }
        let _ = match self.ratios(cell) {
            Some((used, resident)) => writeln!(text, " {used:.2} / {resident:.2} |"),
            None => writeln!(text, " – |"),
        };
    }

    /// Writes the figures alone: a run that is interrupted goes on from there.
    pub fn write_figures(&self, folder: &Path) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("cannot write to {}: {error}", folder.display());
        fs::create_dir_all(folder).map_err(failed)?;
        let json = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        let next = folder.join(format!("{NAME}.json.part"));
        fs::write(&next, json + "\n").map_err(failed)?;
        fs::rename(&next, folder.join(format!("{NAME}.json"))).map_err(failed)
    }

    /// Writes the page, its figures and its heat map.
    pub fn write(&self, folder: &Path, quick: bool) -> Result<(), String> {
        self.write_figures(folder)?;
        let failed = |error: std::io::Error| format!("cannot write to {}: {error}", folder.display());
        fs::write(folder.join(format!("{NAME}.md")), self.markdown(quick)).map_err(failed)?;
        let palette = Palette::new(self.columns.iter().map(|column| column.name.as_str()));
        let plot = plot::svg(&self.plot(quick), &palette)?;
        fs::write(folder.join(format!("{NAME}.svg")), plot).map_err(failed)
    }

    fn plot(&self, quick: bool) -> Plot {
        let heat = |panel: Panel| Heat {
            title: panel.title().into(),
            columns: panel.value_bytes(quick).iter().map(|bytes| abbreviated(*bytes as u64)).collect(),
            rows: panel.members(quick).iter().map(|members| abbreviated(*members)).collect(),
            values: panel.cells(quick).map(|cell| self.ratio(cell)).collect(),
        };
        let first = self.columns.first().map_or("", |column| column.name.as_str());
        Plot::Heat {
            title: format!("{TITLE}: {first} over the better peer. Rows: members; columns: bytes of a value"),
            goal: GOAL,
            panels: self.panels(quick).map(heat).collect(),
        }
    }
}

/// 1500 → 1.5k
fn abbreviated(number: u64) -> String {
    match number {
        1_000_000.. => format!("{}M", number as f64 / 1e6),
        1_000.. => format!("{}k", number as f64 / 1e3),
        _ => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::grid::cells::{Expiry, Kind};
    use crate::process::ScratchFolder;

    fn column(name: &str, executable: &str) -> Column {
        Column { name: name.into(), version: "1".into(), executable: executable.into() }
    }

    fn page(executable: &str) -> Page {
        let cell = Cell { kind: Kind::List, expiry: Expiry::None, members: 30, value_bytes: 100 };
        let figure = |server: &str, used_bytes, resident_bytes| Figure {
            cell,
            server: server.into(),
            memory: Memory { keys: 10, used_bytes, resident_bytes },
        };
        Page {
            name: NAME.into(),
            settings: vec!["machine".into()],
            columns: vec![column("dunlin", executable), column("redis", "r"), column("valkey", "v")],
            figures: vec![
                figure("dunlin", 80.0, 99.0),
                figure("redis", 100.0, 200.0),
                figure("valkey", 200.0, 110.0),
            ],
        }
    }

    #[test]
    fn page_compares_with_the_better_peer_in_each_figure() {
        let text = page("d").markdown(false);
        assert!(text.contains("| 30 | 100 | 80.0 / 99.0 | 100 / 200 | 200 / 110 | 0.80 / 0.90 |"), "{text}");
        assert!(text.contains("Of 1 cells, 0 are at most 0.85, 1 are at most 1, 0 are above 1."), "{text}");
        assert!(text.contains("skipped, since they take more than 512 MB: hash 1000000 × 1500 B;"), "{text}");
    }

    #[test]
    fn plot_has_a_cell_for_each_ratio() {
        let page = page("d");
        let svg = plot::svg(&page.plot(false), &Palette::new(["dunlin"])).unwrap();
        assert!(svg.contains("0.90") && svg.contains("1.5k"), "{svg}");
    }

    #[test]
    fn run_resumes_unless_a_program_has_changed() {
        let folder = ScratchFolder::new().unwrap();
        page("old").write(folder.path(), false).unwrap();
        let resumed = |executable: &str, setting: &str| {
            let page = page(executable);
            let resumed = Page::resumed(folder.path(), vec![setting.into()], page.columns);
            resumed.figures.into_iter().map(|figure| figure.server).collect::<Vec<_>>()
        };
        assert_eq!(resumed("old", "machine"), ["dunlin", "redis", "valkey"]);
        assert_eq!(resumed("new", "machine"), ["redis", "valkey"]);
        assert!(resumed("old", "another machine").is_empty());
    }
}
