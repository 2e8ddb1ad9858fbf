//! Plots as SVG. Servers are told apart by their marks, dashes and shades of grey as well as by their
//! colours, so that a plot survives a black-and-white printer; text is large enough for a phone.

use plotters::coord::Shift;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::prelude::*;

use super::super::results::{Band, Bar, Curve, Plot};
use crate::figures::short;

/// Narrow, so that text of this size can be read where a phone shrinks the whole plot.
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

/// Colours that differ in brightness too (after Okabe and Ito), darkest first.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 0, 0),
    RGBColor(213, 94, 0),
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(150, 150, 150),
];

/// Colours of bars, whose names stand beside them: Dunlin's and all others'.
const OWN: RGBColor = RGBColor(0, 90, 150);
const OTHERS: RGBColor = RGBColor(165, 165, 165);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws a plot.
pub fn svg(plot: &Plot) -> Result<String, String> {
    let mut svg = String::new();
    let drawn = match plot {
        Plot::Bars { title, bars } => draw_bars(&mut svg, title, bars),
        Plot::Curves { .. } => draw_curves(&mut svg, plot),
    };
    drawn.map_err(|error| format!("cannot draw a plot: {error}"))?;
    svg.push('\n');
    Ok(svg)
}

type Drawn = Result<(), Box<dyn std::error::Error>>;

fn draw_bars(svg: &mut String, title: &str, bars: &[Bar]) -> Drawn {
    const LEFT: i32 = 160;
    const RIGHT: i32 = 64;
    const BAR: i32 = 20;
    const GAP: i32 = 32;
    let rows = distinct(bars.iter().map(|bar| bar.row.as_str()));
    let top = title_height(title);
    let height = top + BAR * bars.len() as i32 + GAP * rows.len() as i32 + 10;
    let longest = bars.iter().map(|bar| bar.value).fold(f64::MIN_POSITIVE, f64::max);
    let scale = f64::from(WIDTH as i32 - LEFT - RIGHT) / longest;
    let area = SVGBackend::with_string(svg, (WIDTH, height as u32)).into_drawing_area();
    area.fill(&WHITE)?;
    draw_title(&area, title)?;
    let mut y = top;
    for row in rows {
        area.draw(&Text::new(
            row.to_string(),
            (10, y + 6),
            ("sans-serif", TEXT).into_font().style(FontStyle::Bold),
        ))?;
        y += GAP - 6;
        for bar in bars.iter().filter(|bar| bar.row == row) {
            let colour = if bar.server.starts_with("dunlin") { OWN } else { OTHERS };
            area.draw(&Text::new(shortened(&bar.server), (20, y + 1), ("sans-serif", TEXT)))?;
            let end = LEFT + ((bar.value * scale) as i32).max(1);
            area.draw(&Rectangle::new([(LEFT, y), (end, y + BAR - 4)], colour.filled()))?;
            area.draw(&Text::new(short(bar.value), (end + 6, y + 1), ("sans-serif", TEXT)))?;
            y += BAR;
        }
        y += 6;
    }
    area.present()?;
    Ok(())
}

