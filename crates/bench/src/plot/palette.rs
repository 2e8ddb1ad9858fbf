//! Colours and marks: one of each for a server, the same in all plots of a report.
//!
//! Colours are those of Okabe and Ito (<https://jfly.uni-koeln.de/color/>), which colour-blind readers can
//! distinguish, each with a lighter twin for a dark background. Marks and dashes differ as well, for prints in
//! black and white.

use plotters::style::RGBColor;

/// A colour on a light background, and its twin on a dark one.
type Twin = (RGBColor, RGBColor);

const COLOURS: [Twin; 8] = [
    (RGBColor(0, 114, 178), RGBColor(92, 178, 240)),
    (RGBColor(213, 94, 0), RGBColor(255, 140, 66)),
    (RGBColor(0, 158, 115), RGBColor(52, 211, 160)),
    (RGBColor(204, 121, 167), RGBColor(236, 160, 206)),
    (RGBColor(170, 120, 0), RGBColor(240, 190, 60)),
    (RGBColor(86, 90, 200), RGBColor(158, 162, 255)),
    (RGBColor(120, 120, 120), RGBColor(165, 165, 165)),
    (RGBColor(150, 60, 60), RGBColor(230, 130, 130)),
];
/// Text and axes.
pub(super) const INK: RGBColor = RGBColor(0, 0, 0);
const INK_IN_THE_DARK: RGBColor = RGBColor(228, 230, 235);
pub(super) const PAPER: RGBColor = RGBColor(255, 255, 255);
const PAPER_IN_THE_DARK: RGBColor = RGBColor(22, 24, 29);

/// The servers of a report, in the order that gives them their colours.
#[derive(Debug, Clone, Default)]
pub struct Palette {
    servers: Vec<String>,
}

impl Palette {
    /// A palette of the servers with these names, the report's own ones first.
    pub fn new<'a>(servers: impl IntoIterator<Item = &'a str>) -> Self {
        let mut palette = Self::default();
        for server in servers {
            if palette.position(server).is_none() {
                palette.servers.push(server.into());
            }
        }
        palette
    }

    /// The number of a server's colour and mark. `dunlin, GET /health` and `dunlin Unix` are variants of `dunlin`.
    pub(super) fn number(&self, server: &str) -> usize {
        self.position(server).unwrap_or(self.servers.len())
    }

    pub(super) fn colour(&self, server: &str) -> RGBColor {
        COLOURS[self.number(server) % COLOURS.len()].0
    }

    fn position(&self, server: &str) -> Option<usize> {
        let is_variant = |known: &str| {
            server.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', ',']))
        };
        let known = self.servers.iter().enumerate().filter(|(_, known)| is_variant(known));
        known.max_by_key(|(_, known)| known.len()).map(|(number, _)| number)
    }
}

/// A style sheet that replaces each colour by its twin if the reader's system is dark. The sheet addresses
/// the attributes that the drawing library writes, so that a picture without it is complete.
pub(super) fn dark_style() -> String {
    let twins = COLOURS.iter().copied().chain([(INK, INK_IN_THE_DARK), (PAPER, PAPER_IN_THE_DARK)]);
    let rules = twins.map(|(light, dark)| {
        let [light, dark] =
            [light, dark].map(|RGBColor(red, green, blue)| format!("#{red:02X}{green:02X}{blue:02X}"));
        format!("svg [fill=\"{light}\"]{{fill:{dark}}}svg [stroke=\"{light}\"]{{stroke:{dark}}}")
    });
    format!("<style>@media(prefers-color-scheme:dark){{{}}}</style>", rules.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn palette_gives_variants_the_colour_of_their_server() {
        let palette =
            Palette::new(["dunlin", "redis-server", "redis-server Unix", "dunlin, GET /health", "dunlin-2"]);
        let number = |name| palette.number(name);
        assert_eq!(number("dunlin"), 0);
        assert_eq!((number("dunlin, GET /health"), number("dunlin Unix")), (0, 0));
        assert_eq!((number("redis-server"), number("redis-server Unix"), number("dunlin-2")), (1, 1, 2));
        assert_eq!(number("somebody else"), 3);
    }

    #[test]
    fn twins_are_told_apart() {
        let mut colours: Vec<_> = COLOURS.iter().flat_map(|(light, dark)| [light, dark]).collect();
        colours.extend([&INK, &PAPER]);
        colours.sort_by_key(|RGBColor(red, green, blue)| (*red, *green, *blue));
        assert!(colours.windows(2).all(|pair| pair[0] != pair[1]));
        assert_eq!(dark_style().matches("[fill=").count(), COLOURS.len() + 2);
    }
}
