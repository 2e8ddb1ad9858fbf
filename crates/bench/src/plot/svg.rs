//! Draws plots. Servers differ by their marks and dashes as well as by their colours; text is large enough for a phone.

use plotters::coord::Shift;
use plotters::prelude::*;

use super::axis::Axis;
use super::palette::{INK, PAPER, Palette, dark_style};
use super::{Band, Bar, Curve, Heat, Plot, Spread};
use crate::figures::short;

/// Narrow, so that text of this size can be read if a phone shrinks the whole plot.
const WIDTH: u32 = 480;
const CURVES_HEIGHT: u32 = 320;
const TEXT: u32 = 14;
const MARK: i32 = 4;
/// Height of a line of text.
const LINE: i32 = 20;
/// Letters of a title that fit into a line.
const TITLE_LETTERS_MAX: usize = 62;
/// Letters of a server's name that fit beside its bar.
const NAME_LETTERS_MAX: usize = 20;
/// Height of the stretch that a server's compaction is marked in, of the height of the curves.
const BAND: f64 = 0.1;
/// Half the width of the ends of a spread's bar.
const CAP: i32 = 3;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Draws a plot, in the colours that the palette gives its servers.
pub fn svg(plot: &Plot, palette: &Palette) -> Result<String, String> {
    let mut svg = String::new();
    let drawn = match plot {
        Plot::Bars { title, bars, reference } => draw_bars(&mut svg, palette, title, bars, *reference),
        Plot::Curves { .. } => draw_curves(&mut svg, palette, plot),
        Plot::Heat { title, goal, panels } => draw_heat(&mut svg, title, *goal, panels),
    };
    drawn.map_err(|error| format!("cannot draw a plot: {error}"))?;
    let body = svg.find('>').map_or(0, |end| end + 1);
    svg.insert_str(body, &dark_style());
    svg.push('\n');
    Ok(svg)
}

fn draw_bars(
    svg: &mut String,
    palette: &Palette,
    title: &str,
    bars: &[Bar],
    reference: Option<f64>,
) -> Drawn {
    const LEFT: i32 = 160;
    const BAR: i32 = 20;
    const GAP: i32 = 32;
    /// Width of a letter of a label, rounded up.
    const LETTER: usize = 8;
    let label = |bar: &Bar| bar.label.clone().unwrap_or_else(|| short(bar.value));
    let right = 16 + LETTER * bars.iter().map(|bar| label(bar).chars().count()).max().unwrap_or(0);
    let rows = distinct(bars.iter().map(|bar| bar.row.as_str()));
    let top = title_height(title);
    let height = top + BAR * bars.len() as i32 + GAP * rows.len() as i32 + 10;
    let reaches = |bar: &Bar| bar.spread.map_or(bar.value, |(_, high)| high.max(bar.value));
    let longest = bars.iter().map(reaches).chain(reference).filter(|value| value.is_finite());
    let scale = f64::from(WIDTH as i32 - LEFT - right as i32) / longest.fold(f64::MIN_POSITIVE, f64::max);
    let place = |value: f64| LEFT + ((value * scale) as i32).max(1);
    let area = SVGBackend::with_string(svg, (WIDTH, height as u32)).into_drawing_area();
    area.fill(&PAPER)?;
    draw_title(&area, title)?;
    let mut y = top;
    for row in rows {
        let bold = ("sans-serif", TEXT).into_font().style(FontStyle::Bold);
        area.draw(&Text::new(row.to_string(), (10, y + 6), bold.color(&INK)))?;
        y += GAP - 6;
        for bar in bars.iter().filter(|bar| bar.row == row) {
            area.draw(&Text::new(shortened(&bar.server), (20, y + 1), ("sans-serif", TEXT)))?;
            let colour = palette.colour(&bar.server);
            area.draw(&Rectangle::new([(LEFT, y), (place(bar.value), y + BAR - 4)], colour.filled()))?;
            if let Some((low, high)) = bar.spread {
                let middle = y + BAR / 2 - 2;
                for line in whisker(place(low), place(high), |along, across| (along, middle + across)) {
                    area.draw(&PathElement::new(line, INK.stroke_width(1)))?;
                }
            }
            area.draw(&Text::new(label(bar), (place(reaches(bar)) + 8, y + 1), ("sans-serif", TEXT)))?;
            y += BAR;
        }
        y += 6;
    }
    if let Some(reference) = reference {
        let line = vec![(place(reference), top), (place(reference), height - 10)];
        area.draw(&PathElement::new(line, INK.mix(0.4).stroke_width(1)))?;
    }
    area.present()?;
    Ok(())
}

