//! Plots as SVG. Servers are told apart by their marks, dashes and shades of grey as well as by their
//! colours, so that a plot survives a black-and-white printer; text is large enough for a phone.

use plotters::coord::Shift;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::prelude::*;

use super::super::results::{Band, Bar, Curve, Plot};
use crate::figures::short;

const WIDTH: u32 = 640;
const CURVES_HEIGHT: u32 = 400;
const TEXT: u32 = 15;
const MARK: i32 = 4;

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
    const LEFT: i32 = 190;
    const RIGHT: i32 = 80;
    const TOP: i32 = 40;
    const BAR: i32 = 20;
    const GAP: i32 = 32;
    let rows = distinct(bars.iter().map(|bar| bar.row.as_str()));
    let height = TOP + BAR * bars.len() as i32 + GAP * rows.len() as i32 + 10;
    let longest = bars.iter().map(|bar| bar.value).fold(f64::MIN_POSITIVE, f64::max);
    let scale = f64::from(WIDTH as i32 - LEFT - RIGHT) / longest;
    let area = SVGBackend::with_string(svg, (WIDTH, height as u32)).into_drawing_area();
    area.fill(&WHITE)?;
    area.draw(&Text::new(title.to_string(), (10, 10), ("sans-serif", TEXT + 2)))?;
    let mut y = TOP;
    for row in rows {
        area.draw(&Text::new(
            row.to_string(),
            (10, y + 6),
            ("sans-serif", TEXT).into_font().style(FontStyle::Bold),
        ))?;
        y += GAP - 6;
        for bar in bars.iter().filter(|bar| bar.row == row) {
            let colour = if bar.server.starts_with("dunlin") { OWN } else { OTHERS };
            area.draw(&Text::new(bar.server.clone(), (20, y + 1), ("sans-serif", TEXT)))?;
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
    let area = SVGBackend::with_string(svg, (WIDTH, CURVES_HEIGHT + 24 * curves.len().div_ceil(3) as u32))
        .into_drawing_area();
    area.fill(&WHITE)?;
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
    builder.caption(title, ("sans-serif", TEXT + 2)).margin(10).x_label_area_size(46).y_label_area_size(74);
    if *is_logarithmic {
        let log = |(low, high): (f64, f64)| {
            let low = low.max(1e-9);
            (low * 0.9..high.max(low * 2.0) * 1.15).log_scale()
        };
        let chart = builder.build_cartesian_2d(log(x), log(y))?;
        draw_lines(chart, x_axis, y_axis, curves, bands, y.0 * 0.9)?;
    } else {
        let chart = builder.build_cartesian_2d(0.0..x.1.max(1e-9), 0.0..y.1.max(1e-9) * 1.08)?;
        draw_lines(chart, x_axis, y_axis, curves, bands, 0.0)?;
    }
    draw_legend(&legend, curves)?;
    area.present()?;
    Ok(())
}

fn draw_lines<X, Y>(
    mut chart: ChartContext<'_, SVGBackend<'_>, Cartesian2d<X, Y>>,
    x_axis: &str,
    y_axis: &str,
    curves: &[Curve],
    bands: &[Band],
    floor: f64,
) -> Drawn
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let ceiling = chart.y_range().end;
    for (number, band) in bands.iter().enumerate() {
        let shade = BLACK.mix(0.07 + 0.05 * (number % 2) as f64).filled();
        chart.draw_series([Rectangle::new([(band.from, floor), (band.to, ceiling)], shade)])?;
        // Stretches of several servers overlap: their labels stand one below the other.
        let height = ceiling * (0.98 - 0.07 * number as f64);
        let label = Text::new(band.label.clone(), (band.from, height), ("sans-serif", TEXT - 2));
        chart.draw_series([label])?;
    }
    chart
        .configure_mesh()
        .x_desc(x_axis)
        .y_desc(y_axis)
        .label_style(("sans-serif", TEXT - 1))
        .axis_desc_style(("sans-serif", TEXT))
        .x_label_formatter(&|value| tick(*value))
        .y_label_formatter(&|value| tick(*value))
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

/// Which mark and line is whose, three a line.
fn draw_legend(area: &Area<'_>, curves: &[Curve]) -> Drawn {
    for (index, curve) in curves.iter().enumerate() {
        let (x, y) = (20 + (index % 3) as i32 * 205, 12 + (index / 3) as i32 * 24);
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
    fn ticks_are_short() {
        assert_eq!([0.5, 9_000.0, 12_000.0, 1.5e6].map(tick), ["0.5", "9000", "12k", "1.5M"]);
    }
}
