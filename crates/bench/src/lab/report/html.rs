//! The report as one HTML file: style and plots inside, nothing loaded, readable on a phone.

use std::fmt::Write as _;

use super::super::results::{Results, Section};
use super::{Report, plot, reading};
use crate::figures::Line;

const STYLE: &str = "\
body{font:16px/1.45 system-ui,sans-serif;max-width:60rem;margin:0 auto;padding:1rem;color:#111;background:#fff}\
h1,h2,h3{line-height:1.2}h2{border-top:2px solid #111;padding-top:1rem;margin-top:2.5rem}\
table{border-collapse:collapse;font-variant-numeric:tabular-nums}.wide{overflow-x:auto}\
th,td{padding:.2rem .6rem;text-align:right;border-bottom:1px solid #ccc;white-space:nowrap}\
th:nth-child(-n+2),td:nth-child(-n+2){text-align:left}tr.first td{border-top:2px solid #999}\
td small{color:#555}svg{max-width:100%;height:auto;display:block;margin:1rem 0}\
details{margin:.5rem 0}nav a{margin-right:1rem}";

/// The whole page.
pub fn page(report: &Report) -> Result<String, String> {
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>dunlin bench lab</title><style>{STYLE}</style></head><body>\n<h1>dunlin bench lab</h1>\n<ul>\n"
    );
    for line in report.lines() {
        let _ = writeln!(text, "<li>{}</li>", escaped(line));
    }
    text.push_str("</ul>\n<nav>");
    for Results { experiment, title, .. } in &report.results {
        let _ = write!(text, "<a href=\"#{experiment}\">{}</a> ", escaped(title));
    }
    text.push_str("</nav>\n");
    for results in &report.results {
        write_results(&mut text, results)?;
    }
    text.push_str("</body></html>\n");
    Ok(text)
}

fn write_results(text: &mut String, results: &Results) -> Result<(), String> {
    let Results { experiment, founding, title, explanation, .. } = results;
    let _ = writeln!(
        text,
        "<h2 id=\"{experiment}\">{} <small>{founding}</small></h2>\n<p>{}</p>",
        escaped(title),
        escaped(explanation)
    );
    for (label, lines) in results.remarks().into_iter().filter(|(_, lines)| !lines.is_empty()) {
        let open = if label == "note" { " open" } else { "" };
        let _ = write!(text, "<details{open}><summary>{label} ({})</summary><ul>", lines.len());
        for line in lines {
            let _ = write!(text, "<li>{}</li>", escaped(line));
        }
        text.push_str("</ul></details>\n");
    }
    for section in &results.sections {
        write_section(text, section)?;
    }
    Ok(())
}

fn write_section(text: &mut String, section: &Section) -> Result<(), String> {
    let _ = writeln!(
        text,
        "<h3>{}</h3>\n<p>{} {}</p>",
        escaped(&section.title),
        escaped(&section.method),
        escaped(&reading(section))
    );
    for plot in &section.plots {
        text.push_str(&plot::svg(plot)?);
    }
    text.push_str("<div class=\"wide\"><table><tr><th></th><th></th>");
    for server in &section.table.servers {
        let _ = write!(text, "<th>{}</th>", escaped(server));
    }
    text.push_str("</tr>\n");
    for Line { row, metric, unit, headline } in section.table.lines() {
        let class = if headline { " class=\"first\"" } else { "" };
        let _ = write!(
            text,
            "<tr{class}><td>{}</td><td>{} <small>{}</small></td>",
            escaped(if headline { row } else { "" }),
            escaped(metric),
            escaped(unit)
        );
        for server in &section.table.servers {
            let _ = write!(text, "<td>{}</td>", escaped(&section.table.cell(row, metric, server)));
        }
        text.push_str("</tr>\n");
    }
    text.push_str("</table></div>\n");
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