/// The lines of a spread's bar: its length and its ends, placed by `at(along, across)`.
fn whisker(from: i32, to: i32, at: impl Fn(i32, i32) -> (i32, i32)) -> [Vec<(i32, i32)>; 3] {
    [vec![at(from, 0), at(to, 0)], vec![at(from, -CAP), at(from, CAP)], vec![at(to, -CAP), at(to, CAP)]]
}

fn draw_curves(svg: &mut String, palette: &Palette, plot: &Plot) -> Drawn {
    let Plot::Curves { title, x_axis, y_axis, is_logarithmic, curves, bands } = plot else { return Ok(()) };
    let top = title_height(title);
    let legend_height = 24 * curves.len().div_ceil(LEGEND_COLUMNS) as u32;
    let area =
        SVGBackend::with_string(svg, (WIDTH, top as u32 + CURVES_HEIGHT + legend_height)).into_drawing_area();
    area.fill(&PAPER)?;
    draw_title(&area, title)?;
    let (_, area) = area.split_vertically(top);
    let (upper, legend) = area.split_vertically(CURVES_HEIGHT);
    let x = bounds(curves.iter().flat_map(|curve| &curve.points).map(|point| point.0));
    let spreads = curves.iter().flat_map(|curve| &curve.spreads).flat_map(|(low, high)| [*low, *high]);
    let y = bounds(curves.iter().flat_map(|curve| &curve.points).map(|point| point.1).chain(spreads));
    // The stretches are marked above the curves.
    let ceiling = y.1.max(1e-9) * (1.05 + BAND * bands.len() as f64);
    let [x_axis, y_axis] = [x_axis, y_axis].map(String::as_str);
    let [x, y] = match is_logarithmic {
        true => [Axis::logarithmic(x.0, x.1), Axis::logarithmic(y.0, y.1)],
        false => [Axis::linear(x.1), Axis::linear(ceiling)],
    };
    let names = [x.named(x_axis), y.named(y_axis)];
    let mut builder = ChartBuilder::on(&upper);
    builder.margin_right(16).margin_left(4).x_label_area_size(44).y_label_area_size(64);
    let mut chart = builder.build_cartesian_2d(x, y)?;
    if !is_logarithmic {
        draw_bands(&mut chart, palette, bands, ceiling)?;
    }
    draw_lines(chart, palette, names, curves)?;
    draw_legend(&legend, palette, curves)?;
    area.present()?;
    Ok(())
}

/// Text of cells, which keep their colours in the dark.
const CELL_INK: RGBColor = RGBColor(17, 17, 17);
/// Colours of cells, and the factor of the goal up to which each is used: from far below it to far above.
const HEAT: [(f64, RGBColor); 6] = [
    (0.6, RGBColor(90, 190, 160)),
    (1.0, RGBColor(165, 222, 200)),
    (1.0 / 0.85, RGBColor(250, 240, 175)),
    (2.0, RGBColor(250, 200, 120)),
    (5.0, RGBColor(240, 150, 90)),
    (f64::INFINITY, RGBColor(225, 105, 85)),
];

