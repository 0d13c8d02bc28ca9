//! The diagram as SVG, for light and dark pages. Pure, but for the time zone of the clock at the
//! left.

use std::fmt::Write;

use teamd_client::print::clock;
use teamd_view::model::{RequestStage, Sequence, SequenceEvent, Turning};

/// The geometry, in pixels.
const CLOCK: usize = 76;
const COLUMN: usize = 150;
const HEAD: usize = 44;
const ROW: usize = 30;
/// Half the width of the bar of an incarnation.
const BAR: usize = 5;

/// The colours of requests, readable on light and dark.
const HUES: usize = 6;
const STYLE: &str = "\
svg{--ink:#1f2328;--dim:#8c959f;--card:#fff;--bar:#d0d7de}
@media(prefers-color-scheme:dark){svg{--ink:#e6edf3;--dim:#7d8590;--card:#0d1117;--bar:#373e47}}
text{font:12px system-ui,sans-serif;fill:var(--ink)}
.name{font-weight:600;text-anchor:middle}.clock{fill:var(--dim);font-size:11px}
.label{paint-order:stroke;stroke:var(--card);stroke-width:4px;stroke-linejoin:round}
.line{stroke:var(--dim);stroke-dasharray:2 4}.bar{fill:var(--bar)}
.m{stroke:var(--dim);fill:var(--dim)}.bad{stroke:#cf222e;fill:#cf222e}
.r0{stroke:#0969da;fill:#0969da}.r1{stroke:#8250df;fill:#8250df}.r2{stroke:#bf8700;fill:#bf8700}
.r3{stroke:#1a7f37;fill:#1a7f37}.r4{stroke:#bc4c00;fill:#bc4c00}.r5{stroke:#0b7285;fill:#0b7285}
.r0,.r1,.r2,.r3,.r4,.r5{stroke-width:1.6}.answer{stroke-dasharray:6 3}";

/// Draws the diagram.
pub(super) fn draw(sequence: &Sequence) -> String {
    let lifelines = sequence.lifelines.len();
    let rows = sequence.events.len();
    let width = CLOCK + lifelines * COLUMN;
    let height = HEAD + rows * ROW + ROW / 2;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         role=\"img\" aria-label=\"Sequence diagram: {lifelines} lifelines, {rows} events\">\n<style>{STYLE}</style>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"var(--card)\"/>\n"
    );
    for (number, name) in sequence.lifelines.iter().enumerate() {
        let x = x(number);
        let name = quoted(name);
        add(
            &mut svg,
            format_args!("<text class=\"name\" x=\"{x}\" y=\"24\">{name}</text>"),
        );
        add(
            &mut svg,
            format_args!(
                "<line class=\"line\" x1=\"{x}\" y1=\"{HEAD}\" x2=\"{x}\" y2=\"{height}\"/>"
            ),
        );
    }
    for (lifeline, from, to) in sequence.incarnations() {
        bar(
            &mut svg,
            lifeline,
            (from.map_or(HEAD, y), to.map_or(y(rows), y)),
        );
    }
    let mut last = String::new();
    for (row, event) in sequence.events.iter().enumerate() {
        let time = clock::time_of_day(event.at);
        if time != last {
            add(
                &mut svg,
                format_args!(
                    "<text class=\"clock\" x=\"8\" y=\"{}\">{time}</text>",
                    y(row) + 4
                ),
            );
        }
        last = time;
        draw_event(&mut svg, event, y(row));
    }
    svg + "</svg>\n"
}

fn bar(svg: &mut String, lifeline: usize, (top, bottom): (usize, usize)) {
    let x = x(lifeline) - BAR;
    let width = 2 * BAR;
    let height = bottom - top;
    add(
        svg,
        format_args!(
            "<rect class=\"bar\" x=\"{x}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" rx=\"2\"/>"
        ),
    );
}

fn draw_event(svg: &mut String, event: &SequenceEvent, y: usize) {
    let from = x(event.from);
    let to = x(event.to);
    let label = quoted(&event.label);
    let class = match event.request {
        _ if event.is_trouble => "bad".to_owned(),
        Some((number, RequestStage::Asked | RequestStage::Joined)) => format!("r{}", number % HUES),
        Some((number, _)) => format!("r{} answer", number % HUES),
        None => "m".to_owned(),
    };
    if from == to {
        let mark = match (event.turning, event.is_trouble) {
            (_, true) => "✕",
            (Some(Turning::Began), _) => "●",
            (Some(Turning::Ended), _) => "■",
            (None, _) => "·",
        };
        let x = from + 10;
        let y = y + 4;
        return add(
            svg,
            format_args!("<text class=\"label\" x=\"{x}\" y=\"{y}\">{mark} {label}</text>"),
        );
    }
    let tip = if to > from {
        to - 2 * BAR
    } else {
        to + 2 * BAR
    };
    let middle = from.min(to) + 12;
    let top = y - 4;
    let bottom = y + 4;
    let end = if to > from { to - BAR } else { to + BAR };
    add(
        svg,
        format_args!("<path class=\"{class}\" d=\"M{from} {y}H{tip}\"/>"),
    );
    let head = class.trim_end_matches(" answer");
    add(
        svg,
        format_args!("<path class=\"{head}\" d=\"M{tip} {top}L{end} {y}L{tip} {bottom}Z\"/>"),
    );
    add(
        svg,
        format_args!(
            "<text class=\"label\" x=\"{middle}\" y=\"{}\">{label}</text>",
            y - 5
        ),
    );
}

fn add(svg: &mut String, line: std::fmt::Arguments<'_>) {
    // A string takes everything.
    writeln!(svg, "{line}").ok();
}

const fn x(lifeline: usize) -> usize {
    CLOCK + lifeline * COLUMN + COLUMN / 3
}

const fn y(row: usize) -> usize {
    HEAD + row * ROW + ROW * 2 / 3
}

/// Replaces what XML would act on.
fn quoted(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