fn draw_curves(svg: &mut String, plot: &Plot) -> Drawn {
    let Plot::Curves { title, x_axis, y_axis, is_logarithmic, curves, bands } = plot else { return Ok(()) };
    let top = title_height(title);
    let legend_height = 24 * curves.len().div_ceil(LEGEND_COLUMNS) as u32;
    let area =
        SVGBackend::with_string(svg, (WIDTH, top as u32 + CURVES_HEIGHT + legend_height)).into_drawing_area();
    area.fill(&WHITE)?;
    draw_title(&area, title)?;
    let (_, area) = area.split_vertically(top);
    let (upper, legend) = area.split_vertically(CURVES_HEIGHT);
    let bounds = |pick: fn(&(f64, f64)) -> f64| {
        let values =
            curves.iter().flat_map(|curve| &curve.points).map(pick).filter(|value| value.is_finite());
        let (low, high) = values
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        if low.is_finite() { (low, high) } else { (1.0, 2.0) }
    };
    let (x, y) = (bounds(|point| point.0), bounds(|point| point.1));
    let mut builder = ChartBuilder::on(&upper);
    builder.margin_right(14).margin_left(4).x_label_area_size(44).y_label_area_size(64);
    if *is_logarithmic {
        let log = |(low, high): (f64, f64)| {
            let low = low.max(1e-9);
            (low * 0.9..high.max(low * 2.0) * 1.15).log_scale()
        };
        let chart = builder.build_cartesian_2d(log(x), log(y))?;
        let ticks = [x, y].map(|(low, high)| if high > 4.0 * low { sparse_tick } else { tick });
        draw_lines(chart, [x_axis, y_axis], ticks, curves)?;
    } else {
        // The stretches are marked above the curves.
        let ceiling = y.1.max(1e-9) * (1.05 + BAND * bands.len() as f64);
        let mut chart = builder.build_cartesian_2d(0.0..x.1.max(1e-9), 0.0..ceiling)?;
        draw_bands(&mut chart, bands, curves, ceiling)?;
        draw_lines(chart, [x_axis, y_axis], [tick, tick], curves)?;
    }
    draw_legend(&legend, curves)?;
    area.present()?;
    Ok(())
}

type Linear = plotters::coord::types::RangedCoordf64;

/// Shades each stretch and draws a line with ends over it, in its server's colour and one below the other.
fn draw_bands(
    chart: &mut ChartContext<'_, SVGBackend<'_>, Cartesian2d<Linear, Linear>>,
    bands: &[Band],
    curves: &[Curve],
    ceiling: f64,
) -> Drawn {
    let step = ceiling * BAND / (1.05 + BAND * bands.len() as f64);
    for (number, Band { label, from, to }) in bands.iter().enumerate() {
        let shade = BLACK.mix(0.07).filled();
        chart.draw_series([Rectangle::new([(*from, 0.0), (*to, ceiling)], shade)])?;
        let owner = curves.iter().position(|curve| label.starts_with(&curve.server)).unwrap_or(0);
        let (colour, y) = (COLOURS[owner % COLOURS.len()], ceiling - step * (number as f64 + 0.8));
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

fn draw_lines<X, Y>(
    mut chart: ChartContext<'_, SVGBackend<'_>, Cartesian2d<X, Y>>,
    [x_axis, y_axis]: [&str; 2],
    [x_tick, y_tick]: [fn(f64) -> String; 2],
    curves: &[Curve],
) -> Drawn
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    chart
        .configure_mesh()
        .x_desc(x_axis)
        .y_desc(y_axis)
        .label_style(("sans-serif", TEXT - 1))
        .axis_desc_style(("sans-serif", TEXT))
        .x_label_formatter(&|value| x_tick(*value))
        .y_label_formatter(&|value| y_tick(*value))
        .light_line_style(WHITE.mix(0.0))
        .bold_line_style(BLACK.mix(0.15))
        .draw()?;
    for (index, curve) in curves.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let points = curve.points.iter().copied();
        if index == 0 {
            chart.draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)))?;
        } else {
            let (dash, gap) = dashes(index);
            chart.draw_series(DashedLineSeries::new(points.clone(), dash, gap, colour.stroke_width(2)))?;
        }
        // Many points make a line thick with marks: some of them will do.
        let every = curve.points.len().div_ceil(16).max(1);
        for point in points.step_by(every) {
            let at = chart.backend_coord(&point);
            draw_mark(chart.plotting_area().strip_coord_spec(), at, index)?;
        }
    }
    Ok(())
}

/// Length of dashes and gaps of a server's line; the first one's is unbroken.
fn dashes(index: usize) -> (u32, u32) {
    [(8, 4), (3, 3), (12, 3), (2, 5), (6, 6)][(index - 1) % 5]
}