fn draw_heat(svg: &mut String, title: &str, goal: f64, panels: &[Heat]) -> Drawn {
    const LEFT: i32 = 56;
    const ROW: i32 = 22;
    /// Between two panels, with the heading and the headings of columns.
    const HEAD: i32 = 54;
    let top = title_height(title);
    let rows: usize = panels.iter().map(|panel| panel.rows.len()).sum();
    let height = top + HEAD * panels.len() as i32 + ROW * rows as i32 + 10;
    let area = SVGBackend::with_string(svg, (WIDTH, height as u32)).into_drawing_area();
    area.fill(&PAPER)?;
    draw_title(&area, title)?;
    let mut y = top;
    for panel in panels {
        let bold = ("sans-serif", TEXT).into_font().style(FontStyle::Bold);
        area.draw(&Text::new(panel.title.clone(), (10, y + 8), bold.color(&INK)))?;
        let small = ("sans-serif", TEXT - 2);
        let width = (WIDTH as i32 - LEFT - 10) / (panel.columns.len().max(1) as i32);
        for (index, column) in panel.columns.iter().enumerate() {
            area.draw(&Text::new(column.clone(), (LEFT + width * index as i32 + 6, y + 34), small))?;
        }
        y += HEAD;
        for (row, values) in panel.rows.iter().zip(panel.values.chunks(panel.columns.len().max(1))) {
            area.draw(&Text::new(row.clone(), (20, y + 4), small))?;
            for (index, value) in values.iter().enumerate() {
                let Some(value) = value else { continue };
                let x = LEFT + width * index as i32;
                let shade = HEAT.iter().find(|(factor, _)| *value <= goal * factor);
                let colour = shade.map_or(PAPER, |(_, colour)| *colour);
                area.draw(&Rectangle::new([(x, y), (x + width - 2, y + ROW - 2)], colour.filled()))?;
                let text = if *value < 9.95 { format!("{value:.2}") } else { format!("{value:.0}") };
                area.draw(&Text::new(text, (x + 6, y + 4), small.into_font().color(&CELL_INK)))?;
            }
            y += ROW;
        }
    }
    area.present()?;
    Ok(())
}

/// The smallest and the largest of finite values.
fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values
        .filter(|value| value.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
    if low.is_finite() { (low, high) } else { (1.0, 2.0) }
}

/// Shades each stretch and draws a line with ends over it, in its server's colour and one below the other.
fn draw_bands(chart: &mut Chart<'_, '_>, palette: &Palette, bands: &[Band], ceiling: f64) -> Drawn {
    let step = ceiling * BAND / (1.05 + BAND * bands.len() as f64);
    for (number, Band { label, from, to }) in bands.iter().enumerate() {
        let shade = INK.mix(0.07).filled();
        chart.draw_series([Rectangle::new([(*from, 0.0), (*to, ceiling)], shade)])?;
        let (colour, y) = (palette.colour(label), ceiling - step * (number as f64 + 0.8));
        let lines = [
            vec![(*from, y), (*to, y)],
            vec![(*from, y - step / 6.0), (*from, y + step / 6.0)],
            vec![(*to, y - step / 6.0), (*to, y + step / 6.0)],
        ];
        chart.draw_series(lines.map(|line| PathElement::new(line, colour.stroke_width(2))))?;
        let text = Text::new(label.clone(), (*from, y + step * 0.72), ("sans-serif", TEXT - 2));
        chart.draw_series([text])?;
    }
    Ok(())
}

fn draw_lines(mut chart: Chart<'_, '_>, palette: &Palette, names: [String; 2], curves: &[Curve]) -> Drawn {
    let [x, y] = names;
    chart
        .configure_mesh()
        .x_desc(x)
        .y_desc(y)
        .label_style(("sans-serif", TEXT - 1))
        .axis_desc_style(("sans-serif", TEXT))
        .light_line_style(PAPER.mix(0.0))
        .bold_line_style(INK.mix(0.15))
        .draw()?;
    for (index, curve) in curves.iter().enumerate() {
        let colour = palette.colour(&curve.server);
        let line = curve.points.iter().copied();
        match dashes(index) {
            None => chart.draw_series(LineSeries::new(line, colour.stroke_width(2)))?,
            Some((dash, gap)) => {
                chart.draw_series(DashedLineSeries::new(line, dash, gap, colour.stroke_width(2)))?
            }
        };
        for ((at, _), spread) in curve.points.iter().zip(&curve.spreads) {
            draw_spread(&chart, *at, *spread, colour)?;
        }
        // Many points make a line thick with marks: some of them will do.
        let every = curve.points.len().div_ceil(16).max(1);
        for point in curve.points.iter().step_by(every) {
            let at = chart.backend_coord(point);
            draw_mark(chart.plotting_area().strip_coord_spec(), at, palette.number(&curve.server), colour)?;
        }
    }
    Ok(())
}

