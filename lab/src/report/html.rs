//! The report as one HTML file: style and plots inside, nothing loaded, readable on a phone and in the dark.

use std::fmt::Write as _;

use super::super::results::{Results, Section};
use super::{Report, reading, summary::Verdict};
use dunlin_bench::figures::Line;
use dunlin_bench::plot::{self, Palette};

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#111;--paper:#fff;--line:#ccc;--strong:#666;--faint:#555;--link:#0645ad}\
@media(prefers-color-scheme:dark){:root{--ink:#e4e6eb;--paper:#16181d;--line:#3a3d45;--strong:#8b8f98;--faint:#a8acb5;\
--link:#8ab4f8}}\
body{font:16px/1.45 system-ui,sans-serif;max-width:68rem;margin:0 auto;padding:1rem;color:var(--ink);background:var(--paper)}\
a{color:var(--link)}p{max-width:46rem}h1,h2,h3{line-height:1.2}\
h2{border-top:2px solid var(--strong);padding-top:1rem;margin-top:2.5rem}h2 small,td small,th small{color:var(--faint);font-weight:400}\
table{border-collapse:collapse;font-variant-numeric:tabular-nums}.wide{overflow-x:auto}\
th,td{padding:.2rem .6rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}\
th:first-child,td:first-child{text-align:left;position:sticky;left:0;background:var(--paper)}\
tr.row th{border-top:2px solid var(--strong);border-bottom:0;padding-top:.5rem}\
table.summary td,table.summary th{text-align:left;white-space:normal;vertical-align:top}\
@media(max-width:40rem){table.summary tr:first-child{display:none}table.summary tr{display:block;padding:.4rem 0;border-bottom:1px solid var(--line)}\
table.summary td{display:block;max-width:none;border:0;padding:0}}\
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));gap:1rem;align-items:start}\
svg{width:100%;max-width:40rem;height:auto;display:block}\
@media(max-width:40rem){table{font-size:.85rem}th,td{padding:.2rem .35rem}td:first-child{white-space:normal;max-width:8rem}}\
details{margin:.5rem 0}summary{cursor:pointer}ul.contents{columns:2 20rem}";

/// The whole page.
pub fn page(report: &Report) -> Result<String, String> {
    let palette = report.palette();
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>dunlin-lab</title><style>{STYLE}</style></head><body>\n<h1>dunlin-lab</h1>\n<ul>\n"
    );
    for line in report.lines() {
        let _ = writeln!(text, "<li>{}</li>", escaped(&line));
    }
    text.push_str("</ul>\n");
    write_summary(&mut text, report);
    text.push_str("<h3>Contents</h3>\n<ul class=\"contents\">\n");
    for Results { experiment, title, .. } in &report.results {
        let _ = writeln!(text, "<li><a href=\"#{experiment}\">{}</a></li>", escaped(title));
    }
    text.push_str("</ul>\n");
    for results in &report.results {
        write_results(&mut text, results, &palette)?;
    }
    text.push_str("</body></html>\n");
    Ok(text)
}

fn write_summary(text: &mut String, report: &Report) {
    text.push_str("<h2>Summary</h2>\n<div class=\"wide\"><table class=\"summary\"><tr>");
    for heading in Verdict::HEADINGS {
        let _ = write!(text, "<th>{heading}</th>");
    }
    text.push_str("</tr>\n");
    for verdict in report.verdicts() {
        text.push_str("<tr>");
        for (index, cell) in verdict.cells().iter().enumerate() {
            let cell = escaped(cell);
            let _ = match index {
                0 => write!(text, "<td><a href=\"#{}\">{cell}</a></td>", verdict.experiment),
                _ => write!(text, "<td>{cell}</td>"),
            };
        }
        text.push_str("</tr>\n");
    }
    text.push_str("</table></div>\n");
    let checks: Vec<_> = report.checks().collect();
    let _ = write!(
        text,
        "<details><summary>Answers that were checked, and right ({})</summary><ul>",
        checks.len()
    );
    for (experiment, check) in checks {
        let _ = write!(text, "<li><a href=\"#{experiment}\">{experiment}</a>: {}</li>", escaped(check));
    }
    text.push_str("</ul></details>\n");
}

fn write_results(text: &mut String, results: &Results, palette: &Palette) -> Result<(), String> {
    let Results { experiment, founding, title, explanation, .. } = results;
    let _ = writeln!(
        text,
        "<h2 id=\"{experiment}\">{} <small>{founding}</small></h2>\n<p>{}</p>",
        escaped(title),
        escaped(explanation)
    );
    for (label, lines) in results.remarks().into_iter().filter(|(_, lines)| !lines.is_empty()) {
        let open = if label == "note" { " open" } else { "" };
        let _ = write!(text, "<details{open}><summary>{} ({})</summary><ul>", heading(label), lines.len());
        for line in lines {
            let _ = write!(text, "<li>{}</li>", escaped(line));
        }
        text.push_str("</ul></details>\n");
    }
    for section in &results.sections {
        write_section(text, section, palette)?;
    }
    Ok(())
}

fn heading(label: &str) -> &str {
    match label {
        "setting" => "Settings",
        "checked" => "Checks",
        _ => "Notes",
    }
}

fn write_section(text: &mut String, section: &Section, palette: &Palette) -> Result<(), String> {
    let _ = writeln!(text, "<h3>{}</h3>\n<p>{}</p>", escaped(&section.title), escaped(&section.method));
    text.push_str("<div class=\"plots\">");
    for plot in &section.plots {
        text.push_str(&plot::svg(plot, palette)?);
    }
    text.push_str("</div>\n");
    // Plots show the headlines: the figures behind them are folded.
    let (open, lines) = (if section.plots.is_empty() { " open" } else { "" }, section.table.lines());
    let _ = write!(
        text,
        "<details{open}><summary>All {} figures</summary><p>{}</p>",
        lines.len() * section.table.servers.len(),
        escaped(&reading(section))
    );
    text.push_str("<div class=\"wide\"><table><tr><th></th>");
    for server in &section.table.servers {
        let _ = write!(text, "<th>{}</th>", escaped(server));
    }
    text.push_str("</tr>\n");
    let columns = section.table.servers.len() + 1;
    for Line { row, metric, unit, headline } in lines {
        if headline {
            let _ = writeln!(text, "<tr class=\"row\"><th colspan=\"{columns}\">{}</th></tr>", escaped(row));
        }
        let _ = write!(text, "<tr><td>{} <small>{}</small></td>", escaped(metric), escaped(unit));
        for server in &section.table.servers {
            let _ = write!(text, "<td>{}</td>", escaped(&section.table.cell(row, metric, server)));
        }
        text.push_str("</tr>\n");
    }
    text.push_str("</table></div></details>\n");
    Ok(())
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            other => out.push(other),
        }
    }
    out
}
