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
th:first-child,td:first-child{text-align:left;position:sticky;left:0;background:#fff}\
tr.row th{border-top:2px solid #999;border-bottom:0;padding-top:.5rem}\
td small{color:#555}svg{width:100%;max-width:40rem;height:auto;display:block;margin:1rem 0}\
@media(max-width:40rem){table{font-size:.85rem}th,td{padding:.2rem .35rem}td:first-child{white-space:normal;max-width:8rem}}\
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
        let _ = write!(text, "<details{open}><summary>{} ({})</summary><ul>", heading(label), lines.len());
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

fn heading(label: &str) -> &str {
    match label {
        "setting" => "Settings",
        "checked" => "What was checked",
        _ => "Notes",
    }
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
    text.push_str("<div class=\"wide\"><table><tr><th></th>");
    for server in &section.table.servers {
        let _ = write!(text, "<th>{}</th>", escaped(server));
    }
    text.push_str("</tr>\n");
    let columns = section.table.servers.len() + 1;
    for Line { row, metric, unit, headline } in section.table.lines() {
        if headline {
            let _ = writeln!(text, "<tr class=\"row\"><th colspan=\"{columns}\">{}</th></tr>", escaped(row));
        }
        let _ = write!(text, "<tr><td>{} <small>{}</small></td>", escaped(metric), escaped(unit));
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