/// A vertical bar from the smallest to the largest sample at a place of the x axis.
fn draw_spread(chart: &Chart<'_, '_>, x: f64, (low, high): Spread, colour: RGBColor) -> Drawn {
    let [(across, from), (_, to)] = [low, high].map(|value| chart.backend_coord(&(x, value)));
    let area = chart.plotting_area().strip_coord_spec();
    let (left, top) = area.get_base_pixel();
    for line in whisker(from - top, to - top, |along, offset| (across - left + offset, along)) {
        area.draw(&PathElement::new(line, colour.stroke_width(1)))?;
    }
    Ok(())
}

/// Length of dashes and gaps of a plot's lines; the first one is unbroken.
fn dashes(index: usize) -> Option<(u32, u32)> {
    [None, Some((8, 4)), Some((3, 3)), Some((12, 3)), Some((2, 5)), Some((6, 6))][index % 6]
}

/// A server's mark.
fn draw_mark(area: Area<'_>, at: (i32, i32), number: usize, colour: RGBColor) -> Drawn {
    let (filled, hollow) = (colour.filled(), colour.stroke_width(2));
    // Coordinates are those of the whole picture.
    let (left, top) = area.get_base_pixel();
    let at = (at.0 - left, at.1 - top);
    match number % 5 {
        0 => area.draw(&Circle::new(at, MARK, filled))?,
        1 => area.draw(&Rectangle::new([(at.0 - MARK, at.1 - MARK), (at.0 + MARK, at.1 + MARK)], hollow))?,
        2 => area.draw(&TriangleMarker::new(at, MARK + 2, filled))?,
        3 => area.draw(&Cross::new(at, MARK, hollow))?,
        _ => area.draw(&Circle::new(at, MARK, hollow))?,
    }
    Ok(())
}

const LEGEND_COLUMNS: usize = 2;

/// The mark and line of each server, side by side.
fn draw_legend(area: &Area<'_>, palette: &Palette, curves: &[Curve]) -> Drawn {
    for (index, curve) in curves.iter().enumerate() {
        let (x, y) = (20 + (index % LEGEND_COLUMNS) as i32 * 230, 12 + (index / LEGEND_COLUMNS) as i32 * 24);
        let colour = palette.colour(&curve.server);
        let mut from = x;
        let (dash, gap) = dashes(index).unwrap_or((36, 1));
        while from < x + 36 {
            let to = (from + dash as i32).min(x + 36);
            area.draw(&PathElement::new([(from, y), (to, y)], colour.stroke_width(2)))?;
            from = to + gap as i32;
        }
        let (left, top) = area.get_base_pixel();
        draw_mark(area.clone(), (x + 18 + left, y + top), palette.number(&curve.server), colour)?;
        area.draw(&Text::new(curve.server.clone(), (x + 44, y - 8), ("sans-serif", TEXT)))?;
    }
    Ok(())
}

/// A title's lines.
fn wrapped(title: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in title.split(' ') {
        let last = lines.last_mut().expect("there is always one");
        if !last.is_empty() && last.chars().count() + 1 + word.chars().count() > TITLE_LETTERS_MAX {
            lines.push(word.into());
        } else {
            last.push_str(if last.is_empty() { "" } else { " " });
            last.push_str(word);
        }
    }
    lines
}

fn title_height(title: &str) -> i32 {
    16 + LINE * wrapped(title).len() as i32
}

fn draw_title(area: &Area<'_>, title: &str) -> Drawn {
    for (index, line) in wrapped(title).into_iter().enumerate() {
        area.draw(&Text::new(line, (10, 8 + LINE * index as i32), ("sans-serif", TEXT + 1)))?;
    }
    Ok(())
}

fn shortened(name: &str) -> String {
    if name.chars().count() <= NAME_LETTERS_MAX {
        return name.into();
    }
    name.chars().take(NAME_LETTERS_MAX - 1).chain(['…']).collect()
}

fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut distinct = Vec::new();
    for name in names {
        if !distinct.contains(&name) {
            distinct.push(name);
        }
    }
    distinct
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVERS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

    fn palette() -> Palette {
        Palette::new(SERVERS)
    }

    fn curves(is_logarithmic: bool, points: &[(f64, f64)]) -> Plot {
        let spreads: Vec<_> = points.iter().map(|(_, y)| (y * 0.9, y * 1.2)).collect();
        let curve =
            |server: &str| Curve { server: server.into(), points: points.to_vec(), spreads: spreads.clone() };
        Plot::Curves {
            title: "t".into(),
            x_axis: "x".into(),
            y_axis: "y".into(),
            is_logarithmic,
            curves: SERVERS.map(curve).to_vec(),
            bands: vec![Band { label: "b compacts".into(), from: 1.0, to: 2.0 }],
        }
    }

    #[test]
    fn curves_of_any_shape_can_be_drawn() {
        for points in [&[][..], &[(1.0, 0.0)], &[(1.0, 5.0), (1000.0, 5e6)], &[(2.0, f64::NAN)]] {
            for is_logarithmic in [true, false] {
                let svg = svg(&curves(is_logarithmic, points), &palette()).unwrap();
                assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
            }
        }
    }

    #[test]
    fn servers_differ_without_colour() {
        let svg = svg(&curves(false, &[(1.0, 1.0), (2.0, 2.0)]), &palette()).unwrap();
        for mark in ["<circle", "<polygon", "<rect"] {
            assert!(svg.contains(mark), "{mark}");
        }
        assert!(svg.contains("b compacts"));
    }

    #[test]
    fn logarithmic_axis_is_labelled_and_numbered_within_a_decade() {
        let plot = curves(true, &[(1.0, 300.0), (16.0, 420.0)]);
        let svg = svg(&plot, &palette()).unwrap();
        let texts: Vec<_> = svg.split("<text").skip(1).filter_map(|text| text.split('>').nth(1)).collect();
        let says = |wanted: &str| texts.iter().any(|text| text.trim_start().starts_with(wanted));
        for wanted in ["x (logarithmic)", "y (logarithmic)", "300\n", "400\n", "10\n"] {
            assert!(says(wanted), "{wanted}: {texts:?}");
        }
    }

    #[test]
    fn bars_have_their_spread_their_label_and_the_dark_twin_of_their_colour() {
        let bar = |server: &str, spread| Bar {
            row: "GET".into(),
            server: server.into(),
            value: 1234.0,
            spread,
            label: None,
        };
        let plain =
            Plot::Bars { title: "t".into(), bars: vec![bar("a", None), bar("b", None)], reference: None };
        let spread = vec![bar("a", Some((1000.0, 2000.0))), bar("b", None)];
        let spread = Plot::Bars { title: "t".into(), bars: spread, reference: Some(1.0) };
        let [plain, spread] = [plain, spread].map(|plot| svg(&plot, &palette()).unwrap());
        let lines = |svg: &str| svg.matches("<line").count() + svg.matches("<polyline").count();
        assert_eq!(lines(&spread) - lines(&plain), 4);
        assert!(plain.contains("1,234") && plain.contains("prefers-color-scheme:dark"));
    }

    #[test]
    fn cells_have_the_colour_of_their_ratio_and_none_without_one() {
        let heat = |values: Vec<Option<f64>>| Heat {
            title: "p".into(),
            columns: vec!["x".into(), "y".into()],
            rows: vec!["1".into(), "2".into()],
            values,
        };
        let panels = vec![heat(vec![Some(0.85), Some(0.86), Some(70.4), None])];
        let svg = svg(&Plot::Heat { title: "t".into(), goal: 0.85, panels }, &palette()).unwrap();
        let count = |colour: &str| svg.matches(&format!("fill=\"{colour}\" stroke=\"none\"")).count();
        assert_eq!([count("#A5DEC8"), count("#FAF0AF"), count("#E16955")], [1, 1, 1], "{svg}");
        assert!(svg.contains("\n70\n"), "{svg}");
    }

    #[test]
    fn long_words_fit() {
        let title =
            "With an append-only file: reads and updates: highest rate that keeps the SLO, requests/s";
        let lines = wrapped(title);
        assert!(lines.len() == 2 && lines.iter().all(|line| line.len() <= TITLE_LETTERS_MAX), "{lines:?}");
        assert_eq!(lines.join(" "), title);
        assert_eq!(shortened("redis-server Unix"), "redis-server Unix");
        assert_eq!(shortened("postgresql://database/fans"), "postgresql://databa…");
    }
}