fn draw_mark(area: Area<'_>, at: (i32, i32), index: usize) -> Drawn {
    let colour = COLOURS[index % COLOURS.len()];
    let (filled, hollow) = (colour.filled(), colour.stroke_width(2));
    // Coordinates are those of the whole picture.
    let (left, top) = area.get_base_pixel();
    let at = (at.0 - left, at.1 - top);
    match index % 5 {
        0 => area.draw(&Circle::new(at, MARK, filled))?,
        1 => area.draw(&Rectangle::new([(at.0 - MARK, at.1 - MARK), (at.0 + MARK, at.1 + MARK)], hollow))?,
        2 => area.draw(&TriangleMarker::new(at, MARK + 2, filled))?,
        3 => area.draw(&Cross::new(at, MARK, hollow))?,
        _ => area.draw(&Circle::new(at, MARK, hollow))?,
    }
    Ok(())
}

const LEGEND_COLUMNS: usize = 2;

/// Which mark and line is whose, side by side.
fn draw_legend(area: &Area<'_>, curves: &[Curve]) -> Drawn {
    for (index, curve) in curves.iter().enumerate() {
        let (x, y) = (20 + (index % LEGEND_COLUMNS) as i32 * 230, 12 + (index / LEGEND_COLUMNS) as i32 * 24);
        let colour = COLOURS[index % COLOURS.len()];
        let mut from = x;
        let (dash, gap) = if index == 0 { (36, 1) } else { dashes(index) };
        while from < x + 36 {
            let to = (from + dash as i32).min(x + 36);
            area.draw(&PathElement::new([(from, y), (to, y)], colour.stroke_width(2)))?;
            from = to + gap as i32;
        }
        let (left, top) = area.get_base_pixel();
        draw_mark(area.clone(), (x + 18 + left, y + top), index)?;
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

/// On a logarithmic axis only 1, 2 and 5 of each power of ten: the others would stand on each other.
fn sparse_tick(value: f64) -> String {
    let leading = value / 10_f64.powf(value.log10().floor());
    let is_shown = [1.0, 2.0, 5.0, 10.0].iter().any(|shown| (leading - shown).abs() < 1e-6);
    if is_shown { tick(value) } else { String::new() }
}

/// 1500000 → 1.5M
fn tick(value: f64) -> String {
    let (scaled, suffix) = match value.abs() {
        magnitude if magnitude >= 1e6 => (value / 1e6, "M"),
        magnitude if magnitude >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let rounded = (scaled * 1000.0).round() / 1000.0;
    format!("{rounded}{suffix}")
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

    fn curves(is_logarithmic: bool, points: &[(f64, f64)]) -> Plot {
        let curve = |server: &str| Curve { server: server.into(), points: points.to_vec() };
        Plot::Curves {
            title: "t".into(),
            x_axis: "x".into(),
            y_axis: "y".into(),
            is_logarithmic,
            curves: ["a", "b", "c", "d", "e", "f"].map(curve).to_vec(),
            bands: vec![Band { label: "rewrite".into(), from: 1.0, to: 2.0 }],
        }
    }

    #[test]
    fn curves_of_any_shape_can_be_drawn() {
        for points in [&[][..], &[(1.0, 0.0)], &[(1.0, 5.0), (1000.0, 5e6)], &[(2.0, f64::NAN)]] {
            for is_logarithmic in [true, false] {
                let svg = svg(&curves(is_logarithmic, points)).unwrap();
                assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
            }
        }
    }

    #[test]
    fn servers_differ_without_colour() {
        let svg = svg(&curves(false, &[(1.0, 1.0), (2.0, 2.0)])).unwrap();
        for mark in ["<circle", "<polygon", "<rect"] {
            assert!(svg.contains(mark), "{mark}");
        }
        assert!(svg.contains("rewrite"));
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

    #[test]
    fn ticks_are_short() {
        assert_eq!([0.5, 9_000.0, 12_000.0, 1.5e6].map(tick), ["0.5", "9000", "12k", "1.5M"]);
        assert_eq!([0.02, 0.03, 1e6, 9.0, 50.0].map(sparse_tick), ["0.02", "", "1M", "", "50"]);
    }
}
